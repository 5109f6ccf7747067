"""The Laplacians of a fixed graph: one for each coordinate of a stratum's parameters."""

from functools import cached_property

import numpy as np
import scipy.sparse as sp


class Laplacians:
    """G_c for each coordinate c of a stratum's parameters, where edge e has the weight w_e couple_c or w_e couple_ec.

    `couple` is (n,) (the Laplacians are `alike`, multiples of one), or (E, n), which needs an EdgeList; `degrees` (K,) are
    those of w.
    """

    entries = cached_property(lambda self: self.w[:, None] * self.couple)  # by edge and coordinate, (E, n)
    any = cached_property(lambda self: bool(self.degrees.any()))  # whether some edge joins strata

    def __init__(self, edges, w, couple, degrees=None):
        self.edges, self.w, self.couple, self.alike = edges, w, couple, couple.ndim == 1
        self.n = couple.shape[-1]
        self.sums = edges.degrees(w) if degrees is None else degrees  # degrees (K,) of w alone

    @cached_property
    def degrees(self):
        """Their diagonals, shape (K, n)."""
        if self.alike:
            couple = self.couple[:1] if np.ptp(self.couple) == 0 else self.couple
            return np.broadcast_to(self.sums[:, None] * couple, (len(self.sums), self.n))
        return abs(self.edges.incidence) @ self.entries

    def times(self, theta):
        """G_c theta_c for all c, shape (K, n)."""
        if self.alike:
            out = self.sums[:, None] * theta
            out -= self.edges.adjacency_operator(self.w)(theta)
            return np.multiply(out, self.couple, out=out)
        i, j = self.edges.ends
        return self.edges.incidence @ (self.entries * (theta[i] - theta[j]))

    @cached_property
    def operator(self):
        """`times`, for many products."""
        if self.alike:
            return lambda theta: self.degrees * theta + self.between(theta)
        matrix = self.matrix()
        return lambda theta: (matrix @ theta.reshape(-1)).reshape(theta.shape)

    @cached_property
    def between(self):
        """The products without the diagonal: what the strata's neighbours contribute."""
        if not self.alike:
            return lambda theta: self.operator(theta) - self.degrees * theta
        if np.ptp(self.couple) == 0:
            return self.edges.adjacency_operator(-self.couple[0] * self.w)
        times, couple = self.edges.adjacency_operator(self.w), -self.couple
        return lambda theta: times(theta) * couple

    def matrix(self):
        """All as one csr_array over strata and coordinates, (K n, K n), coordinate c of stratum k at k n + c."""
        K, n, (i, j) = self.edges.K, self.n, self.edges.ends
        index, weights = np.arange(K * n).reshape(K, n), self.entries.ravel()
        used = weights != 0
        low, high, every = index[i].ravel()[used], index[j].ravel()[used], index.ravel()
        places = np.concatenate([low, high, every]), np.concatenate([high, low, every])
        values = np.concatenate([-weights[used], -weights[used], self.degrees.ravel()])
        return sp.csr_array((values, places), shape=(K * n, K * n))

    def graph(self, c):
        """(v, p): the edge array v and the number p with G_c = p G(v); p is 0 where G_c is."""
        if self.alike:
            return self.w, self.couple[c]
        column = np.ascontiguousarray(self.entries[:, c])
        return column, float(column.any())

    @cached_property
    def kind(self):
        """A code (n,) for each coordinate, equal for coordinates with equal Laplacians."""
        weights, axis = (self.couple, None) if self.alike else (self.entries, 1)
        return np.unique(weights, axis=axis, return_inverse=True)[1].ravel()

    @cached_property
    def components(self):
        """The component (K, n) of each coordinate of each stratum: strata joined by the coordinate's graph share one."""
        out, first = np.empty((self.edges.K, self.n), dtype=np.intp), 0
        for kind in range(self.kind.max(initial=-1) + 1):
            (alike,) = np.nonzero(self.kind == kind)
            v, p = self.graph(alike[0])
            count, component = self.edges.components(v * p)
            out[:, alike] = first + component[:, None] + count * np.arange(len(alike))
            first += count * len(alike)
        return out

    @cached_property
    def hub(self):
        """h (n,) where all pairs have one weight: ½ Σ_c theta_c · G_c theta_c is the least ½ Σ_kc h_c (theta_kc − m_c)² over m.

        None for other graphs.
        """
        uniform = self.alike and self.edges.uniform(self.w)
        return self.edges.K * self.w[0] * self.couple if uniform else None

    def solver(self, c, shift):
        """Function b -> (G_c + diag(shift))^-1 b for b (K, m); None where G_c is 0."""
        v, p = self.graph(c)
        if p == 0:
            return None
        solve = self.edges.solver(v, shift / p)
        return solve if p == 1 else lambda b: solve(b) / p

    def energy(self, theta):
        """1/2 sum_c theta_c . G_c theta_c, from explicit differences."""
        if self.alike:
            distances = self.edges.distances(theta * np.sqrt(self.couple))
            return 0.5 * float(self.w @ distances)
        i, j = self.edges.ends
        return 0.5 * float(np.vdot(self.entries, (theta[i] - theta[j]) ** 2))
