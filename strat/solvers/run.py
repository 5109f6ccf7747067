"""The run loop: iterations, records and stops."""

import time
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from strat.errors import ConvergenceWarning, NoOracleError
from strat.oracles.base import hessian_blocks
from strat.oracles.centring import Centring, free_parameters
from strat.oracles.clock import Lost, OutOfTime, seconds_left
from strat.solvers.algorithm import has_cones
from strat.solvers.checkpoint import Checkpoint
from strat.solvers.result import Result
from strat.solvers.units import Units

#: An objective below this has no minimum. Not far below, squares would leave the range of floating point.
LOWEST = -1e130
#: One that fell below 0 by this many times its size at the start, and that no step lowers further, seems unbounded too.
FALLEN = 1e6
#: Options that may differ in a resumed run: they only say when it ends and what it reports.
STOPS = ("tol", "max_iter", "patience", "time_limit", "callback", "checkpoint", "verbose")
#: Iterations without a visible fall of F (or of the residual to NEARER times its least) that end a fit; with an exact model.
IDLE, IDLE_EXACT, NEARER = 500, 2, 0.9
#: What a checkpoint holds of the loop itself.
SAVED = ("iteration", "history", "times", "least", "fallen", "best_theta", "best_w")
SAVED += ("best_key", "best_iteration", "moved_to")
SLOW = 32  # iterations, a power of two, after which a fit may be stuck at the edge of the loss's domain
APART = 3  # iterations with theta far behind a learned W, after which both are minimised in turn
WRITTEN = 5_000_000  # most numbers in the records, or in the model's blocks, for which a stuck fit may try their cone program
HIDDEN = 1e-6  # if a free intercept leaves less than this share of a parameter's curvature, the residual does not show it
NEAR = 1e-6  # a step of this length, relative to theta, leads out of the domain at its edge


@dataclass
class State:
    """What a callback sees after an iteration: theta (K, n), w an edge array, and a dict of residuals.

    The residual is None where the solver only knows that it is above the tolerance.
    """

    iteration: int
    objective: float
    residual: dict
    theta: np.ndarray
    w: np.ndarray
    seconds: float
    factorizations: int


class Run:
    """One run: the loop, its records and its stops."""

    seconds = property(lambda self: self.before + time.perf_counter() - self.started)

    def __init__(self, solver, problem, theta, w, score, fingerprint, init, progress, started=None):
        self.solver, self.problem, self.init, self.progress = solver, problem, init, progress
        self.score = score if solver.patience is not None else None
        self.units = Units(problem, theta)
        steps = {name: value for name, value in sorted(vars(solver).items()) if name not in STOPS}
        parts = [type(solver).__name__, steps, init, self.score is not None, fingerprint]
        self.checkpoint = Checkpoint(solver.checkpoint, [*parts, self.units.unit, self.units.worth])
        self.started, self.before = time.perf_counter() if started is None else started, 0.0
        self.algorithm = solver._algorithm(self.units.problem, self.units.inside(theta), w)
        self.way, self.earlier, self.moved_to, self.lost = None, None, None, None
        self.iteration, self.history, self.times = 0, [self._objective()], [self.seconds]
        self.best_theta, self.best_w, self.best_key, self.best_iteration = None, None, np.inf, 0
        # The least residual, and the last iteration in which it or the objective fell.
        self.least, self.fallen = np.inf, 0
        self._keep_best()
        saved = self.checkpoint.load()
        if saved is not None:
            try:
                self._restore(saved)
            except (KeyError, ValueError, TypeError) as error:
                raise self.checkpoint.refusal(f"it has no {error}") from error

    def go(self):
        """Iterate until a stop."""
        solver = self.solver
        status = "time_limit" if seconds_left() <= 0 else None
        if self.iteration >= solver.max_iter or self.algorithm.stalled:
            status = "max_iter"
        try:
            while status is None:
                self.algorithm.step()
                self.iteration += 1
                self.history.append(self._objective())
                self.times.append(self.seconds)
                self._keep_best()
                status = self._after_iteration()
                if status is None:
                    self.checkpoint.save(self._state)
        except KeyboardInterrupt:
            status = "interrupted"
        except OutOfTime:
            status = "time_limit"
        except NoOracleError:
            if not (self.way or self.iteration):
                raise
            status, self.algorithm.stalled = "max_iter", True  # the point before is the best there is
        except Lost as error:
            status, self.lost = "interrupted", error
        state = None
        with suppress(Lost):  # then the last state that was written stays
            state = self.checkpoint.path and self._state()  # taken now, as the certificate's proxes change it
        result = self._result(status)
        if result.status in ("converged", "early_stopped"):
            self.checkpoint.remove()
        elif state is not None:
            self.checkpoint.save(lambda: state, force=True)
        if self.lost is not None:
            result.notes.append(f"{self.lost}; this is the best point before that")
            ConvergenceWarning.warn(f"{type(solver).__name__}: {result.notes[-1]}.")
        if result.status == "max_iter":
            _warn(solver, result, self.algorithm)
        return result

    def _after_iteration(self):
        solver, algorithm = self.solver, self.algorithm
        residual = algorithm.residual(solver.tol)
        seconds = self.seconds
        point = self._theta(), algorithm.x.w
        state = State(self.iteration, self._objective(), residual, *point, seconds, algorithm.factorizations)
        left = np.inf if residual is None else max(residual.values())
        falls = self.history[-2] - self.history[-1] > algorithm.x.noise * self.units.worth
        if left < NEARER * self.least or falls or not algorithm.monotone:
            self.least, self.fallen = min(left, self.least), self.iteration
        if solver.tol and self.iteration - self.fallen >= (IDLE_EXACT if algorithm.exact else IDLE):
            algorithm.stalled = True
        if self.way == "turns" and algorithm.x.objective < -FALLEN * (1 + abs(self.earlier.x.objective)):
            algorithm.stalled = True  # steps in turn would take long to fall below LOWEST
        status, small, last = None, self._converged(residual), self.iteration >= solver.max_iter
        if solver.callback is not None and solver.callback(state):
            status = "interrupted"
        elif (small or algorithm.stalled) and not last and self._outgrown(point[0]):
            self._change_units(*point)
        elif small and not self._hidden():
            status = "converged"
        elif self.score is not None and self.iteration - self.best_iteration >= solver.patience:
            status = "early_stopped"
        elif last or algorithm.diverged or self._objective() < LOWEST:
            status = "max_iter"
        elif way := "model" if small else self._stuck():
            self._go_on_by(way)
        elif algorithm.stalled:
            status = "max_iter"
        elif seconds_left() <= 0:
            status = "time_limit"
        self.progress.update(state, last=status is not None)
        return status

    def _hidden(self):
        """Whether columns are so far from 0 that their share of the residual is lost in that of the intercept."""
        problem, theta = self.units.problem, self.algorithm.x.theta
        if not (self.problem.raw and self._may_go_on_by("model")):
            return False
        free = free_parameters(problem.regularizer.cones(), problem.n)
        return Centring(hessian_blocks(problem.loss, theta).mean(axis=0), free).left < HIDDEN

    def _stuck(self):
        """How to continue: by "turns", or by cone programs after a stall, after many iterations, or at the edge of a domain.

        The last two are checked ever more rarely. Between narrow smoothed kinks, quadratic models are no better than steps.
        """
        algorithm, loss, ways = self.algorithm, self.problem.loss, ()
        doubled = self.iteration >= SLOW and self.iteration & (self.iteration - 1) == 0
        given, unsure = not self.problem.learned, algorithm.slow or doubled
        often = 0 if hasattr(algorithm, "program") else SLOW  # steps of cone programs are expensive
        late = doubled and given and self.iteration > often and self.way in (None, "model")
        if algorithm.stalled or (late and not any(part.kinked_rows for part in getattr(loss, "parts", ()))):
            ways = ("model", "records")
        elif algorithm.apart > APART * self.problem.learned and self.way is None:
            return "turns"
        elif late or algorithm.endless or (unsure and _at_edge(self.units.problem, algorithm.x)):
            ways = ("records",)
        return next((way for way in ways if self._may_go_on_by(way)), None)

    def _may_go_on_by(self, way):
        """Whether cone programs of the losses' quadratic model, or of the records, can be written and are still untried."""
        problem, loss = self.units.problem, self.problem.loss
        if not self.solver.follows_edges or self.way == "records":
            return False
        if way == "model":
            tried = self.way == "model" or getattr(self.algorithm, "program", None) is not None
            known = loss.has("hessian_operator") and problem.K * problem.n**2 <= WRITTEN
            return known and not tried and has_cones(problem.regularizer)
        small = getattr(getattr(loss, "cones", None), "size", 0) <= WRITTEN
        return small and has_cones(problem.loss) and has_cones(problem.regularizer)

    def _go_on_by(self, way):
        """Continue with an algorithm that needs no small steps or, for "records", no derivatives."""
        self.earlier = self.earlier or self.algorithm
        x, work = self.algorithm.x, self.algorithm.factorizations
        self.algorithm = self.solver._algorithm(self.units.problem, x.theta, x.w, way)
        self.algorithm.extra_factorizations += work
        self.way = way

    def _outgrown(self, theta):
        """Whether the loss is far from that at the start, as after a start next to a pole, and other units suit it."""
        units = self.units
        return units.outgrown(self.algorithm.x) and units.worth != Units(self.problem, theta, True).worth

    def _change_units(self, theta, w):
        """Continue in the units of a point where the present ones are outgrown."""
        work, self.moved_to = self.algorithm.factorizations, theta
        self.units = Units(self.problem, theta, fitted=True)
        self.algorithm = self.solver._algorithm(self.units.problem, self.units.inside(theta), w)
        self.algorithm.extra_factorizations += work
        self.way, self.earlier, self.least = None, None, np.inf

    def _converged(self, residual):
        """Whether the residual is small, and the last iteration changed F little relative to its size and its change so far.

        Where the loss has huge gradients, as at a bound next to a pole, the relative residual is small far from any
        solution, and where the data are tiny it is small everywhere. The objective still falls there.
        """
        if residual is None or max(residual.values()) > self.solver.tol:
            return False
        if self.algorithm.exact:
            return True
        start, before, now = (F / self.units.worth for F in (self.history[0], *self.history[-2:]))
        moved = before - now if self.algorithm.monotone else abs(before - now)
        return moved <= 100 * self.solver.tol * (min(1.0, abs(start - now)) + abs(now))

    def _keep_best(self):
        """Remember the iterate with the lowest validation loss; without one, the lowest objective."""
        x = self.algorithm.x
        if self.score is None and self.algorithm.monotone:
            return
        key = self.score(self._theta()) if self.score is not None else self._objective()
        if key < self.best_key or self.best_theta is None:
            self.best_theta, self.best_w = self._theta(), x.w.copy()
            self.best_key, self.best_iteration = key, self.iteration

    def _objective(self):
        """F at the iterate, in the user's units."""
        return self.algorithm.x.objective * self.units.worth

    def _theta(self):
        """A copy of the iterate's parameters in the user's units."""
        return self.units.outside(self.algorithm.x.theta)

    def _state(self):
        state = {f"algorithm_{name}": value for name, value in self.algorithm.state().items()}
        state |= {"seconds": self.seconds, "way": self.way or ""}
        return state | {name: getattr(self, name) for name in SAVED if getattr(self, name) is not None}

    def _restore(self, saved):
        prefix = "algorithm_"
        if "moved_to" in saved:
            self._change_units(saved["moved_to"], self.algorithm.x.w)
        if way := str(saved["way"]):
            self._go_on_by(way)
        self.algorithm.restore({k[len(prefix) :]: v for k, v in saved.items() if k.startswith(prefix)})
        self.before = float(saved["seconds"])
        for name in saved.keys() & set(SAVED):
            value = saved[name]
            setattr(self, name, value if name in ("best_theta", "best_w", "moved_to") else value.tolist())
        if way := self._stuck():  # the run that wrote this state may have ended before it checked this
            self._go_on_by(way)

    def _result(self, status):
        earlier, x = self.earlier, self.algorithm.x
        if status == "max_iter" and earlier and earlier.x.objective - x.objective <= x.noise:
            self.algorithm = earlier  # its residual is that of F itself
        x = self.algorithm.x
        theta, w = self._theta(), x.w.copy()
        best_counts = self.score or status == "interrupted" or not x.objective < np.inf
        if best_counts and self.best_theta is not None:
            if status == "converged" and self.best_iteration < self.iteration:
                status = "early_stopped"
            theta, w = self.best_theta, self.best_w
        residual = {"theta": np.inf, "W": np.inf}
        with suppress(OutOfTime, Lost, NoOracleError):
            w, residual = self._with_formula(theta, w)
        parts = self._parts(theta, w)
        if status == "max_iter" and self.iteration and self._converged(residual):
            status = "converged"  # the algorithm had not measured the residual
        reached = status, self.iteration, sum(parts.values()), parts, residual, self.history
        work = self.seconds, self.algorithm.factorizations
        return Result(*reached, *work, self.init, theta=theta, w=w, history_seconds=self.times)

    def _parts(self, theta, w):
        """The terms of the objective, as they were last computed where the records are lost."""
        if self.lost is None:
            return self.problem.parts(theta, w)
        x, rest = self.algorithm.x, self.algorithm.x.graph_oracle
        names = ("loss", "regularizer", "laplacian", "graph")
        parts = {name: getattr(x, name) * self.units.worth for name in names}
        return parts if rest is None else {**parts, "graph": parts["graph"] + rest.rest() * self.units.worth}

    def _with_formula(self, theta, w):
        """(w, residual), with the best W for theta where it has a closed form and the residual stays small enough."""
        problem, inside = self.problem, self.units.inside(theta)
        residual = self.algorithm.certificate(inside, w)
        if getattr(problem.graph_regularizer._oracle_class, "closed_form", False):
            best = problem.graph_oracle().minimize(problem.half_distances(theta))[0]
            left = self.algorithm.certificate(inside, best)
            if max(left.values()) <= max(self.solver.tol, *residual.values()):
                return best, left
        return w, residual


def _at_edge(problem, x):
    """Whether short steps downhill from a point leave the domain of a loss whose records' cones can be written."""
    loss = problem.loss
    known = loss.restricted and loss.has("cones") and loss.has("value_and_gradient")
    if not known or getattr(loss.cones, "size", 0) > WRITTEN:
        return False
    slope = x.differentiate().theta_gradient
    size = np.linalg.norm(x.theta, axis=1)
    size = np.where(size > 0, size, size.mean() or 1.0)
    lengths = NEAR * size / (np.linalg.norm(slope, axis=1) + 1e-300)
    try:
        ahead = problem.prox(x.theta - lengths[:, None] * slope, lengths)
    except NoOracleError:  # without the prox, the edge cannot be tested
        return False
    # The cones are checked last, as checking them writes them.
    return bool(np.isinf(loss.value(ahead)).any()) and has_cones(loss)


def _warn(solver, result, algorithm):
    last, stalled = result.history[-2:], algorithm.stalled or result.iterations < solver.max_iter
    why = f"max_iter={solver.max_iter} is reached; the last iteration changed the objective by {last[-1] - last[0]:.1e}"
    way = "raise max_iter, loosen tol, or start from another init"
    if algorithm.diverged:
        after = f"the objective is infinite after {result.iterations} iterations"
        why = f"the steps are too long: {after}, and the best iterate is returned"
        way = "give shorter steps, or leave step out: then they are found as needed"
    elif last[-1] < LOWEST or (stalled and last[-1] < -FALLEN * (1 + abs(result.history[0]))):
        why = f"the objective has fallen to {last[-1]:.1e} and seems unbounded below"
        way = "check the signs in the loss, and give it a regularizer or constraints"
    elif stalled:
        why = "no step lowers the objective further in double precision"
        way = "loosen tol, if the residual is good enough"
    residual = max(result.residual.values())  # may be below tol where F still falls
    left = f"residual {residual:.1e} {'>' if residual > solver.tol else '<='} tol={solver.tol:g}"
    ConvergenceWarning.warn(f"{type(solver).__name__} stopped with {left}: {why}. You may {way}.")
