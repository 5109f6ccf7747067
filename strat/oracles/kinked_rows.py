"""The records of a loss that is, for each, a convex piecewise linear function, smoothed or not, of an affine one."""

from dataclasses import dataclass, replace

import numpy as np


@dataclass
class KinkedRows:
    """Σ_ij max_{low <= c <= high} (c r_ij − δ_i c² / 2) with r = A (unit · theta) + shift: pinball, hinge, |u| and their like."""

    design: object  # A, with m rows a record
    shift: np.ndarray  # (N, m J), for each of the J kinks of a row
    low: np.ndarray  # slopes before the kinks, with the records' weights in them
    high: np.ndarray  # slopes behind them
    delta: np.ndarray  # widths
    J: int
    segments: object  # the grouping of records
    unit: object = 1.0  # of each coordinate

    @classmethod
    def of(cls, rule, form, weight, segments):
        """The rows of a sum of one atom of one affine form (`Tape.kinked_rows`), or None where the atom is another."""
        kinks, design = getattr(rule, "kinks_apart", None), form.design
        if kinks is None or design is None or form.inner or not (design.dense and form.on_records):
            return None
        if not ((weight > 0) & np.isfinite(weight)).all():
            return None
        place, low, high = kinks
        J, m, rows = len(place), design.m, segments.N
        weight = np.broadcast_to(weight.reshape(len(weight), -1), (rows, m)).repeat(J, axis=1)
        offset = 0.0 if form.offset is None else np.reshape(form.offset, (-1, m)).repeat(J, axis=1)
        place, low, high = (np.tile(part, m) for part in (place, low, high))
        shift, delta = np.broadcast_to(offset - place, weight.shape), rule.delta / weight
        return cls(design, shift, low * weight, high * weight, delta, J, segments)

    def rescaled(self, weight, unit):
        """weight × the sum at unit · theta, of another theta."""
        low, high, delta = self.low * weight, self.high * weight, self.delta / weight
        return replace(self, unit=self.unit * unit, low=low, high=high, delta=delta)

    def arguments(self, theta):
        """r, shape (N, m J)."""
        return self.tangent(theta) + self.shift

    def tangent(self, move):
        """Change of r with theta."""
        return self.design.matvec(self.unit * move).repeat(self.J, axis=1)

    def back(self, c):
        """Aᵀ c, shape (K, n)."""
        return self.unit * self.design.rmatvec(self._by_row(c))

    def gram(self, weights):
        """Aᵀ diag(weights) A, blocks (K, n, n)."""
        return self.design.gram(self._by_row(weights)) * np.multiply.outer(self.unit, self.unit)

    def _by_row(self, values):
        return values if self.J == 1 else values.reshape(len(values), -1, self.J).sum(axis=2)

    def slopes(self, r):
        """The c that attain the maximum: derivatives of the smoothed kinks."""
        return np.clip(r / (self.delta + 1e-300), self.low, self.high)
