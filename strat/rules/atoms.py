"""The one place that knows CVXPY's classes and how to read them.

Classes are matched with ``isinstance`` on their base, never by name, because CVXPY renames the derived
ones between releases. Whatever is not public in CVXPY is read here and nowhere else.
"""

# ruff: noqa: F401 (other modules take the classes from here)

import numpy as np
from cvxpy import PSD, Constant, Constraint, Expression, FiniteSet, NonNeg, NonPos, Parameter, Variable, Zero
from cvxpy import atoms as public
from cvxpy.atoms.affine.affine_atom import AffAtom
from cvxpy.atoms.affine.binary_operators import DivExpression
from cvxpy.atoms.affine.unary_operators import NegExpression
from cvxpy.atoms.affine.wraps import nonneg_wrap, nonpos_wrap
from cvxpy.atoms.elementwise.elementwise import Elementwise
from cvxpy.constraints.nonpos import Inequality
from cvxpy.constraints.zero import Equality
from numpy.lib.array_utils import normalize_axis_tuple


def __getattr__(name):
    """Every other class is a public atom of CVXPY, and needs no line here to get a rule."""
    return getattr(public, name)


def nodes(*expressions, enter=None):
    """Every sub-expression once, outer ones first; arguments of those for which `enter` is false are not visited."""
    stack, seen = [*reversed(expressions)], set()
    while stack:
        e = stack.pop()
        if id(e) not in seen:
            seen.add(id(e))
            yield e
            if enter is None or enter(e):
                stack.extend(reversed(e.args))


def axis_of(atom):
    """Axis over which a reduction works: None for all, else a tuple of non-negative ints."""
    axis = getattr(atom, "axis", None)
    return None if axis is None else normalize_axis_tuple(axis, atom.args[0].ndim)


def exponent(atom):
    """Exponent of a power or the order of a p-norm as a float, or None while a Parameter has no value."""
    p = atom.p.value if isinstance(atom.p, Expression) else atom.p
    return None if p is None else float(p)


def geometric_weights(atom):
    """Exponents of a weighted geometric mean, one for each entry it reduces; they sum to 1."""
    weights = np.zeros(len(atom._keep))
    weights[atom._keep] = np.array(atom.w, dtype=float)
    return weights
