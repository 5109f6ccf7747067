"""MAPG: monotone accelerated proximal gradient for the joint problem."""

from collections.abc import Callable
from numbers import Real
from os import PathLike
from typing import Any

from strat.solvers import edge
from strat.solvers.base import Solver
from strat.solvers.block_descent import BlockDescent
from strat.solvers.cone_newton import ConeNewton, needs_cones
from strat.solvers.fixed_steps import FixedSteps
from strat.solvers.joint_steps import JointSteps

# Edges a stratum, with more of which a cone program of the whole graph costs more than many proxes.
DENSE = 20


def _is_step(step):
    if step is None:
        return True
    step = tuple(step) if isinstance(step, (tuple, list)) else ()
    return len(step) == 2 and all(isinstance(a, Real) and 0 < a < float("inf") for a in step)


class MAPG(Solver):
    """Monotone accelerated proximal gradient in parameters and edge weights together.

    Without `step` it finds its own steps, never raises the objective, and takes a Newton step in theta every few
    iterations where the loss has second derivatives. Where the regularizer has no prox in closed form, it fits theta by
    cone programs and W in turn, as ``AlternatingMinimization``, unless the graph is dense. With
    ``step=(alpha_x, alpha_y)`` it is Algorithm 1 of the paper, verbatim.

    Parameters
    ----------
    step : tuple of two floats, optional
        The paper's fixed steps: alpha_x of the step from x, alpha_y of the step from the extrapolated point.
    tol : float
        Stop when both residuals (theta, W) are at most tol; 0 never stops.
    max_iter : int
        Most iterations.
    {options}

    References
    ----------
    H. Li and Z. Lin, "Accelerated proximal gradient methods for nonconvex programming", NeurIPS 2015.

    Examples
    --------
    >>> from strat.solvers import MAPG
    >>> MAPG(step=(1e-3, 1e-4), max_iter=100)
    MAPG(max_iter=100, step=(0.001, 0.0001))
    """

    edge = edge
    _ranges = {**Solver._ranges, "step": ("two numbers (alpha_x, alpha_y) above 0, or None", _is_step)}
    needs = {"loss": "value_and_gradient", "regularizer": "prox"}

    def __init__(
        self,
        step: Any = None,
        *,
        tol: float = 1e-6,
        max_iter: int = 5000,
        patience: int | None = None,
        time_limit: float | None = None,
        callback: Callable | None = None,
        checkpoint: str | PathLike | None = None,
        verbose: bool = False,
    ) -> None:
        self.step = step
        super().__init__(tol=tol, max_iter=max_iter, patience=patience, time_limit=time_limit)
        self.callback, self.checkpoint, self.verbose = callback, checkpoint, verbose

    def _algorithm(self, problem, theta, w):
        if self.step is not None:
            return FixedSteps(problem, theta, w, self.step)
        dense = problem.loss.has("value_and_gradient") and problem.edges.mask.size > DENSE * problem.K
        if not needs_cones(problem) or (problem.learned and dense):
            return JointSteps(problem, theta, w, self.tol)
        if problem.learned:
            return BlockDescent(problem, theta, w, self.tol)
        return ConeNewton(problem, theta, w)
