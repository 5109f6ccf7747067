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

    def any(self, mask):
        """Whether some record of each stratum has the mask set."""
        out = np.zeros(self.K, dtype=bool)
        out[self.index[mask]] = True
        return out
