"""Oracles, functions of (K, n) parameters batched over strata: the protocol, quadratics, sums, and oracles in other units.

The module also recognises arrays of libraries other than NumPy.
"""

import copy
import math
from functools import cached_property, reduce
from operator import add

import numpy as np

from strat.errors import DataError, first_line, optional, type_name

HOST = 1  # DLPack's number of the memory that NumPy reads
EPS, HIDDEN = 2e-16, 1e-6  # rounding of terms, and its share of a sum above which it is added to the sum


def is_foreign(array):
    """Whether something is an array of a library other than NumPy, and not a column of a table."""
    if isinstance(array, np.ndarray):
        return False
    return hasattr(array, "__dlpack_device__") and not hasattr(array, "to_numpy")


def is_elsewhere(array):
    """Whether something is an array in memory that NumPy cannot read."""
    return is_foreign(array) and array.__dlpack_device__()[0] != HOST


def compat():
    """The package that gives every library the names of the array API standard (data-apis.org/array-api)."""
    return optional("array_api_compat", "records on a device", "device")


def namespace(array):
    """The functions of an array's library."""
    return compat().array_namespace(array) if is_foreign(array) else np


def host(array, rows=...):
    """The array in NumPy, or the given rows of an array of another library."""
    if not is_foreign(array):
        return array
    try:
        part = array[rows]
        return np.from_dlpack(compat().to_device(part, "cpu") if is_elsewhere(part) else part)
    except Exception as error:  # each library has its own
        what = f"{type_name(array)} of shape {tuple(array.shape)}, {array.dtype}, cannot be read: {first_line(error)}"
        raise DataError(f"{what}. Pass dense numbers, as x.detach().to_dense().double().") from None


def floats(value):
    """An argument as an array of floats; NaN if it holds anything other than numbers."""
    try:
        return np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        return np.array(np.nan)


def times(g, factor):
    """Product with 0 · inf = 0, since terms of weight 0 have no part in sums and gradients."""
    product, xp = g * factor, namespace(g)
    if xp is not np or not (math.isfinite(np.add.reduce(product, axis=None)) or np.isfinite(product).all()):
        product = xp.where((g == 0) | (factor == 0), 0.0, product)
    return product


def total(terms, size=0.0):
    """The sum of terms (K,), or an upper bound where rounding error, of the terms or of numbers of `size` in them, hides it."""
    if len(terms) == 1 and not np.ndim(size):
        return terms[0]
    out = reduce(add, terms)
    error = EPS * reduce(add, map(np.abs, terms), size)
    hidden = error > HIDDEN * np.abs(out)
    return np.where(hidden, np.abs(out) + 2 * error, out) if hidden.any() else out


class Oracle:
    """A convex function of each stratum's parameters.

    A method that exists is a capability; ``has`` asks for one. ``theta`` and ``v`` are arrays (K, n).

    * ``value(theta)``: (K,), +inf outside the domain, never nan.
    * ``value_and_gradient(theta)``: (K,) and (K, n), the latter read-only where the oracle keeps it.
    * ``hessian_operator(theta)``: the block-diagonal Hessian at theta as a map of (K, n) to (K, n).
    * ``hessian(theta)``: its blocks (K, n, n), where they are cheap; read-only where the oracle keeps them.
    * ``sizes``: root mean square (n,) of each coordinate's coefficients in the known affine images of theta; 0 without any.
    * ``cones()``: a list of `Cones` whose sum is the function, with the constraints that its prox satisfies.
    * ``prox(v, t)``: argmin_z f(z) + ‖z − v‖² / (2t), t a positive number or one for each stratum. ``prox.kind`` says how it is
      computed, and ``prox.rescaled(weight, unit)`` is that of weight × f(unit · z).
    """

    n, sizes = 0, 0.0
    quadratic = False  # whether the Hessian is the same everywhere
    restricted = True  # whether the function may be infinite somewhere
    kinked_rows = None  # the records of a sum of piecewise linear functions, smoothed or not, as KinkedRows

    def has(self, name):
        """Whether the oracle has a method."""
        return callable(getattr(self, name, None))

    def interior(self):
        """The same function where its gradient is finite, +inf elsewhere: the domain of methods that follow gradients."""
        return self

    def limited(self):
        """Pairs (affine BoundForm that is an argument of an atom with a domain, the domain's lower end, None for matrices)."""
        return []


def hessian_blocks(oracle, theta):
    """The blocks (K, n, n) of an oracle's Hessian at theta, by products with unit vectors where it has no cheaper way."""
    if oracle.has("hessian"):
        return np.asarray(oracle.hessian(theta))
    product = oracle.hessian_operator(theta)
    units = (np.broadcast_to(e, theta.shape) for e in np.eye(theta.shape[1]))
    blocks = np.stack([product(e) for e in units], axis=2)
    return 0.5 * (blocks + blocks.swapaxes(1, 2))


def solve_blocks(blocks, b):
    """Solutions (K, n) of the equations of blocks (K, n, n); NaN where some of them are singular."""
    try:
        return np.linalg.solve(blocks, b[..., None])[..., 0]
    except np.linalg.LinAlgError:
        return np.full_like(b, np.nan)


def symmetric(v, transposed):
    """Vectors (K, n) or matrices (K, n, n), symmetrised; `transposed`, or None, has the coordinates of transposed variables."""
    for axis in range(1, v.ndim if transposed is not None else 1):
        v = 0.5 * (v + v.take(transposed, axis))
    return v


class Quadratic(Oracle):
    """c + gᵀ(theta − centre) + ½ (theta − centre)ᵀ H (theta − centre).

    c is (K,), g (K, n) and H (K, n, n), symmetric and positive semidefinite, or None for a linear function; a leading 1 serves
    all strata. A centre (K, n) near the minimiser, by default 0, keeps the value exact to rounding.
    """

    quadratic, restricted = True, False

    def __init__(self, c, g, H=None, centre=None, sizes=0.0):
        self.c, self.g, self.H, self.centre = c, g, H, centre
        self.n, self.sizes = g.shape[1], sizes
        if H is not None:
            self._root = np.sqrt(np.maximum(np.einsum("kaa->ka", H), 0.0))
            self._trace = np.square(self._root).sum(axis=1).max(initial=0.0)

    def value(self, theta):
        return self.value_and_gradient(theta)[0]

    def value_and_gradient(self, theta):
        d = theta if self.centre is None else theta - self.centre
        if self.H is None:
            return self.c + np.vecdot(self.g, d), np.broadcast_to(self.g, d.shape).copy()
        hd = np.matmul(self.H, d[..., None])[..., 0]
        value = self.c + np.vecdot(self.g + 0.5 * hd, d)
        # |Σ_ab d_a H_ab d_b| <= (Σ_a √H_aa |d_a|)² <= tr(H) ‖d‖²
        if not EPS * self._trace * np.vdot(d, d) <= HIDDEN * value.min(initial=np.inf):
            value = total((value,), np.square(np.vecdot(self._root, np.abs(d))))
        return value, self.g + hd

    def hessian_operator(self, theta):
        return np.zeros_like if self.H is None else lambda v: np.matmul(self.H, v[..., None])[..., 0]

    def hessian(self, theta):
        return np.broadcast_to(0.0 if self.H is None else self.H, (len(theta), self.n, self.n))


class SumOracle(Oracle):
    """The sum of oracles, with the capabilities that all of them have.

    `smooth` and `curved` say whether gradients and Hessian products exist. `why` says, by method name, why a method is missing
    or why a prox has no closed form. `prox` is the prox of the sum, and `cones` gives the sum, with the constraints that its
    prox satisfies, as a list of `Cones`; both may be None.
    """

    sizes = property(lambda self: np.max([np.broadcast_to(p.sizes, self.n) for p in self.parts], axis=0))

    def __init__(self, parts, n, smooth=True, curved=True, prox=None, why=None, cones=None):
        self.parts, self.n, self.why = tuple(parts), n, why or {}
        if not smooth:
            self.value_and_gradient = None
        if not (smooth and curved):
            self.hessian_operator = None
        if not (smooth and curved and all(part.has("hessian") for part in self.parts)):
            self.hessian = None
        self.prox, self.cones = prox, cones
        self.quadratic = all(part.quadratic for part in self.parts)
        self.restricted = any(part.restricted for part in self.parts)

    def interior(self):
        summed = copy.copy(self)
        summed.parts = tuple(part.interior() for part in self.parts)
        return summed

    def limited(self):
        return [argument for part in self.parts for argument in part.limited()]

    def missing(self, name):
        """Why a method is missing."""
        return self.why.get(name, "a piece has none")

    def value(self, theta):
        return total([part.value(theta) for part in self.parts])

    def value_and_gradient(self, theta):
        values, gradients = zip(*(part.value_and_gradient(theta) for part in self.parts), strict=True)
        return total(values), reduce(add, gradients)

    def hessian(self, theta):
        return reduce(add, (part.hessian(theta) for part in self.parts))

    def hessian_operator(self, theta):
        operators = [part.hessian_operator(theta) for part in self.parts]
        return lambda v: reduce(add, (operator(v) for operator in operators))


class Rescaled(Oracle):
    """weight × f(unit · theta), f an `oracle` and unit (n,) or 1, with the capabilities of f."""

    def __init__(self, oracle, weight=1.0, unit=1.0):
        if isinstance(oracle, Rescaled):
            weight, unit, oracle = weight * oracle.weight, unit * oracle.unit, oracle.oracle
        self.oracle, self.weight, self.unit, self.n = oracle, float(weight), unit, oracle.n
        self.quadratic, self.restricted = oracle.quadratic, oracle.restricted
        for name in ("value_and_gradient", "hessian_operator", "hessian"):
            if not oracle.has(name):
                setattr(self, name, None)
        self.cones = None
        if oracle.has("cones"):
            self.cones = lambda: [f.scaled(self.weight).in_units(self.unit) for f in oracle.cones()]
            self.cones.size = getattr(oracle.cones, "size", 0)

    @cached_property
    def prox(self):
        """The prox, None where f has none."""
        return self.oracle.prox.rescaled(self.weight, self.unit) if self.oracle.has("prox") else None

    def interior(self):
        return Rescaled(self.oracle.interior(), self.weight, self.unit)

    def limited(self):
        """The affine arguments with a domain, if units are 1: else they are functions of other parameters."""
        return self.oracle.limited() if np.all(self.unit == 1.0) else []

    def missing(self, name):
        return self.oracle.missing(name)

    @property
    def parts(self):
        """The terms of a sum."""
        return tuple(Rescaled(part, self.weight, self.unit) for part in getattr(self.oracle, "parts", ()))

    @property
    def kinked_rows(self):
        rows = self.oracle.kinked_rows
        return rows and rows.rescaled(self.weight, self.unit)

    def value(self, theta):
        return self.weight * self.oracle.value(self.unit * theta)

    def value_and_gradient(self, theta):
        value, gradient = self.oracle.value_and_gradient(self.unit * theta)
        return self.weight * value, _scaled(self.weight * self.unit, gradient)

    def hessian_operator(self, theta):
        operator, size = self.oracle.hessian_operator(self.unit * theta), self.weight * self.unit
        return lambda v: size * operator(self.unit * v)

    def hessian(self, theta):
        size = self.weight * np.multiply.outer(self.unit, self.unit)
        return _scaled(size, self.oracle.hessian(self.unit * theta))


def _scaled(size, array):
    """size · array, in place unless the array is read-only, as arrays are that an oracle keeps."""
    return np.multiply(size, array, out=array if array.flags.writeable else None)
