"""A first point inside the loss's domain, for losses that are not finite at zero (rates, precision matrices)."""

import contextlib

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from strat.compiler.bind import Assembly
from strat.compiler.binder import Binder
from strat.compiler.evaluate import Evaluator, leaves
from strat.compiler.prox import NoProx, ProxBuilder
from strat.compiler.sets import Sets
from strat.compiler.symbols import Symbols
from strat.errors import OptionError
from strat.model.export import stratum_terms
from strat.oracles.segments import Segments


class FirstPoint:
    """argmin_z loss(z) + regularizer(z) + ½‖z − v‖² for the strata where the loss is not finite at v.

    In closed form where loss and regularizer have one together; otherwise by one CVXPY solve for each such stratum,
    once, before the first iteration.

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
        out, layout = theta.copy(), self.base.layout
        for k in np.flatnonzero(bad):
            variables, objective, constraints = stratum_terms(self.base, self.records, self.values, k)
            v = layout.unpack(theta[[k]])
            near = sum(cp.sum_squares(x - v[name][0]) for name, x in variables.items())
            problem = cp.Problem(cp.Minimize(objective + 0.5 * near), constraints)
            with contextlib.suppress(cp.SolverError):
                problem.solve()
            values = {name: x.value for name, x in variables.items()}
            if any(value is None for value in values.values()):
                raise OptionError(
                    f"init: no point was found where the loss of stratum {self.records.strata.labels[k]!r} is finite "
                    f"({int((self.records.strata.index == k).sum())} records, solver status {problem.status}). "
                    f"Check its records, or give init= values inside the loss's domain."
                )
            dense = {
                name: (a.toarray() if sp.issparse(a) else np.asarray(a))[None] for name, a in values.items()
            }
            out[k] = layout.pack(dense)[0]
        return out
