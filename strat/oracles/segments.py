"""Sums over the records of each stratum, for records sorted by stratum."""

from functools import cached_property

import numpy as np

from strat.oracles import kernels

SMALL = 24  # columns up to which a loop over the records is faster than products of padded batches
KEPT = 2**22  # numbers of records up to which they are kept padded


class Segments:
    """N records in K strata; ``index`` holds each record's stratum, in ascending order."""

    def __init__(self, index, K):
        self.index = np.asarray(index, dtype=np.intp)
        self.K, self.N = int(K), len(self.index)
        self.counts = np.bincount(self.index, minlength=self.K)
        self.filled = np.flatnonzero(self.counts)
        self._starts = (np.cumsum(self.counts) - self.counts)[self.filled]
        self._full = len(self.filled) == self.K

    def sum(self, values):
        """(N, …) to (K, …); a leading axis of 1 stands for N equal rows."""
        if len(values) == 1 and self.N != 1:
            return values * self.counts.reshape(-1, *[1] * (values.ndim - 1))
        if self.N == 0:
            return np.zeros((self.K, *values.shape[1:]))
        sums = np.add.reduceat(values, self._starts, axis=0)
        if self._full:
            return sums
        out = np.zeros((self.K, *values.shape[1:]))
        out[self.filled] = sums
        return out

    def max(self, values):
        """The largest of each stratum's values (N,), 0 without: (K,)."""
        out = np.zeros(self.K)
        out[self.filled] = np.maximum.reduceat(values, self._starts) if self.N else 0.0
        return out

    def gram(self, a, weight):
        """Σ weight_i a_i a_iᵀ over each stratum's records: (N, p) and (N,) to (K, p, p)."""
        return Grams(self, a)(weight)

    def any(self, mask):
        """Whether some record of each stratum has the mask set."""
        out = np.zeros(self.K, dtype=bool)
        out[self.index[mask]] = True
        return out


def compact(index):
    """The place of each of some ascending strata among those that occur, and how many occur."""
    place = np.cumsum(np.diff(index, prepend=index[:1]) > 0)
    return place, int(place[-1]) + 1 if len(place) else 0


class Grams:
    """Sums Σ weight_i a_i a_iᵀ over each stratum's records, of one (N, p) array for many weights.

    Strata of like size go together, padded by rows of zeros, so that one batched product serves many of them.
    """

    def __init__(self, segments, a):
        self.segments, self.a, self.shape = segments, a, (segments.K, a.shape[1], a.shape[1])
        self._blocks, self._rows = None, None
        if a.size and a.shape[1] <= SMALL:
            self._rows = kernels.of_floats(a)
            self._stratum = segments.index

    @cached_property
    def batches(self):
        """Strata of like size, the rows of `a` that are theirs, padded, and which of these are no padding."""
        counts, p, batches = self.segments.counts, self.a.shape[1], []
        starts = np.cumsum(counts) - counts
        level = np.ceil(np.log2(np.maximum(counts, 1))).astype(int)
        for size in np.unique(level[counts > 0]):
            strata = np.flatnonzero((level == size) & (counts > 0))
            length = int(counts[strata].max())
            batch = max(1, int(2**22 // max(length * p, 1)))
            for first in range(0, len(strata), batch):
                part = strata[first : first + batch]
                offsets = np.arange(length)
                inside = offsets < counts[part][:, None]
                batches.append((part, np.where(inside, starts[part][:, None] + offsets, 0), inside))
        return batches

    def __call__(self, weight):
        """The sums (K, p, p) for weights (N,)."""
        if kernels.compiled and self._rows is not None:
            return kernels.compiled.grams(self._rows, self._stratum, weight, self.segments.K)
        out = np.zeros(self.shape)
        for (part, rows, _), block in zip(self.batches, self._padded(), strict=True):
            out[part] = np.matmul(block.swapaxes(1, 2), block * weight[rows][..., None])
        return out

    def _padded(self):
        if self._blocks is not None:
            return self._blocks
        blocks = (self.a[rows] * inside[..., None] for _, rows, inside in self.batches)
        if self.a.size > KEPT:
            return blocks
        self._blocks = list(blocks)
        return self._blocks
