"""Convexity by CVXPY's rules, with the signs that data and hyperparameters take.

CVXPY sees no sign in a Parameter, so ``-y*log(p)`` would not be convex. Here each *factor* (a largest
sub-expression without variables) is replaced by a parameter of the sign that its values have.
"""

from itertools import product

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from strat.compiler.data_checks import on_rows, shown
from strat.compiler.expressions import factors, matrix_factors, rebuilt, sign_of
from strat.compiler.replacements import CONCAVE, replacement
from strat.compiler.symbols import DATA
from strat.errors import DataError, NotConvexError
from strat.rules import atoms
from strat.rules.text import text

#: More unsigned factors than this are not tried in all combinations before there are data.
MAX_FACTORS = 8
#: Attributes of a matrix by the sign of its eigenvalues.
DEFINITE = {"+": {"PSD": True}, "0": {"PSD": True}, "-": {"NSD": True}, "?": {"symmetric": True}}


class Curvature:
    """Whether an expression is convex, for the signs of its factors; `what` is its role, for messages."""

    def __init__(self, expression, what):
        self.expression, self.what = expression, what
        self.factors, self.matrices = factors(expression), matrix_factors(expression)
        self._unknown, self._known = ("?",) * len(self.factors), {}
        powers = [e.p for e in atoms.nodes(expression) if isinstance(e, atoms.Power)]
        # Exponents count with their values, and not their signs alone.
        self._exponents = {id(p): p for p in powers if isinstance(p, atoms.Parameter)}.values()

    @property
    def always(self):
        """Whether the expression is convex whatever the signs of its factors."""
        return self._convex(self._unknown)

    def _convex(self, signs):
        """Whether the expression is convex where the factors have these signs."""
        powers = tuple(float(p.value) for p in self._exponents if p.value is not None)
        if self._known.get((*self._unknown, *powers)):
            return True  # whatever the signs
        key = (*signs, *powers)
        if key not in self._known:
            self._known[key] = self._signed(self.expression, signs).is_convex()
        return self._known[key]

    def _signed(self, e, signs):
        """The expression with Parameters of these signs for its factors."""
        own = {}
        for f, sign in zip(self.factors, signs, strict=True):
            attributes = {"nonneg": sign in "+0", "nonpos": sign in "-0"}
            own[id(f)] = cp.Parameter(f.shape, **(DEFINITE[sign] if id(f) in self.matrices else attributes))
        return rebuilt(e, own)

    def _assignments(self):
        if len(self.factors) > MAX_FACTORS:
            return [self._unknown]
        return [self._unknown, *product("+-", repeat=len(self.factors))]

    def check_declaration(self):
        """Raise NotConvexError where no values of the parameters could make the expression convex."""
        assignments = self._assignments()
        if len(self.factors) > MAX_FACTORS or any(self._convex(signs) for signs in assignments):
            return
        culprit = self._innermost(self.expression, assignments)
        line = f"  {text(self.expression)}   is concave"
        if culprit is not None:
            line = f"  {text(culprit)}   is neither convex nor concave by the rules of disciplined convex programming"
        hint = CONCAVE if culprit is None else replacement(culprit)
        raise NotConvexError(
            f"{self.what} is not convex in ({self._names}).\n{line}\n"
            f"{'No sign of the data makes it' if self.factors else 'It must be'} convex in the variables. {hint}"
        )

    @property
    def _names(self):
        return ", ".join(v.name() for v in self.expression.variables())

    def _innermost(self, e, assignments):
        """The innermost expression that is neither convex nor concave for any signs, or None."""
        for a in e.args:
            if a.variables() and (found := self._innermost(a, assignments)) is not None:
                return found
        signed = (self._signed(e, signs) for signs in assignments)
        return None if any(s.is_convex() or s.is_concave() for s in signed) else e

    def _offending(self, signs):
        """Position of a factor, and the sign it should have, that keep the expression from being convex; None if unclear."""
        best = None
        for wanted in self._assignments()[1:]:
            if self._convex(wanted):
                wrong = [i for i, (s, w) in enumerate(zip(signs, wanted, strict=True)) if s not in (w, "0")]
                # A factor may have any sign where the expression stays convex, the others being as wanted.
                wrong = [i for i in wrong if not self._convex((*wanted[:i], signs[i], *wanted[i + 1 :]))]
                if wrong and (best is None or len(wrong) < best[0]):
                    best = len(wrong), wrong[0], wanted[wrong[0]]
        return None if best is None else best[1:]

    def check_values(self, walker, binder, origin=None):
        """Raise where the signs of data or hyperparameters make the expression non-convex; origin is that of the data."""
        if self.always:
            return
        values = []
        for factor in self.factors:
            form, matrix = walker(factor), id(factor) in self.matrices
            value = binder.values(form, sparse=not matrix)
            values.append(value.reshape(-1, *form.shape) if matrix else value)
        signs = [
            sign_of(value.data if sp.issparse(value) else value, id(factor) in self.matrices)
            for factor, value in zip(self.factors, values, strict=True)
        ]
        if self._convex(signs):
            return
        found = self._offending(signs)
        if found is None:
            raise NotConvexError(
                f"{self.what} is not convex in ({self._names}) for these values of data and hyperparameters: "
                f"{text(self.expression)}."
            )
        factor, value, sign = self.factors[found[0]], values[found[0]], 1.0 if found[1] == "+" else -1.0
        words = ">= 0" if sign > 0 else "<= 0"
        if id(factor) in self.matrices:
            words = f"is {'positive' if sign > 0 else 'negative'} semidefinite"
            value = np.linalg.eigvalsh(0.5 * (value + np.swapaxes(value, 1, 2)))
        only = f"{self.what} is convex in ({self._names}) only where {text(factor)} {words}, but"
        if origin is None or not walker.symbols.depends(walker(factor).coefficient) & DATA:
            have = [f"{p.name()} = {shown(walker.values.get(p.id, np.nan))}" for p in factor.parameters()]
            raise NotConvexError(
                f"{only} {', '.join(have)}. Give the hyperparameter another value, or write the term with the other sign."
            )
        labels = " Labels of a Bernoulli loss lie in [0, 1], counts are at least 0."
        hint = labels if "log(" in str(self.expression) else ""
        bad = on_rows(sign * value < 0, value.shape[0])
        raise DataError(
            f"{only} {origin.first(bad, factor.parameters())}.{hint} Correct or drop these records."
        )
