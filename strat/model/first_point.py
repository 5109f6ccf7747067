"""A first point inside the loss's domain, for losses that are not finite at zero (rates, precision matrices)."""

import numpy as np

from strat.compiler.bind import Assembly
from strat.compiler.binder import Binder
from strat.compiler.evaluate import Evaluator, leaves
from strat.compiler.prox import NoProx, ProxBuilder
from strat.compiler.sets import Sets
from strat.compiler.symbols import Symbols
from strat.errors import NoOracleError, OptionError
from strat.oracles.cone_program import ConeProgram
from strat.oracles.segments import Segments


class FirstPoint:
    """argmin_z loss(z) + regularizer(z) + ½‖z − v‖² for the strata where the loss is not finite at v.

    In closed form where loss and regularizer have one together; otherwise by one cone program of all such strata, once,
    before the first iteration.

    Parameters
    ----------
    base : BaseModel
    records : Records
    values : dict
        The model's own hyperparameters, by name.
    """

    def __init__(self, base, records, values):
        self.base, self.records, self.values = base, records, values

    def __call__(self, theta, bad):
        try:
            prox = self._closed_form()
        except NoProx:
            return self._solved(theta, bad)
        return np.where(bad[:, None], prox(theta, 1.0), theta)

    def _closed_form(self):
        loss, regularizer = self.base.loss_program, self.base.regularizer_program
        records = self.records
        strata, weight = records.strata, records.weight
        order = strata.order[weight[strata.order] > 0]
        symbols = Symbols()
        values = {**loss.values(self.values), **regularizer.values(self.values)}
        walker = loss._walker(symbols, values)
        evaluator = Evaluator(symbols, leaves(self.base.data, records.arrays, order))
        segments = Segments(strata.index[order], strata.K)
        binder = Binder(symbols, evaluator, loss._coordinates(), loss.layout.n, segments)
        whole = Assembly(walker(self.base.loss).reshaped(()), binder, weight[order])
        if whole.quadratics or any(binder.node_has_data(node) for node in whole.roots):
            raise NoProx("the loss does not reduce to strata")
        binder.segments = None
        own = Assembly(walker(self.base.regularizer).reshaped(()), binder, None)
        weights = dict(whole.roots)
        for node, w in own.roots.items():
            weights[node] = weights[node] + w if node in weights else w
        sets = Sets(binder.n)
        sets.attributes(loss.variables, loss.layout)
        for c in self.base.constraints:
            sets.constraint(c, walker, binder, loss.layout)
        return ProxBuilder(binder, weights, whole.linear + own.linear, sets, loss.layout).build()

    def _solved(self, theta, bad):
        """By one cone program of all these strata, from the cones of their records and of the regularizer."""
        base, records, strata = self.base, self.records, np.flatnonzero(bad)
        loss = base.loss_program.bind_records(
            records.arrays, records.strata, records.weight, self.values, smooth=False
        )
        try:
            functions = [*loss.cones(), *base.regularizer_program.bind_regularizer(self.values).cones()]
            functions = [function.take(strata) for function in functions]
            program = ConeProgram(len(strata), base.layout.n, functions, what="the first point")
            point = program.solve(np.ones((len(strata), base.layout.n)), -theta[strata]).theta
        except NoOracleError as error:
            raise self._without_point(strata) from error
        out = theta.copy()
        out[strata] = functions[-1].inside(point)
        lost = strata[~np.isfinite(loss.value(out)[strata])]
        if lost.size:
            raise self._without_point(lost)
        return out

    def _without_point(self, strata):
        """The error where some of these strata have no point, named after the first."""
        labels, index = self.records.strata.labels, self.records.strata.index
        count = int((index == strata[0]).sum())
        return OptionError(
            f"init: no point was found where the losses of all strata are finite: the first of {len(strata)} to look at is "
            f"{labels[strata[0]]!r} ({count} records). Check its records, or give init= values inside the loss's domain."
        )
