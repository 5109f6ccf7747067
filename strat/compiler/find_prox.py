"""Which prox a bound program gets: a closed form, Newton's method, a dual method, or a solver for strata."""

from functools import partial

from strat.compiler.data_checks import check_fixed
from strat.compiler.fallback import FallbackProx
from strat.compiler.prox import ProxBuilder
from strat.compiler.record_prox import record_prox
from strat.compiler.rows import NoProx
from strat.compiler.sets import Sets
from strat.oracles.prox_newton import NewtonProx


def find_prox(program, form, assembly, walker, values, constrained=True, solver=None):
    """The prox of a program and why it has no closed form, "" where it has one or a fast method.

    Parameters
    ----------
    program : Program
    form : Form
        Its expression.
    assembly : Assembly
        The form, bound.
    walker : Walker
    values : dict
        Hyperparameters by CVXPY id.
    constrained : bool
        Whether the constraints and attributes must hold; symmetry always does.
    solver : callable, optional
        ``solver()`` makes the prox by a cone solver of a program with data, for want of another.

    Returns
    -------
    prox, str
        None where there is no prox.
    """
    binder, layout = assembly.binder, program.layout
    on_records = assembly.quadratics or any(binder.node_has_data(node) for node in assembly.roots)
    sets = Sets(binder.n)
    # Attributes that need not be held are held where they are free, in closed forms: a loss is steep outside.
    (sets.attributes if constrained or not on_records else sets.symmetries)(program.variables, layout)
    check_fixed(program.constraints, values)
    try:
        for c in program.constraints if constrained else ():
            if c.variables():
                sets.constraint(c, walker, binder, layout)
        if on_records:
            return record_prox(form, assembly, sets, layout, solver), ""
        builder = ProxBuilder(binder, assembly.roots, assembly.linear, sets, layout, assembly.active)
        prox, reason = builder.build(None if program.data else partial(FallbackProx, program, values))
        if not reason:
            return prox, ""
    except NoProx as error:
        prox, reason = None, str(error)
    oracle = assembly.oracle()
    everywhere = not any(node.rule.restricted for node in binder.nodes(assembly.roots))
    smooth = not sets.restrict and oracle.has("hessian_operator")
    if smooth and everywhere:
        return NewtonProx(oracle, sets.transposed), reason
    if prox is not None:
        return NewtonProx(oracle, sets.transposed, prox) if smooth else prox, reason
    try:
        rescue = solver()
    except NoProx as error:
        return NewtonProx(oracle, sets.transposed) if smooth else None, f"{reason}; {error}"
    rescue.box, rescue.value = (sets.low, sets.high), oracle.value
    return NewtonProx(oracle, sets.transposed, rescue=rescue) if smooth else rescue, reason
