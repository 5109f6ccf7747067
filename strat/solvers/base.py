"""What all solvers share: options, and the oracles they need."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from numbers import Integral, Real
from os import PathLike
from timeit import timeit

import numpy as np
from scipy.linalg.lapack import dpotrf
from sklearn.base import BaseEstimator

from strat.errors import NoOracleError, OptionError
from strat.oracles.clock import within
from strat.solvers.progress import Progress
from strat.solvers.run import Run

_WORDS = {"value_and_gradient": "gradient", "hessian_operator": "Hessian product", "cones": "cone program"}
_WAYS = {
    "loss": (
        "Leave out solver=, or fit a given graph with strat.Cone() or learn it with strat.AlternatingMinimization(), which take "
        "kinks as they are; or smooth the loss (smoothing=1e-3 on the BaseModel)"
    ),
    "smooth": "Give strat.MAPG(), which needs no second derivatives",
    "regularizer": "Merge pieces that share a variable, drop one, or write one function with a known prox",
}

#: Descriptions of the options that all solvers have, in place of "{options}" in their docstrings.
_OPTIONS = """patience : int, optional
        Stop when the validation loss has not improved for this many iterations, and return the best iterate.
    time_limit : float, optional
        Stop this many seconds after the call began; fits that only give a start count, too.
    callback : callable, optional
        Called as ``callback(state)`` after every iteration; returning True stops.
    checkpoint : path, optional
        File from which an interrupted fit goes on. Only stopping rules may differ from those of the interrupted fit. The file is
        removed when the fit is done.
    verbose : bool
        Report progress through ``logging.getLogger("strat")``, and as a bar on a terminal."""


@dataclass(kw_only=True, eq=False, repr=False)
class Solver(BaseEstimator):
    """Base class: a subclass has the options as fields, `needs`, and `_algorithm(problem, theta, w)`.

    `needs` names the oracle that each role must have, or several, one of which is enough. `ways` says what to do where the
    oracle of a role is missing, if the advice differs from that of all solvers. `learns_graphs` is False where W is not fitted.
    If a solver `follows_edges`, its `_algorithm` takes a `way` to continue where its own steps fail, such as at the edge of the
    loss's domain: by cone programs, "model" or "records" (`ConeNewton`), or by "turns" in theta and W, if its algorithm counts
    in `apart` how often theta is far behind W. A subclass with other defaults or more options must be a dataclass, too, as
    scikit-learn reads the signature of its `__init__`.
    """

    needs = {}
    ways = {}
    learns_graphs = True
    follows_edges = False
    _ranges = {
        "tol": ("a number of at least 0", lambda v: isinstance(v, Real) and v >= 0),
        "max_iter": ("a whole number of at least 0", lambda v: isinstance(v, Integral) and v >= 0),
        "patience": ("a whole number above 0", lambda v: v is None or (isinstance(v, Integral) and v > 0)),
        "time_limit": ("a number of seconds", lambda v: v is None or (isinstance(v, Real) and v >= 0)),
        "callback": ("a function of the state", lambda v: v is None or callable(v)),
    }

    tol: float = 1e-6
    max_iter: int = 1000
    patience: int | None = None
    time_limit: float | None = None
    callback: Callable | None = None
    checkpoint: str | PathLike | None = None
    verbose: bool = False

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        cls.__doc__ = cls.__doc__ and cls.__doc__.replace("{options}", _OPTIONS)

    def validate(self):
        """Check the options.

        Raises
        ------
        OptionError
            If one is out of its range.
        """
        for name, (allowed, good) in self._ranges.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not good(value):
                raise OptionError(f"{name} = {value!r} is out of range: it must be {allowed}.")

    def _check(self, problem):
        """Check that the solver fits problems of this kind, and that the problem has the oracles it needs."""
        if problem.learned and not self.learns_graphs:
            raise OptionError(
                f"solver: {type(self).__name__} fits theta for a given graph, but {problem.graph_regularizer!r} learns W. Use "
                f"strat.MAPG() or strat.AlternatingMinimization(), or give strat.FixedGraph()."
            )
        for role, names in self.needs.items():
            oracle, names = getattr(problem, role), names if isinstance(names, tuple) else (names,)
            if any(oracle.has(name) for name in names):
                continue
            word = " or the ".join(_WORDS.get(name, name) for name in names)
            why = oracle.missing(names[-1]) if hasattr(oracle, "missing") else f"the {role} has none."
            smooth = role == "loss" and oracle.has("value_and_gradient")
            ways = self.ways.get(role) or _WAYS["smooth" if smooth else role]
            raise NoOracleError(f"{type(self).__name__} needs the {word} of the {role}, but {why}\n{ways}.")

    def _run(self, problem, theta, w, *, score=None, fingerprint="", init="given", started=None):
        """Solve a JointProblem from theta (K, n) and the edge array w, a start named `init`; return a Result.

        ``score(theta)`` is the mean validation loss that `patience` watches. `fingerprint` identifies declaration, constants,
        data and graph in a checkpoint. The whole call began at `started`, by ``time.perf_counter()``, or begins now.
        """
        self.validate()
        self._check(problem)
        if self.patience is not None and score is None:
            raise OptionError("patience watches the validation loss: give fit validation=(X, Y, z), or None.")
        # Trial points far away may overflow; they are rejected, as F is infinite there.
        far = np.errstate(over="ignore", invalid="ignore")
        progress = Progress(type(self).__name__, self.max_iter, self.verbose)
        with _blas_threads(problem), far, progress, within(self.time_limit, started):
            return Run(self, problem, theta, w, score, fingerprint, init, progress, started).go()


def _blas_threads(problem):
    """One BLAS thread unless more are faster for large dense matrices: waiting for busy cores costs a factor of ten."""
    one = partial(_thread_pools().limit, limits=1, user_api="blas")
    if problem.learned and problem.K >= 2000 and not problem.edges.sparse:
        seconds = partial(timeit, partial(dpotrf, np.eye(1000)), number=3)  # of Cholesky factorisations now
        together = seconds()
        with one():
            alone = seconds()
        return nullcontext() if together < alone else one()
    return one()


@cache
def _thread_pools():
    """The BLAS libraries of this process; finding them takes as long as a small fit."""
    from threadpoolctl import ThreadpoolController  # of scikit-learn

    return ThreadpoolController()
