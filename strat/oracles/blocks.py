"""A loss at records on a device, by products of blocks of records, in any library of the array API standard.

Records are sorted by stratum and cut into M blocks of B records of one stratum. For an atom phi of u = A theta + b,

    Σ phi(u),    Aᵀ phi'(u),    Aᵀ diag(phi''(u)) A

of each block are elementwise functions and products of small matrices on the device. The host adds the blocks of a stratum.
"""

import numpy as np
import scipy.sparse as sp

from strat.oracles.base import Oracle, host

LONGEST = 2**16  # records of a block
TRANSFER = 64  # records whose computation takes as long as the transfer of a block's sums to the host
PIECE = 2**24  # numbers that are computed with at a time


class Blocks:
    """Records, of the ascending strata `index`, in blocks of equal length; repeated records fill the last one of a stratum.

    ``places`` (M, B) are the records, ``real`` says which are no repetitions, and ``stratum`` (M,) numbers those that occur.
    """

    def __init__(self, index):
        first = np.flatnonzero(np.diff(index, prepend=-1))
        ends, K = np.append(first[1:], len(index)), len(first)
        # With the mean there are at most twice as many places as records; where counts are similar, others need fewer.
        lengths = np.quantile(ends - first, np.linspace(0, 1, 9)), -(-len(index) // K)
        lengths = np.minimum(np.hstack(lengths).astype(int), LONGEST)
        B = int(min(lengths, key=lambda B: (-(-(ends - first) // B)).sum() * (B + TRANSFER)))
        counts = -(-(ends - first) // B)
        self.stratum, self._starts = np.repeat(np.arange(K), counts), np.cumsum(counts) - counts
        begin = first[self.stratum] + B * (np.arange(len(self.stratum)) - self._starts[self.stratum])
        places, last = begin[:, None] + np.arange(B), ends[self.stratum, None] - 1
        self.real, self.places = places <= last, np.minimum(places, last)

    def sum(self, values):
        """(M, …) to (K, …)."""
        return np.add.reduceat(values, self._starts, axis=0)


class BlockLoss(Oracle):
    """Σ weight × atom(arguments) over the records of each stratum, arrays (M, B, m) on a device.

    The argument i is u = A theta + offset, `arguments` holding the offset. The row r of a record's A is Σ_j a_j S_jr, with
    coefficients a (M, B, p) and combinations S (p m, n) of the variables.
    """

    def __init__(self, device, blocks, rule, arguments, i, a, weight, S):
        self.device, self.blocks, self.rule, self.arguments, self.i = device, blocks, rule, arguments, i
        self.a, self.S, self.weight, self.m, self.n = a, sp.csr_array(S), weight, weight.shape[2], S.shape[1]

    def _sums(self, task, *points):
        """Sums over strata of the atom at points[0], and of Aᵀ g for each g from ``task(state, a, *A points[1:])``."""
        device, xp, M, found = self.device, self.device.xp, len(self.blocks.stratum), []
        step = max(1, PIECE // (self.a.shape[1] * max(self.a.shape[2], self.m)))
        spread = [(each @ self.S.T).reshape(len(each), -1, self.m)[self.blocks.stratum] for each in points]
        for first in range(0, M, step):
            part = slice(first, min(first + step, M))
            own = (each[part, ...] for each in (self.a, self.weight, *self.arguments))
            a, weight, *args = (xp.astype(each, xp.float64, copy=False) for each in own)
            u, *along = (xp.matmul(a, device.array(each[part])) for each in spread)
            args[self.i] = args[self.i] + u
            out, memo = self.rule.forward(args)
            values = xp.sum(xp.where(weight == 0, 0.0, weight * out), axis=(1, 2))  # 0 · inf = 0
            products = [
                xp.matmul(xp.matrix_transpose(a), g) for g in task((args, out, memo, weight), a, *along)
            ]
            found.append([host(values), *map(host, products)])
        values, *sums = (self.blocks.sum(np.concatenate(each)) for each in zip(*found, strict=True))
        return np.where(np.isnan(values), np.inf, values), *sums

    def value(self, theta):
        """Values (K,)."""
        return self._sums(lambda *_: (), theta)[0]

    def value_and_gradient(self, theta):
        """Values (K,) and gradients (K, n)."""
        value, slopes = self._sums(lambda state, a: [self.rule.pullback(self.i, *state)], theta)
        return value, slopes.reshape(len(theta), -1) @ self.S

    def _curve(self, state, along):
        return self.rule.curve(self.i, *state, {self.i: along})

    def hessian(self, theta):
        """Blocks (K, n, n)."""

        def task(state, a):
            h = self._curve(state, self.device.xp.ones_like(state[1]))
            return [h[..., r : r + 1] * a for r in range(self.m)]

        out = np.zeros((len(theta), self.n**2))
        for r, grams in enumerate(self._sums(task, theta)[1:]):
            S = self.S[r :: self.m]
            out += grams.reshape(len(theta), -1) @ sp.kron(S, S, format="csr")
        return out.reshape(-1, self.n, self.n)

    def hessian_operator(self, theta):
        """The Hessian as a map; every product is a pass over the records."""

        def product(v):
            _, bends = self._sums(lambda state, a, along: [self._curve(state, along)], theta, v)
            return bends.reshape(len(v), -1) @ self.S

        return product
