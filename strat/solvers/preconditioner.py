"""Approximate inverses of a graph's Laplacian plus one block for each stratum."""

from contextlib import suppress
from functools import cached_property, partial

import numpy as np
from scipy.linalg import eigh
from scipy.linalg.lapack import dpbtrf, dpbtrs

from strat.solvers.free_directions import times

SPREAD = 16.0  # coordinates whose curvatures differ by a smaller factor share one factorisation
WIDE = 200  # mean entries in a column of a sparse factor up to which it pays
# Median ratio of degree to curvature, per neighbour, up to which blocks (or diagonals) are the better preconditioner:
# a graph with many neighbours mixes well.
WEAK = 2.5, 0.125
ALL_PAIRS = 2.0, 0.5  # the same where all pairs are candidates, whatever the number of neighbours
#: Eigenvalues of a block with unit diagonal below which they count as small, and as 0.
CORRELATED, NULL = 1e-5, 1e-13
SIMILAR = 0.5  # factors serve again while the shift changes by less than this share
LEAST = 1e-10  # smallest shift over the mean degree: a Laplacian alone is singular
CHEAP = 1000  # width**2 n up to which a banded factor beats conjugate gradients
LARGEST = 2**25  # entries of a banded factor
PART = 2**16  # numbers of the blocks that are inverted at a time


class Preconditioner:
    """Approximate inverse of G(w) diag(couple) + blocks.

    Each group of coordinates of equal coupling p and similar curvature s has one factorisation, of p G(w) + diag(s_k), which
    treats strong edges exactly. Where edges are weak, or where the graph would fill the factor in any order, the strata's
    blocks with their degrees are inverted instead: a graph that fills the factor mixes well, so that its degrees approximate
    its Laplacian well. On a chain or another narrow graph a banded factor gives the inverse up to rounding; `exact` is True.
    `rest` multiplies by the part of the matrix outside the inverted blocks; it is None if no blocks were inverted.
    """

    def __init__(self, laplacians):
        self.laplacians, self.edges, self.graph = laplacians, laplacians.edges, laplacians.degrees
        self.exact, self.rest, self.factorizations = False, None, 0
        self.shift, self._factors = np.zeros((0, 0)), []

    def prepare(self, blocks, bend, diagonal, free):
        """Function r -> approximate solution, (K, n) to (K, n), for `blocks` (K, n, n) or None, plus diagonals `bend` (K, n).

        `diagonal` (K, n), positive, is that of the sum, and the solution lies in the FreeDirections `free`. If `rest` is set,
        blocks that are not read-only hold their inverses afterwards.
        """
        self.exact, self.rest = False, None
        narrow = blocks is not None and free.mask is not None and self._is_narrow
        if narrow and (exact := self._banded(free, blocks, bend, diagonal)):
            self.exact = True
            return exact
        limit = WEAK[blocks is None] * 2 * self.edges.count / self.edges.K
        if self.edges.all_pairs:  # few of the pairs may have a positive weight
            limit = ALL_PAIRS[blocks is None]
        weak = 2 * np.count_nonzero(self.graph <= limit * diagonal) > diagonal.size
        # Where all weights are equal, what the blocks leave out has rank n.
        if not (weak or self.edges.width > WIDE or self.edges.uniform(self.laplacians.w)):
            whole = blocks is not None and free.all and self.laplacians.alike
            return whole and self._by_correlations(blocks, bend) or self.by_graph(diagonal)
        if blocks is None:
            scale = diagonal + self.graph
            return lambda r: r / scale
        out, self.rest = blocks if blocks.flags.writeable else np.empty(blocks.shape), self.laplacians.between
        outside, step = diagonal.mean(axis=1), max(1, PART // blocks[0].size)
        for part in (slice(first, first + step) for first in range(0, len(blocks), step)):
            own = blocks[part].copy()
            np.einsum("kaa->ka", own)[...] += bend[part] + self.graph[part] + 1e-14 * diagonal[part]
            out[part] = _inverses(free.restricted(own, outside[part], part))
        return partial(times, out)

    @cached_property
    def _is_narrow(self):
        """Whether a banded factor costs less than conjugate gradients do."""
        edges, n = self.edges, self.laplacians.n
        if edges.count**2 * n > CHEAP * edges.K**2:  # too wide in any order
            return False
        width = edges.band[1]
        return width > 0 and width**2 * n <= CHEAP and edges.K * n * (width * n + 1) <= LARGEST

    def _banded(self, free, blocks, bend, diagonal):
        """The inverse itself, by a banded Cholesky factor; None where the matrix is not positive definite.

        With the strata in an order that keeps neighbours at most `width` places apart, coordinate c of the stratum in place
        p is row p n + c, and the bandwidth is width n: that of a chain is n.
        """
        self.factorizations += 1
        (place, width), (i, j), (K, n) = self.edges.band, self.edges.ends, diagonal.shape
        blocks = free.restricted(blocks, diagonal.mean(axis=1))
        band = np.zeros((K, n, width * n + 1))  # band[p, c, d]: entry at d rows below the diagonal
        for c in range(n):
            band[place, c, : n - c] = blocks[:, c:, c]
        band[place, :, 0] += bend + self.graph + 1e-15 * diagonal
        joint = 1.0 if free.all else free.mask[i] & free.mask[j]
        low, apart = np.minimum(place[i], place[j]), np.abs(place[i] - place[j])
        band[low[:, None], np.arange(n), apart[:, None] * n] = -self.laplacians.entries * joint
        factor, info = dpbtrf(band.reshape(K * n, -1).T, lower=1, overwrite_ab=1)

        def solve(r):
            b = np.empty((K, n))
            b[place] = r
            return dpbtrs(factor, b.reshape(-1), lower=1, overwrite_b=1)[0].reshape(K, n)[place]

        return None if info else solve

    def by_graph(self, diagonal):
        """Inverse of G(w) diag(couple) + diag(about `diagonal`), (K, n), from one factor for every group of coordinates."""
        # Coordinates of equal coupling whose mean curvatures differ by a factor of at most SPREAD form a group.
        size, kind, groups = diagonal.mean(axis=0), self.laplacians.kind, []
        for c in np.lexsort((size, kind)):
            if not groups or kind[c] != kind[groups[-1][0]] or not size[c] <= SPREAD * size[groups[-1][0]]:
                groups.append([])
            groups[-1].append(c)
        groups = [np.sort(columns) for columns in groups]
        shift = [np.maximum(diagonal[:, c].mean(axis=1), LEAST * self.graph[:, c].mean()) for c in groups]
        shift = np.stack(shift, axis=1)
        if shift.shape != self.shift.shape or np.any(np.abs(shift - self.shift) > SIMILAR * self.shift):
            self.shift, self._factors = shift, []
        if not self._factors:  # after a restart from a checkpoint only the shift is known
            self._factors = [self._factor(s, c[0]) for c, s in zip(groups, self.shift.T, strict=True)]
        factors = self._factors
        if len(groups) == 1:
            return factors[0]

        def solve(r):
            out = np.empty_like(r)
            for columns, factor in zip(groups, factors, strict=True):
                out[:, columns] = factor(r[:, columns])
            return out

        return solve

    def _by_correlations(self, blocks, bend):
        """`by_graph` in directions that make the mean block and `couple` diagonal; None if the block is well conditioned."""
        # Columns that are far from 0 relative to their spread are strongly correlated with the intercept.
        mean = blocks.mean(axis=0) + np.diag(bend.mean(axis=0))
        scale = 1 / np.sqrt(np.maximum(mean.diagonal(), 1e-300))
        mean = scale[:, None] * mean * scale
        values = np.linalg.eigvalsh(mean) if np.isfinite(mean).all() else np.ones(1)
        if not np.any((values > NULL) & (values < CORRELATED)):
            return None
        p, V = eigh(np.diag(self.laplacians.couple * scale**2), mean + 10 * NULL * np.eye(len(mean)))
        p, V = np.maximum(p, 1e-30), scale[:, None] * V
        size = np.maximum(np.einsum("kaj,aj->kj", blocks @ V, V) + bend @ V**2, LEAST)
        level, parts = np.floor(np.log(p) / np.log(SPREAD)), []
        for columns in (np.flatnonzero(level == some) for some in np.unique(level)):
            coupled = p[columns].mean()
            factor = self.edges.solver(self.laplacians.w, size[:, columns].mean(axis=1) / coupled)
            parts.append((columns, coupled, factor))
        self.factorizations += len(parts)

        def solve(r):
            r = r @ V
            for columns, coupled, factor in parts:
                r[:, columns] = factor(r[:, columns]) / coupled
            return r @ V.T

        return solve

    def _factor(self, shift, c):
        factor = None
        with suppress(np.linalg.LinAlgError, RuntimeError):  # not positive definite up to rounding
            factor = self.laplacians.solver(c, shift)
        self.factorizations += factor is not None
        return factor or (lambda r: r / shift[:, None])


def _inverses(A):
    """Inverses of symmetric positive definite matrices (K, n, n): L⁻ᵀ L⁻¹, with A = L Lᵀ, row by row."""
    if A.size < PART // 4:  # too few to pay
        return np.linalg.inv(A)
    try:
        L = np.linalg.cholesky(A)
    except np.linalg.LinAlgError:  # a matrix is singular up to rounding
        return np.linalg.inv(A)
    inverse = np.zeros(A.shape)
    for a in range(A.shape[-1]):
        row = (L[:, a, None, :a] @ inverse[:, :a, :a])[:, 0]
        inverse[:, a, :a] = -row / L[:, a, a, None]
        inverse[:, a, a] = 1 / L[:, a, a]
    return inverse.swapaxes(1, 2) @ inverse
