"""Convexity by CVXPY's rules, with the signs that data and hyperparameters take.

CVXPY sees no sign in a Parameter, so ``-y*log(p)`` would not be convex. Here each *factor* (a largest
sub-expression without variables) is replaced by a parameter of the sign that its values have.
"""

from functools import cached_property
from itertools import product

import cvxpy as cp
import numpy as np

from strat.compiler.replacements import CONCAVE, replacement
from strat.errors import NotConvexError
from strat.rules import atoms
from strat.rules.text import text

#: More unsigned factors than this are not tried in all combinations before there are data.
MAX_FACTORS = 8
_ROUNDING = 1e-12


def factors(expression):
    """Largest sub-expressions without variables that hold a Parameter, each once, in tree order."""
    found, seen = [], set()

    def visit(e):
        if id(e) in seen:
            return
        seen.add(id(e))
        if not e.variables():
            if e.parameters():
                found.append(e)
            return
        for a in e.args:
            visit(a)

    visit(expression)
    return found


def matrix_factors(expression):
    """Ids of the factors that are the matrix of a quadratic form."""
    if not expression.args:
        return set()
    own = {id(expression.args[1])} if isinstance(expression, (atoms.QuadForm, atoms.MatrixFrac)) else set()
    return own.union(*(matrix_factors(a) for a in expression.args))


def exponents(expression):
    """Parameters that are the exponent of a power, each once."""
    own = [expression.p] if isinstance(expression, atoms.Power) else []
    found = {id(p): p for p in own if isinstance(p, atoms.Parameter)}
    for a in expression.args:
        found.update((id(p), p) for p in exponents(a))
    return list(found.values())


def stand_in(factor, sign, matrix):
    """A Parameter of the factor's shape: sign is "+", "-", "0" or "?" (definiteness for a matrix factor)."""
    if matrix:
        attributes = {"+": {"PSD": True}, "0": {"PSD": True}, "-": {"NSD": True}, "?": {"symmetric": True}}[
            sign
        ]
        return cp.Parameter(factor.shape, **attributes)
    return cp.Parameter(factor.shape, nonneg=sign in "+0", nonpos=sign in "-0")


def rebuilt(expression, replacements):
    """The expression with some sub-expressions, by id, replaced."""
    memo = dict(replacements)

    def build(e):
        if id(e) not in memo:
            if isinstance(e, atoms.Power) and isinstance(e.p, atoms.Parameter) and e.p.value is not None:
                memo[id(e)] = _power(build(e.args[0]), float(e.p.value))
            elif isinstance(e, atoms.Power) and e.p.value is not None:
                memo[id(e)] = _power(build(e.args[0]), float(e.p.value), e)
            else:
                args = [build(a) for a in e.args]
                same = all(new is old for new, old in zip(args, e.args, strict=True))
                memo[id(e)] = e if same else e.copy(args)
        return memo[id(e)]

    return build(expression)


def _power(base, p, old=None):
    """The power, or that of the absolute value: CVXPY's cones of u⁶, u¹⁰, u¹² and so on allow no u below 0."""
    halvings = np.log2(p) if p > 0 else 0.5
    if p % 2 == 0 and halvings % 1 and not base.is_nonneg() and not base.is_constant():
        base = cp.abs(base)
    elif old is not None:
        return old if base is old.args[0] else old.copy([base])
    return cp.power(base, p)


def numbers(expression, replacements, stay=()):
    """``{id: constant}`` of the factors, so that CVXPY sees the signs of their values.

    Parameters
    ----------
    expression : cvxpy.Expression
    replacements : dict
        Constants for Parameters, by Python id.
    stay : collection of int
        Ids of Parameters that are no constants: what holds one of them is left out.
    """
    matrices, out = matrix_factors(expression), {}
    for factor in factors(expression):
        if stay and any(id(p) in stay for p in factor.parameters()):
            continue
        value = cp.Constant(rebuilt(factor, replacements).value)
        # Definiteness was checked with the values; CVXPY would ask again, with another tolerance.
        semidefinite = id(factor) in matrices and sign_of(value.value, matrix=True) in "+0"
        out[id(factor)] = atoms.psd_wrap(value) if semidefinite else value
    return out


def with_sign(variable, plain):
    """A plain variable that CVXPY believes to have the attributes' sign or symmetry, which some atoms need."""
    if variable.ndim == 2 and variable.is_psd():
        return atoms.psd_wrap(plain)
    if variable.is_nonneg():
        return atoms.nonneg_wrap(plain)
    if variable.is_nonpos():
        return atoms.nonpos_wrap(plain)
    return atoms.symmetric_wrap(plain) if variable.ndim == 2 and variable.is_symmetric() else plain


class Curvature:
    """Whether an expression is convex, for the signs of its factors.

    Parameters
    ----------
    expression : cvxpy.Expression
    what : str
        Its role, for messages.
    """

    def __init__(self, expression, what):
        self.expression, self.what = expression, what
        self.factors = factors(expression)
        self.matrices = matrix_factors(expression)
        self._known = {}

    def convex(self, signs):
        """Whether the expression is convex where the factors have these signs."""
        powers = tuple(float(p.value) for p in self._exponents if p.value is not None)
        if self._known.get((*self._unknown, *powers)):
            return True  # whatever the signs
        key = (*signs, *powers)
        if key not in self._known:
            self._known[key] = self._signed(self.expression, signs).is_convex()
        return self._known[key]

    @property
    def always(self):
        """Whether the expression is convex whatever the signs of its factors."""
        return self.convex(self._unknown)

    @property
    def _unknown(self):
        return ("?",) * len(self.factors)

    @cached_property
    def _exponents(self):
        """Parameters that are exponents, whose values count and not their signs alone."""
        return exponents(self.expression)

    def _signed(self, e, signs):
        stand_ins = {
            id(f): stand_in(f, s, id(f) in self.matrices) for f, s in zip(self.factors, signs, strict=True)
        }
        return rebuilt(e, stand_ins)

    def _assignments(self):
        if len(self.factors) > MAX_FACTORS:
            return [self._unknown]
        return [self._unknown, *product("+-", repeat=len(self.factors))]

    def check_declaration(self):
        """Raise NotConvexError where no values of the parameters could make the expression convex."""
        if len(self.factors) > MAX_FACTORS or any(self.convex(signs) for signs in self._assignments()):
            return
        raise NotConvexError(self._explain())

    def _explain(self):
        assignments = self._assignments()
        culprit = self._innermost(self.expression, assignments)
        variables = ", ".join(v.name() for v in self.expression.variables())
        if culprit is None:
            line = f"  {text(self.expression)}   is concave"
        else:
            line = f"  {text(culprit)}   is neither convex nor concave by the rules of disciplined convex programming"
        hint = CONCAVE if culprit is None else replacement(culprit)
        return (
            f"{self.what} is not convex in ({variables}).\n{line}\n"
            f"{'No sign of the data makes it' if self.factors else 'It must be'} convex in the variables."
            + (f" {hint}" if hint else "")
        )

    def _innermost(self, e, assignments):
        for a in e.args:
            if a.variables() and (found := self._innermost(a, assignments)) is not None:
                return found
        for signs in assignments:
            signed = self._signed(e, signs)
            if signed.is_convex() or signed.is_concave():
                return None
        return e

    def offending(self, signs):
        """Factor, and the sign it should have, that keep the expression from being convex; None if unclear."""
        best = None
        for wanted in self._assignments()[1:]:
            if self.convex(wanted):
                wrong = [i for i, (s, w) in enumerate(zip(signs, wanted, strict=True)) if s not in (w, "0")]
                wrong = [i for i in wrong if not self._harmless(i, signs, wanted)]
                if wrong and (best is None or len(wrong) < len(best[0])):
                    best = (wrong, wanted)
        return None if best is None else (self.factors[best[0][0]], best[1][best[0][0]])

    def _harmless(self, i, signs, wanted):
        """Whether factor i may have any sign, the others being as wanted."""
        return self.convex([signs[j] if j == i else w for j, w in enumerate(wanted)])


def sign_of(values, matrix=False):
    """Sign of an array of values: "+", "-", "0" (all zero) or "?" (both); definiteness for matrices."""
    values = np.asarray(values, dtype=float)
    if matrix:
        values = np.linalg.eigvalsh(0.5 * (values + np.swapaxes(values, -1, -2)))
    low, high = values.min(initial=0.0), values.max(initial=0.0)
    size = max(-low, high)
    slack = (1e-8 if matrix else _ROUNDING) * size
    if size == 0:
        return "0"
    return "+" if low >= -slack else "-" if high <= slack else "?"
