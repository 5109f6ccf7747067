"""Sums over the records of each stratum, for records sorted by stratum."""

import numpy as np

from strat.oracles import kernels

SMALL = 24  # columns up to which a loop over the records is faster than a product for each stratum


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
        if kernels.compiled and a.size and a.shape[1] <= SMALL:
            return kernels.compiled.grams(kernels.of_floats(a), self.index, weight, self.K)
        out = np.zeros((self.K, a.shape[1], a.shape[1]))
        for k, start in zip(self.filled, self._starts, strict=True):
            own = slice(start, start + self.counts[k])
            out[k] = (a[own] * weight[own, None]).T @ a[own]
        return out

    def any(self, mask):
        """Whether some record of each stratum has the mask set."""
        out = np.zeros(self.K, dtype=bool)
        out[self.index[mask]] = True
        return out


def compact(index):
    """The place of each of some ascending strata among those that occur, and how many occur."""
    place = np.cumsum(np.diff(index, prepend=index[:1]) > 0)
    return place, int(place[-1]) + 1 if len(place) else 0
