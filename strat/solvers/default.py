"""Which solver fits a model that names none."""

from strat.solvers.admm import ADMM
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
        For a given graph NewtonCG where the loss has Hessian products (and no prox takes a cone solver: its
        Jacobian takes many), ADMM where it has no gradient; MAPG otherwise.
    """
    costly = getattr(getattr(regularizer, "prox", None), "costly", False)
    if not learned and loss.has("hessian_operator") and not costly:
        return NewtonCG()
    return MAPG() if learned or loss.has("value_and_gradient") else ADMM()


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
