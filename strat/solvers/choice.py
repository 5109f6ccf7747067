"""Which solver fits a model that names none."""

from strat.solvers.mapg import MAPG
from strat.solvers.newton_cg import NewtonCG


def default_solver(loss, learned):
    """The solver for a loss and a graph that is learned or given.

    Parameters
    ----------
    loss : Oracle
        The loss at the records.
    learned : bool
        Whether W is fitted.

    Returns
    -------
    Solver
        For a given graph NewtonCG where the loss has Hessian products; MAPG otherwise.
    """
    if not learned and loss.has("hessian_operator"):
        return NewtonCG()
    return MAPG()
