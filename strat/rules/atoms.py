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
from cvxpy.atoms.affine.concatenate import Concatenate
from cvxpy.atoms.affine.diag import diag_mat, diag_vec
from cvxpy.atoms.affine.hstack import Hstack
from cvxpy.atoms.affine.index import index, special_index
from cvxpy.atoms.affine.promote import Promote
from cvxpy.atoms.affine.unary_operators import NegExpression
from cvxpy.atoms.affine.vstack import Vstack
from cvxpy.atoms.affine.wraps import Wrap, nonneg_wrap, nonpos_wrap
from cvxpy.atoms.elementwise.elementwise import Elementwise
from cvxpy.constraints.nonpos import Inequality
from cvxpy.constraints.zero import Equality

#: Atoms whose every output entry is one entry of one argument, or zero: read off by applying them to positions.
SELECTIONS = (index, special_index, Promote, diag_vec, diag_mat, Wrap, Hstack, Vstack, Concatenate)
SELECTIONS += (public.reshape, public.transpose, public.broadcast_to, public.upper_tri, public.real)


def __getattr__(name):
    """Every other class is a public atom of CVXPY, and needs no line here to get a rule."""
    return getattr(public, name)


def nodes(expression, enter=None):
    """Every sub-expression once, outer ones first; `enter` tells of which the arguments are read, by default of all."""
    stack, seen = [expression], set()
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
    if axis is None:
        return None
    ndim = len(atom.args[0].shape)
    axes = (axis,) if np.isscalar(axis) else tuple(axis)
    return tuple(int(a) % ndim for a in axes)


def exponent(atom):
    """Exponent of a power or the order of a p-norm as a float, or None while a Parameter has no value."""
    p = atom.p.value if isinstance(atom.p, Expression) else atom.p
    return None if p is None else float(p)


def geometric_weights(atom):
    """Exponents of a weighted geometric mean, one for each entry it reduces; they sum to 1."""
    weights = np.zeros(len(atom._keep))
    weights[atom._keep] = [float(w) for w in atom.w]
    return weights
