"""A first point inside the loss's domain, for losses that are not finite at zero (rates, precision matrices)."""

from functools import partial

import cvxpy as cp
import numpy as np

from strat.compiler.binder import Assembly
from strat.compiler.pieces import NoProx, Sets
from strat.compiler.program import Program
from strat.compiler.prox import ProxBuilder
from strat.errors import NoOracleError, OptionError
from strat.oracles.central_points import central_points, off_edges
from strat.oracles.cone_program import ConeProgram
from strat.rules import atoms
from strat.rules.text import text
from strat.solvers.algorithm import PROJECTION


class FirstPoint:
    """A point inside the domain near v, for the strata where the loss or its gradient is not finite at v.

    It is argmin_z loss(z) + regularizer(z) + ½‖z − v‖² in closed form where loss and regularizer have one together. Otherwise
    it is, of the points at which the atoms' arguments are about some distance off the ends of their domain, the best one.
    Where all of these are outside it is the minimum above, with barriers at the ends of the domain, by one cone program of
    these strata.

    Parameters
    ----------
    base : BaseModel
    records : Records
    values : dict
        The model's own hyperparameters, by name.
    problem : JointProblem
        The problem that it is for.
    """

    def __init__(self, base, records, values, problem):
        self.base, self.records, self.values = base, records, values
        self.loss, self.regularizer, self.inside = problem.loss, problem.regularizer, problem.inside

    def __call__(self, theta, bad):
        try:
            prox = self._closed_form()
        except NoProx:
            return self._searched(theta, bad)
        return np.where(bad[:, None], prox(theta, 1.0), theta)

    def _closed_form(self):
        loss, regularizer = self.base.loss_program, self.base.regularizer_program
        records = self.records
        walker, binder, origin = loss.read(self.values, records.arrays, records.strata, records.weight)
        walker.values = walker.values | regularizer.values(self.values)
        whole = Assembly(walker(self.base.loss).reshaped(()), binder, records.weight[origin.order])
        if whole.quadratics or any(node.has_data for node in whole.roots):
            raise NoProx("the loss does not reduce to strata")
        binder.segments = None
        own = Assembly(walker(self.base.regularizer).reshaped(()), binder, None)
        weights = dict(whole.roots)
        for node, w in own.roots.items():
            weights[node] = weights[node] + w if node in weights else w
        sets = Sets(regularizer.variables, loss.layout)
        sets.restrict_to(regularizer, walker, binder)
        return ProxBuilder(binder, weights, whole.linear + own.linear, sets, loss.layout).build()

    def _searched(self, theta, bad):
        """The best central point, or the solution of a cone program where there is none."""
        near, theta, best = theta, theta.copy(), np.full(len(theta), np.inf)
        if not getattr(self.regularizer.prox, "costly", False):
            for z in central_points(self.loss, near):
                near = self.regularizer.prox(z, PROJECTION)
                value = np.where(
                    self.inside(near), self.loss.value(near) + self.regularizer.value(near), np.inf
                )
                better = bad & (value < best)
                theta[better], best[better] = near[better], value[better]
        lost = np.flatnonzero(bad & ~(best < np.inf))
        if lost.size:
            try:
                theta[lost] = self._solved(theta[lost], lost)
            except NoOracleError as error:
                raise self._without_point(near, lost) from error
            theta = off_edges(self.loss, theta, partial(self.regularizer.prox, t=PROJECTION))
            lost = np.flatnonzero(bad & ~self.inside(theta))
        if lost.size:
            raise self._without_point(theta, lost)
        return theta

    def _solved(self, theta, strata):
        """By one cone program of these strata, from the cones of their records and of the regularizer."""
        base, records = self.base, self.records
        program = Program(
            base.loss + barrier(base.loss), base.data, (), base.loss_program.variables, "the loss"
        )
        loss = program.bind_records(records.arrays, records.strata, records.weight, self.values, smooth=False)
        functions = [*loss.cones(), *base.regularizer_program.bind_regularizer(self.values).cones()]
        functions = [function.take(strata) for function in functions]
        program = ConeProgram(len(strata), base.layout.n, functions, what="the first point")
        return functions[-1].inside(program.solve(np.ones(theta.shape), -theta).theta)

    def _without_point(self, theta, strata):
        """The error where some of these strata have no point, with the first piece and record outside its domain at theta."""
        base, records = self.base, self.records
        where = f"stratum {records.strata.labels[strata[0]]!r}"
        for piece in base.loss.args if isinstance(base.loss, atoms.AddExpression) else [base.loss]:
            program = Program(piece, base.data, (), base.loss_program.variables, "the loss")
            values = program.evaluation(records.arrays, records.strata, self.values)(theta)
            outside = ~np.isfinite(values) & np.isin(records.strata.index, strata)
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


def barrier(expression):
    """−Σ log of the distances from the ends of an expression's domain, infinite at them."""
    total = cp.Constant(0.0)
    for constraint in expression.domain:
        if not constraint.variables():
            continue
        if isinstance(constraint, atoms.PSD):
            total -= cp.log_det(constraint.args[0])
        elif isinstance(constraint, atoms.Inequality):
            low, high = constraint.args
            total -= cp.sum(cp.log(high - low))
    return total
