"""A first point inside the loss's domain, for losses that are not finite at zero (rates, precision matrices)."""

import numpy as np

from strat.compiler.program import Program
from strat.errors import NoOracleError, OptionError
from strat.oracles.central_points import central_points, off_edges
from strat.oracles.cone_program import ConeProgram
from strat.oracles.cone_prox import ConeProx
from strat.oracles.prox_newton import NewtonProx
from strat.rules import atoms, text


def first_point(base, records, values, problem, theta, bad):
    """theta (K, n), with a point inside the domain in the `bad` strata, where the loss or its gradient is not finite.

    It is the best one of argmin_z loss(z) + ½‖z − theta‖², where that has a closed form, and the points at which the atoms'
    arguments are about some distance off the ends of their domain. Where all of these are outside it is
    argmin_z loss(z) + regularizer(z) + ½‖z − theta‖², by one cone program of these strata.
    """
    loss, regularizer = problem.loss, problem.regularizer
    near, theta, best = theta, theta.copy(), np.full(len(theta), np.inf)
    arguments = records.arrays, records.strata, records.weight, values
    bound = base.loss_program.bind_records(*arguments, prox=True, smooth=False, constrained=False)
    closed = bound.has("prox") and not isinstance(bound.prox, NewtonProx | ConeProx)
    points = [bound.prox(near, 1.0)] if closed else central_points(loss, near)
    for z in () if getattr(regularizer.prox, "costly", False) else points:
        near = problem.project(z)
        value = np.where(problem.inside(near), loss.value(near) + regularizer.value(near), np.inf)
        better = bad & (value < best)
        theta[better], best[better] = near[better], value[better]
    lost, error = np.flatnonzero(bad & ~(best < np.inf)), None
    if lost.size:
        try:
            penalty = base.regularizer_program.bind_regularizer(values)
            functions = [function.take(lost) for function in [*bound.cones(), *penalty.cones()]]
            program = ConeProgram(len(lost), problem.n, functions, what="the first point")
            theta[lost] = program.solve(np.ones((len(lost), problem.n)), -theta[lost]).theta
            theta = off_edges(loss, problem.project(theta), problem.project)
        except NoOracleError as why:
            error, theta = why, near
        lost = np.flatnonzero(bad & ~problem.inside(theta))
    if lost.size:
        raise _no_point(base, records, values, theta, lost) from error
    return theta


def _no_point(base, records, values, theta, strata):
    """The error where some of these strata have no point, with the first piece and record outside its domain at theta."""
    where = f"stratum {records.strata.labels[strata[0]]!r}"
    for piece in base.loss.args if isinstance(base.loss, atoms.AddExpression) else [base.loss]:
        program = Program(piece, base.data, (), base.loss_program.variables, "the loss")
        found = program.evaluation(records.arrays, records.strata, values)(theta)
        outside = ~np.isfinite(found) & np.isin(records.strata.index, strata)
        if outside.any():
            record = int(np.argmax(outside))
            label = records.strata.labels[records.strata.index[record]]
            where = f"{text(piece, 60)} of record {record} (stratum {label!r})"
            break
    return OptionError(
        f"init: no point was found where the losses of all strata and their gradients are finite. At the last one tried "
        f"the first piece outside its domain is {where}; strata in question: {len(strata)}. Check these records, or give "
        f"init= values inside the loss's domain."
    )
