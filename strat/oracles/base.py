"""The oracle protocol: functions of (K, n) parameters, batched over strata."""

import numpy as np


class Oracle:
    """A convex function of each stratum's parameters.

    A method that exists is a capability; ``has`` asks for one. ``theta`` and ``v`` are arrays (K, n).

    * ``value(theta)``: (K,), +inf outside the domain, never nan.
    * ``value_and_gradient(theta)``: (K,) and (K, n).
    * ``hessian_operator(theta)``: the block-diagonal Hessian at theta as a map of (K, n) to (K, n).
    * ``hessian(theta)``: its blocks (K, n, n), where they are cheap; read-only where the oracle keeps them.
    * ``sizes``: root mean square (n,) of each coordinate's coefficients in the affine images of theta that it knows; 0 without.
    * ``cones()``: a list of `Cones` whose sum is the function, or, of a prox, what it minimises, constraints included.
    * ``prox(v, t)``: argmin_z f(z) + ‖z − v‖² / (2t), t a positive number or one for each stratum.
    """

    n, sizes = 0, 0.0
    quadratic = False  # whether the Hessian is the same everywhere

    def has(self, name):
        """Whether the oracle has a method."""
        return callable(getattr(self, name, None))

    def value(self, theta):
        """Value of each stratum."""
        raise NotImplementedError

    def interior(self):
        """The same function where its gradient is finite, +inf elsewhere: the domain of methods that follow gradients."""
        return self

    def limited(self):
        """The arguments of atoms with a domain, as `Limited`, where they are functions of affine forms."""
        return []


def hessian_blocks(oracle, theta):
    """The blocks (K, n, n) of an oracle's Hessian at theta, by products with unit vectors where it has no cheaper way."""
    if oracle.has("hessian"):
        return np.asarray(oracle.hessian(theta))
    product = oracle.hessian_operator(theta)
    units = (np.broadcast_to(e, theta.shape) for e in np.eye(theta.shape[1]))
    blocks = np.stack([product(e) for e in units], axis=2)
    return 0.5 * (blocks + blocks.swapaxes(1, 2))


def symmetric(v, transposed):
    """Vectors (K, n) or matrices (K, n, n) on symmetric variables; `transposed` has their transposes' coordinates, or is None."""
    for axis in range(1, v.ndim if transposed is not None else 1):
        v = 0.5 * (v + v.take(transposed, axis))
    return v
