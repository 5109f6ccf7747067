"""Warm-started refits: one model and one set of records, for many constants."""

from dataclasses import dataclass

from strat.model.bound_model import BoundModel
from strat.model.fit import check_options, solver_for
from strat.problem.joint_problem import JointProblem
from strat.solvers import Result
from strat.solvers.starts import solve


@dataclass
class Fit:
    """A problem and the solver's result; both have a single stratum where all share their parameters."""

    problem: JointProblem
    result: Result

    @property
    def theta(self):
        """The parameters, shape (K, n)."""
        return self.result.theta

    @property
    def w(self):
        """The edge array of the weights."""
        return self.result.w


class Refits:
    """Fits of one model to one set of records, for many constants.

    The records are read and the loss is bound once; a refit binds again only what depends on constants that changed,
    and may start from the solution for similar constants.

    Parameters
    ----------
    model : StratifiedModel
        Its constants hold where a refit gives no others; it is not changed, and its callback and checkpoint are not used.
    data, strata, sample_weight
        The records, as ``fit`` takes them.
    nodes : list, optional
        The strata, for a model without a graph; by default the labels seen.
    tol : float, optional
        Tolerance, in place of the solver's.

    Attributes
    ----------
    bound_model : BoundModel
        Records, strata, edges; ``bound_model.held_out(data, strata)`` binds records to score on.
    """

    def __init__(self, model, data, strata, sample_weight=None, nodes=None, tol=None):
        check_options(model)
        self.model, self.tol = model, tol
        self.bound_model = BoundModel(model, tuple(data), strata, sample_weight, nodes)

    def fit(self, theta=None, w=None, time_limit=None, **constants):
        """Fit once more.

        Parameters
        ----------
        theta : ndarray, shape (K, n), optional
            Parameters to start from; the package's own start by default.
        w : edge array, optional
            Weights to start from where W is learned and they are in the domain of h; W0 by default.
        time_limit : float, optional
            Seconds, where they are less than the solver's.
        **constants
            ``scale``, ``values``, ``w0`` and ``graph_regularizer`` as ``BoundModel.problem`` takes them.

        Returns
        -------
        Fit

        Raises
        ------
        KeyboardInterrupt
            Where Ctrl-C ended the fit, so that it also ends the loop of refits.
        """
        problem = self.bound_model.problem(**constants)
        if problem.learned:
            problem.graph_regularizer.validate(joint=True)
        solver = solver_for(self.model, problem)
        solver.set_params(callback=None, checkpoint=None, patience=None, verbose=False)
        if self.tol is not None:
            solver.set_params(tol=self.tol)
        if time_limit is not None and (solver.time_limit is None or time_limit < solver.time_limit):
            solver.set_params(time_limit=time_limit)
        start = None if theta is None else {"theta": theta}
        # Without w the start is W0, or the best graph for theta where W0 is infeasible.
        if start is not None and w is not None and problem.feasible(w):
            start["w"] = w
        result = solve(problem, solver, start, random_state=self.model.random_state)
        if result.status == "interrupted":  # no callback is left that could have stopped it
            raise KeyboardInterrupt
        return Fit(problem, result)
