"""Which solver fits a model that names none."""

from strat.solvers.admm import ADMM
from strat.solvers.cone import Cone
from strat.solvers.cone_newton import has_cones
from strat.solvers.mapg import MAPG
from strat.solvers.newton_cg import NewtonCG


def default_solver(loss, learned, regularizer=None):
    """The solver for a loss and a graph that is learned or given.

    Parameters
    ----------
    loss : Oracle
        The loss at the records.
    learned : bool
        Whether W is fitted.
    regularizer : Oracle, optional
        The regularizer, where it is known already.

    Returns
    -------
    Solver
        MAPG where W is learned. For a given graph NewtonCG where the loss has Hessian products and the regularizer a prox in
        closed form, Cone where the prox is a cone program or the loss has kinks, and where it has neither second derivatives
        nor cones, MAPG or, without a gradient, ADMM.
    """
    if learned:
        return MAPG()
    curved, closed = (
        loss.has("hessian_operator"),
        not getattr(getattr(regularizer, "prox", None), "costly", False),
    )
    if curved and closed:
        return NewtonCG()
    # The cones are asked for last, as they are written then.
    if curved or (not (closed and loss.has("value_and_gradient")) and has_cones(loss)):
        return Cone()
    return MAPG() if loss.has("value_and_gradient") else ADMM()


def needs_prox(solver, loss=None):
    """Tell whether a solver needs the prox of the loss, which is bound for those alone.

    Parameters
    ----------
    solver : Solver or None
        None needs nothing yet.
    loss : Oracle, optional
        The loss without a prox; a solver that takes a gradient or a prox needs the latter where it has no gradient.

    Returns
    -------
    bool
        Whether it does.
    """
    need = getattr(solver, "needs", {}).get("loss")
    if isinstance(need, tuple):
        return loss is not None and "prox" in need and not any(loss.has(name) for name in need)
    return need == "prox"
