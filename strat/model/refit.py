"""Warm-started refits: one model and one set of records, for many constants."""

from collections import namedtuple

from strat.model.bound_model import BoundModel
from strat.model.fit import check_options, solver_for
from strat.solvers.starts import solve

#: A problem, the solver's result, and its parameters (K, n) and weights; with a single stratum where all share parameters.
Fit = namedtuple("Fit", "problem result theta w")


class Refits:
    """Fits of one model to one set of records, read once, for many constants; a refit binds only what depends on changed ones.

    The model's constants hold where a refit gives no others; its callback and checkpoint are not used, and `tol` goes before
    that of its solver. Other arguments are those of ``fit``, and ``nodes`` of `BoundModel`.
    """

    def __init__(self, model, data, strata, sample_weight=None, nodes=None, tol=None):
        check_options(model)
        self.model, self.tol = model, tol
        self.bound_model = BoundModel(model, tuple(data), strata, sample_weight, nodes)

    def fit(self, theta=None, w=None, time_limit=None, **constants):
        """A `Fit` from theta and w, by default from the package's own start, for `constants` of ``BoundModel.problem``."""
        problem = self.bound_model.problem(**constants)
        if problem.learned:
            problem.graph_regularizer.validate(joint=True)
        solver = solver_for(self.model, problem)
        solver.tol = solver.tol if self.tol is None else self.tol
        solver.callback, solver.checkpoint, solver.patience, solver.verbose = None, None, None, False
        if time_limit is not None and (solver.time_limit is None or time_limit < solver.time_limit):
            solver.time_limit = time_limit
        start = None if theta is None else {"theta": theta}
        # Without w the start is W0, or the best graph for theta where W0 is infeasible.
        if start is not None and w is not None and problem.feasible(w):
            start["w"] = w
        result = solve(problem, solver, start, random_state=self.model.random_state)
        if result.status == "interrupted":  # no callback is left that could have stopped it
            raise KeyboardInterrupt
        return Fit(problem, result, result.theta, result.w)
