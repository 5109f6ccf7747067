"""The prox of a loss of records that has no other: one cone program a stratum, from all of its records."""

import cvxpy as cp
import numpy as np
from scipy import sparse

from strat.compiler.convexity import numbers, rebuilt
from strat.compiler.fallback import FallbackProx, attribute_constraints
from strat.compiler.rows import NoProx
from strat.rules import atoms

#: Records of all strata together up to which cone programs are written.
LIMIT = 20_000


class StratumProgram:
    """What ``FallbackProx`` asks of a program, for the records of one stratum: the data are numbers in it."""

    def __init__(self, expression, constraints, hyperparameters, like):
        self.expression, self.constraints, self.hyperparameters = expression, constraints, hyperparameters
        self.variables, self.layout, self.what = like.variables, like.layout, like.what


class RecordFallback:
    """argmin_z Σ_records f(z) + ‖z − v‖²/(2t) over the constraints, one interior-point solve a stratum.

    Parameters
    ----------
    program : Program
        With data.
    values : dict
        Hyperparameters by CVXPY id.
    arrays : list of arrays
        The records' data, as given.
    order : (N,) int ndarray
        The records that count, sorted by stratum.
    weight : (N,) ndarray
        The weights of these.
    segments : Segments
        Their strata.
    constrained : bool
        Whether the constraints hold; attributes always do.

    Attributes
    ----------
    box : (low, high) or None
        Bounds, which a solver keeps but for rounding: here they hold exactly.
    value : callable or None
        Σ f, to keep the result in its domain in spite of rounding.
    """

    kind = "Clarabel, one solve a stratum"
    costly = True  # solvers that take many proxes an iteration are no good choice

    def __init__(self, program, values, arrays, order, weight, segments, constrained=True):
        if segments.N > LIMIT:
            raise NoProx(
                f"cone programs are not written for more than {LIMIT} records, and there are {segments.N}"
            )
        self.program, self.values = program, values
        self.arrays, self.order, self.weight, self.segments = arrays, order, weight, segments
        self.constraints = program.constraints if constrained else ()
        self.constrained = bool(self.constraints) or any(
            attribute_constraints(x, cp.Variable(x.shape)) for x in program.variables
        )
        self.box, self.value, self._known = None, None, {}

    def __call__(self, v, t):
        z = self.some(np.arange(len(v)), v, t)
        if self.value is not None and (outside := ~np.isfinite(self.value(z))).any():
            z = np.where(outside[:, None] & (np.abs(z) < 1e-7 * (1.0 + np.abs(v))), 0.0, z)
        return z

    def some(self, strata, v, t):
        """The same for some strata: v has their rows alone."""
        t = np.broadcast_to(np.asarray(t, dtype=float).reshape(-1), len(v))
        z = np.array(v, dtype=float)
        for i, k in enumerate(strata):
            if self.segments.counts[k] or self.constrained:
                z[i] = self._of(k)(v[[i]], t[i])[0]
        return z if self.box is None else np.clip(z, *self.box)

    def _of(self, k):
        """The prox of one stratum, written when it is first asked for."""
        if k not in self._known:
            self._known[k] = FallbackProx(self._stratum(k), self.values)
        return self._known[k]

    def _stratum(self, k):
        program, terms = self.program, []
        fixed = {id(p): cp.Constant(self.values[p.id]) for p in program.hyperparameters}
        for i in np.flatnonzero(self.segments.index == k):
            record = {
                id(p): cp.Constant(_row(a, self.order[i], p.shape))
                for p, a in zip(program.data, self.arrays, strict=True)
            }
            own = fixed | record
            term = rebuilt(program.expression, own | numbers(program.expression, own))
            terms.append(term if self.weight[i] == 1.0 else float(self.weight[i]) * term)
        total = atoms.AddExpression(terms) if terms else cp.Constant(0.0)
        ids = {p.id for c in self.constraints for p in c.parameters()}
        hyperparameters = tuple(p for p in program.hyperparameters if p.id in ids)
        return StratumProgram(total, self.constraints, hyperparameters, program)


def _row(array, i, shape):
    row = array[[i]].toarray() if sparse.issparse(array) else array[i]
    return np.asarray(row, dtype=float).reshape(shape)
