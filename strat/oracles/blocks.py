"""A loss at records on a device, by products of blocks of records, in any library of the array API standard.

Records are sorted by stratum and cut into M blocks of B records of one stratum. For an atom phi of u = A theta + b,

    Σ phi(u),    Aᵀ phi'(u),    Aᵀ diag(phi''(u)) A

of each block are elementwise functions and products of small matrices on the device. The host adds the blocks of a stratum.
"""

from types import SimpleNamespace

import numpy as np
import scipy.sparse as sp

from strat.oracles.base import Oracle
from strat.oracles.device import host

LONGEST, SMALL = (
    2**16,
    64,
)  # records of a block; those that cost as much as the transfer of its sums to the host
PIECE = 2**24  # numbers that are computed with at a time


class Blocks:
    """Records, of the ascending strata `index`, in blocks of equal length; repeated records fill the last one of a stratum.

    ``places`` (M, B) are the records, ``real`` says which are no repetitions, and ``stratum`` (M,) numbers those that occur.
    """

    def __init__(self, index):
        first = np.flatnonzero(np.diff(index, prepend=-1))
        ends, self.K = np.append(first[1:], len(index)), len(first)
        # With the mean there are at most twice as many places as records; where counts are similar, others need fewer.
        lengths = np.quantile(ends - first, np.linspace(0, 1, 9)), -(-len(index) // self.K)
        lengths = np.minimum(np.hstack(lengths).astype(int), LONGEST)
        self.B = int(min(lengths, key=lambda B: (-(-(ends - first) // B)).sum() * (B + SMALL)))
        counts = -(-(ends - first) // self.B)
        self.stratum, self._starts = np.repeat(np.arange(self.K), counts), np.cumsum(counts) - counts
        self.M = len(self.stratum)
        begin = first[self.stratum] + self.B * (np.arange(self.M) - self._starts[self.stratum])
        places, last = begin[:, None] + np.arange(self.B), ends[self.stratum, None] - 1
        self.real, self.places = places <= last, np.minimum(places, last)

    def sum(self, values):
        """(M, …) to (K, …)."""
        return np.add.reduceat(values, self._starts, axis=0)


class Term:
    """Σ weight × atom(arguments) over the places of blocks, arrays (M, B, m).

    The argument i is u = A theta + offset, `arguments` holding the offset. The row r of a record's A is Σ_j a_j S_jr, with
    coefficients a (M, B, p) and combinations S (p m, n) of the variables.
    """

    def __init__(self, rule, arguments, i, a, S, weight):
        self.rule, self.arguments, self.i, self.a, self.weight = rule, arguments, i, a, weight
        self.S, self.m = sp.csr_array(S), weight.shape[2]

    def spread(self, theta):
        """S theta, (K, p, m)."""
        return (theta @ self.S.T).reshape(len(theta), -1, self.m)

    def at(self, part, device, theta, along=None):
        """What `values` and the others take: some blocks at theta (blocks, p, m), and A `along` where it is given."""
        xp, a = device.xp, device.wide(self.a[part, ...])
        args = [device.wide(each[part, ...]) for each in self.arguments]
        args[self.i] = args[self.i] + xp.matmul(a, device.array(theta))
        along = xp.ones_like(args[self.i]) if along is None else xp.matmul(a, device.array(along))
        state = (args, *self.rule.forward(args), device.wide(self.weight[part, ...]))
        return SimpleNamespace(xp=xp, a=a, at=xp.matrix_transpose(a), state=state, along=along)

    def values(self, piece):
        """Σ phi(u), (blocks,)."""
        (_, out, _, weight), xp = piece.state, piece.xp
        return xp.sum(xp.where(weight == 0, 0.0, weight * out), axis=(1, 2))  # 0 · inf = 0

    def slopes(self, piece):
        """Aᵀ phi'(u), (blocks, p, m)."""
        return piece.xp.matmul(piece.at, self.rule.pullback(self.i, *piece.state))

    def bends(self, piece):
        """Aᵀ phi''(u) A along, (blocks, p, m)."""
        return piece.xp.matmul(piece.at, self.rule.curve(self.i, *piece.state, {self.i: piece.along}))

    def grams(self, piece):
        """Aᵀ diag(phi''(u)) A for each row of u, (blocks, m, p, p)."""
        xp, h = piece.xp, self.rule.curve(self.i, *piece.state, {self.i: piece.along})
        return xp.stack([xp.matmul(piece.at, h[..., r : r + 1] * piece.a) for r in range(self.m)], axis=1)

    def back(self, sums):
        """Sᵀ times sums (K, p, m): (K, n)."""
        return sums.reshape(len(sums), -1) @ self.S

    def back_twice(self, sums):
        """Sᵀ sums S of sums (K, m, p, p): (K, n, n)."""
        rows = [self.S[r :: self.m] for r in range(self.m)]
        pairs = sp.vstack([sp.kron(row, row, format="csr") for row in rows])
        return (sums.reshape(len(sums), -1) @ pairs).reshape(len(sums), *[self.S.shape[1]] * 2)


class BlockLoss(Oracle):
    """The sum of terms, functions of n numbers, over the records of each stratum."""

    def __init__(self, device, blocks, terms, n):
        self.device, self.blocks, self.terms, self.n = device, blocks, terms, n

    def _sums(self, points, *tasks):
        """For each term a list of it and the sums over strata of what each task gives."""
        stratum = self.blocks.stratum
        for term in self.terms:
            step, found = max(1, PIECE // (self.blocks.B * max(term.a.shape[2], term.m))), []
            spread = [term.spread(point) for point in points]
            for first in range(0, self.blocks.M, step):
                part = slice(first, min(first + step, self.blocks.M))
                piece = term.at(part, self.device, *(each[stratum[part]] for each in spread))
                found.append([host(task(term, piece)) for task in tasks])
            yield term, *(self.blocks.sum(np.concatenate(each)) for each in zip(*found, strict=True))

    def value(self, theta):
        """Values (K,)."""
        value = sum(values for _, values in self._sums((theta,), Term.values))
        return np.where(np.isnan(value), np.inf, value)

    def value_and_gradient(self, theta):
        """Values (K,) and gradients (K, n)."""
        terms, values, slopes = zip(*self._sums((theta,), Term.values, Term.slopes), strict=True)
        value = sum(values)
        return np.where(np.isnan(value), np.inf, value), sum(map(Term.back, terms, slopes))

    def hessian(self, theta):
        """Blocks (K, n, n)."""
        return sum(term.back_twice(grams) for term, grams in self._sums((theta,), Term.grams))

    def hessian_operator(self, theta):
        """The Hessian as a map; every product is a pass over the records."""
        return lambda v: sum(term.back(bends) for term, bends in self._sums((theta, v), Term.bends))
