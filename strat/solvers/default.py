"""Which solver fits a model that names none."""

from strat.solvers.admm import ADMM
from strat.solvers.cone import Cone
from strat.solvers.cone_newton import has_cones
from strat.solvers.mapg import MAPG
from strat.solvers.newton_cg import NewtonCG


def default_solver(loss, learned, regularizer=None):
    """The solver for a loss at the records and a graph that is learned or given.

    MAPG where W is learned. For a given graph NewtonCG where the loss has Hessian products and the regularizer, where it is
    known already, a prox in closed form, Cone where the prox is a cone program or the loss has kinks, and where it has
    neither second derivatives nor cones, MAPG or, without a gradient, ADMM.
    """
    if learned:
        return MAPG()
    curved = loss.has("hessian_operator")
    closed = not getattr(getattr(regularizer, "prox", None), "costly", False)
    if curved and closed:
        return NewtonCG()
    # The cones are asked for last, as they are written then.
    if curved or (not (closed and loss.has("value_and_gradient")) and has_cones(loss)):
        return Cone()
    return MAPG() if loss.has("value_and_gradient") else ADMM()


def needs_prox(solver, loss=None):
    """Whether a solver (None needs nothing yet) needs the prox of the loss, which is bound for those alone.

    Given the `loss` without a prox, a solver that takes a gradient or a prox needs the latter where it has no gradient.
    """
    need = getattr(solver, "needs", {}).get("loss")
    if isinstance(need, tuple):
        return loss is not None and "prox" in need and not any(loss.has(name) for name in need)
    return need == "prox"
