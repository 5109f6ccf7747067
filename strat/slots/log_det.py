"""The numbers of the log-determinant graph regularizer at one point."""

import math

import numpy as np
from scipy.linalg.blas import daxpy

from strat import kernels
from strat.slots.base import Slot


class LogDetSlot(Slot):
    """LogDet at one point of the edge weights: one Cholesky factorisation serves value, gradient and curvature.

    The derivatives are those of `LogDet` in the weights w_e of the edges i < j; every edge stands twice in the matrix
    norms, hence the factors 2. On W >= 0 the l1 norm is linear, so that it belongs to the gradient.
    """

    def __init__(self, h, edges, w0, outside=0.0):
        self.edges, self.w0 = edges, w0
        self.constant = h.lambda2 * (1 - h.eta) * outside  # of the pull to W0 where W has no edge
        self.lambda1, self.mu = float(h.lambda1), float(h.mu)
        self.square, self.linear = 2.0 * h.lambda2 * (1 - h.eta), 2.0 * h.lambda2 * h.eta
        self._matrix = np.zeros(edges.packed.size)  # first the factor, then the inverse
        self._prior = bool(np.any(w0))
        self._pull = edges.zeros() if self._prior else None  # w - w0
        self.factorizations = self.inversions = 0

    def set(self, w, degrees=None):
        """Move to the weights w (and their degrees, where known) and return h(w), +inf outside the domain."""
        value, self._inverted, self._w, self._scale = 0.0, False, w, None
        degrees = self.edges.degrees(w) if degrees is None else degrees
        if self.lambda1:
            self.factorizations += 1
            log_det = self.edges.log_det(w, self.mu, degrees, self._matrix)
            if log_det is None:
                return np.inf
            value = -self.lambda1 * log_det
        if self._prior:
            np.subtract(w, self.w0, out=self._pull)
        else:
            self._pull = w
        value += self.square / 2 * self.edges.dot(self._pull, self._pull)
        self._total = float(np.add.reduce(degrees)) / 2
        value += self.linear * self._total + self.constant
        return value if math.isfinite(value) else np.inf

    def gradient_without_ends(self, out):
        """Return a (K,) and write b to out, where the gradient over the edges is b_e + a_i + a_j."""
        if not self.lambda1:
            np.multiply(self._pull, self.square, out=out)
            return np.full(self.edges.K, self.linear / 2)
        inverse, pull = self._inverse(), self._pull
        if self._packed:
            constants = (self.lambda1, self.square, self.linear / 2)
            return kernels.compiled.log_det_gradient(self.edges.K, *constants, inverse, pull, out)
        entries = self.edges.entries(inverse)
        for chunk in self.edges.chunks:
            np.multiply(entries[chunk], 2 * self.lambda1, out=out[chunk])
            daxpy(pull[chunk], out[chunk], a=self.square)  # in place
        return self.linear / 2 - self.lambda1 * self._diagonal()

    def resistances(self, out):
        """rho_ij = (M^-1)_ii + (M^-1)_jj - 2 (M^-1)_ij, zero off the edges."""
        if not self.lambda1:
            out[...] = 0.0
            return out
        S = self._inverse()
        np.multiply(self.edges.entries(S), -2.0, out=out)
        out = self.edges.add_ends(self._diagonal(), out)
        out *= self.edges.mask
        return out

    def curvature(self, out):
        """A diagonal that bounds the Hessian over the edges up to a modest factor, written to out.

        The Hessian of -log det has the entries A_ef = (b_e' S b_f)^2 >= 0, S = M^-1, so that A <= diag(A p / p) for any
        p > 0. With p = w + mu/K, A p = rho exactly; with p = w + s it is at most a multiple of rho that depends on how
        well the graph is connected. s near the mean weight lets edges of weight zero move, too.
        """
        least = self.square or (1e-300 if self.lambda1 else 1.0)  # never zero, as it is divided by
        s = self.mu / self.edges.K + self._total / max(self.edges.count, 1)
        if self._packed and self.lambda1:
            constants, arrays = (self.lambda1, s, least), (self._inverse(), self._diagonal(), self._w, out)
            self._scale = self.lambda1 * math.sqrt(kernels.compiled.edge_curvature(*constants, *arrays))
            return out
        rho = self.resistances(out)
        self._scale = self.lambda1 * self.edges.norm(rho)
        if self.lambda1:
            rho *= self.lambda1
            rho /= self._w + s
        rho += least
        return rho

    def scale(self):
        """Size of the terms that balance in the stationarity condition: lambda1 ||rho||."""
        if self._scale is None:
            self._scale = self.lambda1 * self.edges.norm(self.resistances(self.edges.zeros()))
        return self._scale

    @property
    def _packed(self):
        """Whether there are compiled loops, and edge arrays are packed matrices, as they take them."""
        return kernels.compiled and self.edges.are_packed

    def _inverse(self):
        if not self._inverted:
            self.edges.packed.invert(self._matrix)
            self.inversions += 1
            self._inverted = True
        return self._matrix

    def _diagonal(self):
        return self._matrix[self.edges.packed.diagonal]
