"""What the values of data and hyperparameters must satisfy: convexity, domains, constraints without variables.

To CVXPY a Parameter has no sign, so ``-y*log(p)`` would not be convex. Here each *factor*, a maximal sub-expression without
variables, is replaced by a Parameter with the sign of its values.
"""

from itertools import product

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from strat.compiler.binder import dense
from strat.compiler.expressions import eigenvalues, factors, matrix_factors, rebuilt, sign_of
from strat.compiler.walk import DATA
from strat.errors import DataError, DataWarning, DeclarationError, NotConvexError, NotPerRecordError
from strat.oracles.base import host
from strat.records.strata import some_of
from strat.rules import atoms, text

#: Number of factors up to which all combinations of signs are tried before there are data.
MAX_FACTORS = 8
#: Attributes of a matrix by the sign of its eigenvalues.
DEFINITE = {"+": {"PSD": True}, "0": {"PSD": True}, "-": {"NSD": True}, "?": {"symmetric": True}}
#: Number of rows from which an array as long as the records is taken to hold data of the records.
MANY = 10
#: A column whose numbers differ by less than this share of their size keeps too few digits; number of rows sampled first.
SPREAD, SAMPLED = 2e-5, 100


class Curvature:
    """Whether an expression is convex, for the signs of its factors; `what` is its role, for messages."""

    always = property(lambda self: self._convex(self._unknown))  # whatever the signs

    def __init__(self, expression, what):
        self.expression, self.what = expression, what
        self.names = ", ".join(v.name() for v in expression.variables())
        self.factors, self.matrices = factors(expression), matrix_factors(expression)
        self._unknown, self._known = ("?",) * len(self.factors), {}
        powers = [e.p for e in atoms.nodes(expression) if isinstance(e, atoms.Power)]
        # Of exponents the values matter, not the signs alone; kept here as last bound, by object id and CVXPY id.
        self._exponents = {(id(p), p.id): p for p in powers if isinstance(p, atoms.Parameter)}

    def _convex(self, signs):
        """Whether the expression is convex where the factors have these signs."""
        key = (*signs, *(float(p.value) for p in self._exponents.values() if p.value is not None))
        if key not in self._known:
            self._known[key] = self._signed(self.expression, signs).is_convex()
        return self._known[key]

    def _signed(self, e, signs):
        """The expression with Parameters of these signs in place of its factors."""
        own = {place: p for (place, _), p in self._exponents.items()}
        for f, sign in zip(self.factors, signs, strict=True):
            attributes = {"nonneg": sign in "+0", "nonpos": sign in "-0"}
            own[id(f)] = cp.Parameter(f.shape, **(DEFINITE[sign] if id(f) in self.matrices else attributes))
        return rebuilt(e, own)

    def _assignments(self):
        few = len(self.factors) <= MAX_FACTORS
        return [self._unknown, *(product("+-", repeat=len(self.factors)) if few else ())]

    def check_declaration(self):
        """Raise NotConvexError where no values of the parameters could make the expression convex."""
        if len(self.factors) > MAX_FACTORS or any(map(self._convex, self._assignments())):
            return
        culprit = self._innermost(self.expression)
        line = f"  {text(self.expression)}   is concave"
        if culprit is not None:
            line = f"  {text(culprit)}   is neither convex nor concave by the rules of disciplined convex programming"
        hint = CONCAVE if culprit is None else replacement(culprit)
        raise NotConvexError(
            f"{self.what} is not convex in ({self.names}).\n{line}\n"
            f"{'No sign of the data makes it' if self.factors else 'It must be'} convex in the variables. {hint}"
        )

    def _innermost(self, e):
        """The innermost expression that is neither convex nor concave for any signs, or None."""
        for a in e.args:
            if a.variables() and (found := self._innermost(a)) is not None:
                return found
        signed = (self._signed(e, signs) for signs in self._assignments())
        return None if any(s.is_convex() or s.is_concave() for s in signed) else e

    def _offending(self, signs):
        """(position, required sign) of a factor whose sign keeps the expression from being convex; None if unclear."""
        found = []
        for wanted in filter(self._convex, self._assignments()[1:]):
            wrong = [i for i, (s, w) in enumerate(zip(signs, wanted, strict=True)) if s not in (w, "0")]
            # A wrong sign does not matter where the expression is convex once all other signs are as wanted.
            needed = (i for i in wrong if not self._convex((*wanted[:i], signs[i], *wanted[i + 1 :])))
            found.append([(i, wanted[i]) for i in needed])
        return min(filter(None, found), key=len, default=[None])[0]

    def check_values(self, walker, binder, origin=None):
        """Raise where signs of data or hyperparameters make the expression non-convex; `origin` tells where data came from."""
        self._exponents = {ids: cp.Constant(walker.values[ids[1]]) for ids in self._exponents}
        if self.always:
            return
        values, signs = [], []
        for factor in self.factors:
            form, matrix = walker(factor), id(factor) in self.matrices
            value = binder.values(form, sparse=not matrix)
            values.append(value.reshape(-1, *form.shape) if matrix else value)
            signs.append(sign_of(value.data if sp.issparse(value) else values[-1], matrix))
        if self._convex(signs):
            return
        found = self._offending(signs)
        if found is None:
            raise NotConvexError(
                f"{self.what} is not convex in ({self.names}) for these values of data and hyperparameters: "
                f"{text(self.expression)}."
            )
        factor, value, sign = self.factors[found[0]], values[found[0]], 1.0 if found[1] == "+" else -1.0
        words = ">= 0" if sign > 0 else "<= 0"
        if id(factor) in self.matrices:
            words = f"is {'positive' if sign > 0 else 'negative'} semidefinite"
            value = eigenvalues(value)
        only = f"{self.what} is convex in ({self.names}) only where {text(factor)} {words}, but"
        if origin is None or not walker.symbols.depends(walker(factor).coefficient) & DATA:
            have = [f"{p.name()} = {shown(walker.values.get(p.id, np.nan))}" for p in factor.parameters()]
            raise NotConvexError(
                f"{only} {', '.join(have)}. Give the hyperparameter another value, or write the term with the other sign."
            )
        labels = " Labels of a Bernoulli loss lie in [0, 1], counts are at least 0."
        hint = labels if "log(" in str(self.expression) else ""
        have = origin.first(sign * value < 0, factor.parameters())
        raise DataError(f"{only} {have}.{hint} Correct or drop these records.")


class Origin:
    """Where the records, sorted by `order`, came from, for error messages; `arrays` are the data as given."""

    def __init__(self, order, strata, data, arrays):
        self.order, self.strata, self.data, self.arrays = order, strata, data, arrays

    def first(self, mask, parameters):
        """Text that names the first record as given with an entry in `mask`, which is over sorted records, and its data."""
        mask = np.asarray(dense(mask)).reshape(mask.shape[0], -1).any(axis=1)
        mask = np.broadcast_to(mask, len(self.order))
        first = int(self.order[mask].min())
        label, ids = self.strata.labels[self.strata.index[first]], {p.id for p in parameters}
        pairs = [(p, a) for p, a in zip(self.data, self.arrays, strict=True) if not sp.issparse(a)]
        have = [f"{p.name()} = {shown(a[first, ...])}" for p, a in pairs if p.id in ids]
        count = int(np.sum(mask))
        more = f" ({count} records are affected)" if count > 1 else ""
        where = "" if label is None else f" (stratum {label!r})"  # None where all share their parameters
        return f"record {first}{where} has {', '.join(have) or 'another value'}{more}"

    def illegal(self, node, mask, i=None):
        """Raise DataError for data outside the domain of an atom of data alone, or of an atom's argument i."""
        e = node.expression
        part, why = (e.args[i] if i is not None and i < len(e.args) else e), "is undefined or infinite:"
        if i is not None:
            low, high = node.rule.intervals[i]
            limit = f"at least {low:g}" if np.isinf(high) else f"in [{low:g}, {high:g}]"
            why = f"needs {text(part)} {limit}, but"
        have = self.first(mask, part.parameters())
        raise DataError(f"{text(e)} {why} {have}. Correct or drop these records.")


def shown(value):
    """A number, or the first entries of an array, for messages."""
    value = np.asarray(host(value))
    if value.ndim == 0:
        return f"{value:g}"
    line = np.array2string(value.reshape(-1)[:4], precision=4, separator=", ")
    return line if value.size <= 4 else line[:-1] + ", …]"


def check_fixed(constraints, values):
    """Raise where a constraint without variables does not hold for the hyperparameters' values."""
    for c in (c for c in constraints if not c.variables()):
        own = {id(p): atoms.Constant(values[p.id]) for p in c.parameters()}
        if not c.copy([rebuilt(a, own) for a in c.args]).value(tolerance=1e-8):
            have = ", ".join(f"{p.name()} = {values[p.id]}" for p in c.parameters())
            raise DeclarationError(
                f"the constraint {text(c)} has no variable in it and does not hold{have and ' for '}{have}, so no point "
                f"satisfies the constraints. Correct it, or leave it out."
            )


def check_tables(loss, data, N):
    """Raise where a loss holds no record data, and warn where it holds arrays as long as the N records that are fitted."""
    tables = [c for c in loss.constants() if c.shape and c.shape[0] == N >= MANY]
    spelling = (
        'Write the loss of ONE record, such as cp.square(y - x @ theta) with x = cp.Parameter(3, name="x") and y = '
        'cp.Parameter(name="y"), declare data=(x, y), and pass the arrays to fit(X, Y, strata=…).'
    )
    if not data:
        raise NotPerRecordError(
            f"the loss has no data Parameter: {text(loss)}. It is the same for each of the {N:,} records, and counts {N:,} "
            f"times. {spelling}"
        )
    own = {length for leaf in (*loss.variables(), *loss.parameters()) for length in leaf.shape}
    if tables and N not in own:
        DataWarning.warn(
            f"the loss holds an array of shape {tables[0].shape}, as long as the {N:,} records, and is summed over records, so "
            f"that the whole array counts {N:,} times. {spelling}"
        )


CONCAVE = (
    "Minus it is convex: a loss is minimised. Write -cp.log(u), -cp.entr(u), -cp.log_det(S), cp.maximum(u, v) for "
    "cp.minimum(u, v), and cp.sum_largest(u, k) for cp.sum_smallest(u, k)."
)


def replacement(e):
    """What to write instead of the usual expressions that are not convex by CVXPY's rules."""
    line = str(e)
    if isinstance(e, atoms.log) and "exp(" in line:
        if isinstance(e.args[0], atoms.AddExpression) and "Sum(" not in line:
            return "Write cp.logistic(z) for log(1 + exp(z)), cp.log_sum_exp(cp.hstack([…])) for more terms."
        return "Write cp.log_sum_exp(z) for log(sum(exp(z))), and cp.logistic(z) for log(1 + exp(z))."
    if isinstance(e, atoms.DivExpression):
        return (
            "Write cp.inv_pos(z) for 1/z, cp.quad_over_lin(u, z) for u**2/z; "
            "a logistic loss is cp.logistic(-y*z), not -log(1/(1 + exp(-z)))."
        )
    if isinstance(e, atoms.MulExpression):
        return (
            "A product of two expressions of the variables: write cp.square(u) for u * u, cp.sum_squares(u) for u @ u, "
            "cp.quad_form(u, P) for u.T @ P @ u, and the sum of cp.quad_form(T[:, j], L) over columns j for trace(T.T @ L @ T)."
        )
    if isinstance(e, atoms.Power):
        if (atoms.exponent(e) or 0) > 1:
            return "A power of a convex function is convex only where that is at least 0: write cp.square(cp.pos(u))."
        return "Write cp.norm(u, 2) for the square root of a sum of squares, and cp.abs(u) for that of one square."
    if isinstance(e, (atoms.QuadForm, atoms.MatrixFrac)):
        matrix = e.args[1]
        if matrix.variables() or matrix.parameters() or not e.args[0].is_affine():
            return "The matrix of a quadratic form is a number or Parameter, positive semidefinite, and the vector is affine."
        return (
            f"Its matrix must be positive semidefinite, but it has the eigenvalue {eigenvalues(matrix.value)[0]:.3g}; where "
            f"only rounding makes it negative, write cp.quad_form(u, cp.psd_wrap(P))."
        )
    if isinstance(e, (atoms.minimum, atoms.min)):
        return (
            "The smaller of convex functions is not convex: for a loss that grows slowly far out write cp.huber(u), "
            "and cp.maximum(u, v) where the larger was meant."
        )
    if isinstance(e, (atoms.abs, atoms.norm1, atoms.Pnorm, atoms.norm_inf)):
        return "Absolute values and norms are convex where their argument is affine, or convex and at least 0: cp.pos(u)."
    if isinstance(e, atoms.log):
        return "A logarithm is concave: -cp.log(u) is convex where u is affine or concave."
    if isinstance(e, (atoms.exp, atoms.logistic, atoms.log_sum_exp, atoms.maximum, atoms.max)):
        return "It is convex where its arguments are: affine, or convex themselves, such as cp.exp(cp.square(u))."
    if e.is_quasiconvex() or e.is_quasiconcave():
        return (
            "It is quasiconvex or quasiconcave at best, which sums do not keep: bound it in a constraint, or take a "
            "convex function with the same meaning, such as cp.abs, cp.huber or cp.norm."
        )
    return "Write it with convex functions of affine expressions: see the documentation's table of rules."


def warn_of_lost_digits(base, records):
    """Warn where a column varies so little relative to its size that double precision hides the differences."""
    for parameter, array in zip(base.data, records.arrays, strict=True):
        if not isinstance(array, np.ndarray):
            continue
        rows = array.reshape(len(array), -1)
        names = records.columns.get(parameter.name()) or range(rows.shape[1])
        columns = np.flatnonzero(_spread(rows[:: 1 + len(rows) // SAMPLED]) < SPREAD)  # most are seen to vary
        if lost := [names[c] for c in columns if 0 < _spread(rows[:, c : c + 1])[0] < SPREAD]:
            DataWarning.warn(
                f"column {some_of(lost)} of {parameter.name()}: the numbers differ by less than {SPREAD:g} of their size, "
                f"so that double precision loses much of what distinguishes the records. Subtract a number near their mean."
            )


def _spread(rows):
    """The range of every column over its largest absolute value."""
    high, low = rows.max(axis=0, initial=-np.inf), rows.min(axis=0, initial=np.inf)
    return (high - low) / np.maximum(np.maximum(high, -low), 1e-300)
