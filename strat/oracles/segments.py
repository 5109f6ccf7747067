"""Sums over the records of each stratum, for records sorted by stratum."""

import numpy as np


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

    def gram(self, a, weight):
        """Σ weight_i a_i a_iᵀ over each stratum's records: (N, p) and (N,) to (K, p, p)."""
        p, counts = a.shape[1], self.counts
        out = np.zeros((self.K, p, p))
        starts = np.cumsum(counts) - counts
        # Strata of like size go together, padded, so that one batched product serves many of them.
        level = np.ceil(np.log2(np.maximum(counts, 1))).astype(int)
        for size in np.unique(level[counts > 0]):
            strata = np.flatnonzero((level == size) & (counts > 0))
            length = int(counts[strata].max())
            batch = max(1, int(2**22 // max(length * p, 1)))
            for first in range(0, len(strata), batch):
                part = strata[first : first + batch]
                offsets = np.arange(length)
                inside = offsets < counts[part][:, None]
                rows = np.where(inside, starts[part][:, None] + offsets, 0)
                block = a[rows]
                out[part] = np.matmul(np.swapaxes(block, 1, 2), block * (weight[rows] * inside)[..., None])
        return out

    def any(self, mask):
        """Whether some record of each stratum has the mask set."""
        out = np.zeros(self.K, dtype=bool)
        out[self.index[mask]] = True
        return out
