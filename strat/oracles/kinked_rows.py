"""The records of a loss that is, for each, one smoothed kink of an affine function of the parameters."""

from dataclasses import dataclass

import numpy as np

from strat.oracles.design import DesignInUnits


@dataclass
class KinkedRows:
    """Σ_i max_{low <= c <= high} (c r_i − δ_i c² / 2) with r = A theta + shift: pinball, hinge, |u| and their like.

    Attributes
    ----------
    design : design
        A.
    shift : (N, m) ndarray
    low, high, delta : (N, m) ndarray
        Slopes before and behind the kinks, and widths, with the records' weights in them.
    """

    design: object
    shift: np.ndarray
    low: np.ndarray
    high: np.ndarray
    delta: np.ndarray

    @classmethod
    def of(cls, link):
        """The rows of a `SingleAtom`, or None where it is another sum."""
        kink = getattr(link.rule, "kink", None)
        if kink is None or not link.design.dense or not (link.weight > 0).all():
            return None
        place, before, behind, width = kink
        m = link.design.m
        rows = link.design.segments.N if link.segments is not None else None
        if rows is None:
            return None
        weight = np.broadcast_to(link.weight.reshape(len(link.weight), -1), (rows, m))
        offset = 0.0 if link.offset is None else np.reshape(link.offset, (-1, m))
        shift = np.broadcast_to(offset - place, (rows, m))
        return cls(link.design, shift, before * weight, behind * weight, width / weight)

    def rescaled(self, weight, unit):
        """weight × the sum at unit · theta, of another theta."""
        design = self.design if unit is None else DesignInUnits(self.design, unit)
        return KinkedRows(design, self.shift, self.low * weight, self.high * weight, self.delta / weight)

    def arguments(self, theta):
        """r, shape (N, m)."""
        return self.design.matvec(theta) + self.shift

    def tangent(self, move):
        """Change of r with theta."""
        return self.design.matvec(move)

    def back(self, c):
        """Aᵀ c, shape (K, n)."""
        return self.design.rmatvec(c)

    def gram(self, weights):
        """Aᵀ diag(weights) A, blocks (K, n, n)."""
        return self.design.gram(weights)

    def slopes(self, r):
        """The c that attain the maximum: derivatives of the smoothed kinks."""
        return np.clip(r / self.delta, self.low, self.high)
