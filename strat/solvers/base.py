"""What all solvers share: options, the run loop with its stops, and the result."""

import time
import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
from sklearn.base import BaseEstimator

from strat.errors import ConvergenceWarning, NoOracleError, OptionError
from strat.solvers.checkpoint import Checkpoint
from strat.solvers.progress import Progress
from strat.solvers.result import Result

_WORDS = {"value_and_gradient": "gradient", "prox": "prox"}


@dataclass
class State:
    """What a callback sees after an iteration.

    Attributes
    ----------
    iteration : int
    objective : float
    residual : dict or None
        None where the solver only knows that it is above the tolerance.
    theta : ndarray, shape (K, n)
    w : edge array
    seconds : float
    factorizations : int
    """

    iteration: int
    objective: float
    residual: dict
    theta: np.ndarray
    w: np.ndarray
    seconds: float
    factorizations: int


class Solver(BaseEstimator):
    """Base class: a subclass has the options as parameters, `needs`, and `algorithm(problem, theta, w)`."""

    needs = {}

    def validate(self):
        """Check the options.

        Raises
        ------
        OptionError
            If one is out of its range.
        """
        _check("tol", self.tol, "a number of at least 0", lambda v: isinstance(v, Real) and v >= 0)
        _check("max_iter", self.max_iter, "a whole number of at least 0", lambda v: isinstance(v, Integral) and v >= 0)
        if self.patience is not None:
            _check("patience", self.patience, "a whole number above 0", lambda v: isinstance(v, Integral) and v > 0)
        if self.time_limit is not None:
            _check("time_limit", self.time_limit, "a number of seconds", lambda v: isinstance(v, Real) and v >= 0)
        if self.callback is not None:
            _check("callback", self.callback, "a function of the state", callable)

    def check(self, problem):
        """Check that the problem has the oracles that the solver needs.

        Parameters
        ----------
        problem : JointProblem
            The problem.

        Raises
        ------
        NoOracleError
            If one is missing.
        """
        for role, name in self.needs.items():
            oracle = getattr(problem, role)
            if oracle.has(name):
                continue
            word = _WORDS[name]
            why = oracle.missing(name) if hasattr(oracle, "missing") else f"the {role} has none."
            ways = (
                "Smooth the loss (smoothing=1e-3 on the BaseModel), or fit a given graph with ADMM, which uses the prox"
                if role == "loss"
                else "Merge pieces that share a variable, drop one, or write them as one function with a known prox"
            )
            raise NoOracleError(f"{type(self).__name__} needs the {word} of the {role}, but {why}\n{ways}.")

    def run(self, problem, theta, w, *, score=None, fingerprint="", init="given"):
        """Solve the problem from (theta, w).

        Parameters
        ----------
        problem : JointProblem
            The problem.
        theta : ndarray, shape (K, n)
            Parameters to start from.
        w : edge array
            Weights to start from.
        score : callable, optional
            ``score(theta)`` is the mean validation loss, lower is better; used with `patience`.
        fingerprint : str
            Identifies declaration, data and graph in a checkpoint.
        init : str
            Name of the start, for the result.

        Returns
        -------
        Result
            The returned point and how it was reached.
        """
        self.validate()
        self.check(problem)
        if self.patience is not None and score is None:
            raise OptionError("patience watches the validation loss: give fit validation=(X, Y, z), or patience=None.")
        with _blas_threads(problem.K), Progress(type(self).__name__, self.max_iter, self.verbose) as progress:
            return _Run(self, problem, theta, w, score, fingerprint, init, progress).go()


class _Run:
    """One run: the loop, its records and its stops."""

    def __init__(self, solver, problem, theta, w, score, fingerprint, init, progress):
        self.solver, self.problem, self.init, self.progress = solver, problem, init, progress
        self.score = score if solver.patience is not None else None
        self.checkpoint = Checkpoint(solver.checkpoint, f"{type(solver).__name__} {getattr(solver, 'step', None)} {fingerprint}")
        self.started, self.before = time.perf_counter(), 0.0
        self.algorithm = solver.algorithm(problem, theta, w)
        _check_start(problem, self.algorithm.x)
        self.iteration, self.history = 0, [self.algorithm.x.F]
        self.best, self.best_key, self.best_iteration = None, np.inf, 0
        self._keep_best()
        saved = self.checkpoint.load()
        if saved is not None:
            self._restore(saved)

    def go(self):
        """Iterate until a stop."""
        solver = self.solver
        status = self._before_first()
        try:
            while status is None:
                self.algorithm.step()
                self.iteration += 1
                self.history.append(self.algorithm.x.F)
                self._keep_best()
                status = self._after_iteration()
                if status is None:
                    self.checkpoint.save(self._state)
        except KeyboardInterrupt:
            status = "interrupted"
        result = self._result(status)
        if result.status in ("converged", "early_stopped"):
            self.checkpoint.remove()
        else:
            self.checkpoint.save(self._state, force=True)
        if result.status == "max_iter":
            _warn(solver, result, self.algorithm.stalled)
        return result

    def _before_first(self):
        if self.iteration >= self.solver.max_iter:
            return "max_iter"
        return None

    def _after_iteration(self):
        solver, algorithm = self.solver, self.algorithm
        residual = algorithm.residual(solver.tol)
        seconds = self.seconds
        state = State(
            self.iteration, algorithm.x.F, residual, algorithm.x.theta, algorithm.x.w, seconds, algorithm.factorizations
        )
        stop = solver.callback is not None and bool(solver.callback(state))
        status = None
        if stop:
            status = "interrupted"
        elif self._small(residual) and self._settled():
            status = "converged"
        elif self.score is not None and self.iteration - self.best_iteration >= solver.patience:
            status = "early_stopped"
        elif self.iteration >= solver.max_iter or algorithm.stalled:
            status = "max_iter"
        elif solver.time_limit is not None and seconds - self.before >= solver.time_limit:
            status = "time_limit"
        self.progress.update(state, last=status is not None)
        return status

    def _small(self, residual):
        return residual is not None and max(residual.values()) <= self.solver.tol

    def _settled(self):
        """Whether the last iteration moved the objective little.

        Where the loss has huge gradients, as at the end of a box next to a pole, the relative residual is small far
        from any solution; the objective still falls there.
        """
        before, now = self.history[-2:]
        return before - now <= 100 * self.solver.tol * (1 + abs(now))

    @property
    def seconds(self):
        return self.before + time.perf_counter() - self.started

    def _keep_best(self):
        """Remember the iterate with the lowest validation loss; without one, the lowest objective."""
        x = self.algorithm.x
        if self.score is None and self.algorithm.monotone:
            return
        key = self.score(x.theta) if self.score is not None else x.F
        if key < self.best_key or self.best is None:
            self.best, self.best_key, self.best_iteration = (x.theta.copy(), x.w.copy("K")), key, self.iteration

    def _state(self):
        state = {f"algorithm_{name}": value for name, value in self.algorithm.state().items()}
        state |= {"iteration": self.iteration, "history": self.history, "seconds": self.seconds}
        if self.best is not None:
            state |= {"best_theta": self.best[0], "best_w": self.best[1]}
            state |= {"best_key": self.best_key, "best_iteration": self.best_iteration}
        return state

    def _restore(self, saved):
        prefix = "algorithm_"
        self.algorithm.restore({name[len(prefix) :]: v for name, v in saved.items() if name.startswith(prefix)})
        self.iteration, self.history = int(saved["iteration"]), saved["history"].tolist()
        self.before = float(saved["seconds"])
        if "best_theta" in saved:
            self.best = (saved["best_theta"], saved["best_w"])
            self.best_key, self.best_iteration = float(saved["best_key"]), int(saved["best_iteration"])

    def _result(self, status):
        x = self.algorithm.x
        theta, w = x.theta.copy(), x.w.copy("K")
        if status in ("early_stopped", "interrupted") and self.best is not None:
            theta, w = self.best
        parts, residual = self.problem.parts(theta, w), self.problem.residual(theta, w)
        if status == "max_iter" and self.iteration and self._small(residual) and self._settled():
            status = "converged"  # the algorithm had not measured the residual
        return Result(
            status=status,
            iterations=self.iteration,
            objective=sum(parts.values()),
            parts=parts,
            residual=residual,
            history=self.history,
            seconds=self.seconds,
            factorizations=self.algorithm.factorizations,
            init=self.init,
            theta=theta,
            w=w,
        )


def _check_start(problem, x):
    if np.isfinite(x.F):
        return
    if np.isfinite(x.graph):
        bad = np.flatnonzero(~np.isfinite(problem.loss.value(x.theta)))
        what = f"the loss of stratum number {bad[0]} ({bad.size} in all)" if bad.size else "the regularizer"
    else:
        what = "the graph regularizer"
    raise OptionError(f"init: {what} is not finite at the start. Give init values inside its domain, or leave init out.")


def _warn(solver, result, stalled):
    residual, last = max(result.residual.values()), result.history[-2:]
    way = "raise max_iter, loosen tol, or start from another init"
    if stalled:
        why, way = "no step lowers the objective further in double precision", "loosen tol or rescale the data"
    else:
        why = f"max_iter={solver.max_iter} is reached; the last iteration changed the objective by {last[-1] - last[0]:.1e}"
    warnings.warn(
        f"{type(solver).__name__} stopped with residual {residual:.1e} > tol={solver.tol:g}: {why}. You may {way}.",
        ConvergenceWarning,
        stacklevel=4,
    )


def _blas_threads(K):
    """One BLAS thread for small matrices, where threads only cost."""
    if K >= 500:
        return nullcontext()
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    return threadpool_limits(1, user_api="blas")


def _check(name, value, allowed, good):
    if isinstance(value, bool) or not good(value):
        raise OptionError(f"{name} = {value!r} is out of range: it must be {allowed}.")
