"""The quadratic part of a prox that compiled methods take: f(z) + ‖z − v‖²/(2t) times t, in the coordinates that are free."""

import numpy as np


class QuadraticPart:
    """½ xᵀGx − loadᵀx in x = (z up to the diagonals of symmetric variables, lifted coordinates).

    Parameters
    ----------
    n : int
        Coordinates of z.
    quadratic : Quadratic or None
        f.
    transposed : (n,) int ndarray or None
        Coordinates of the transposes of symmetric variables.
    curvature : (R or 1, e) ndarray
        Of the lifted coordinates; 0 for none.
    cost : (R or 1, e) ndarray or None
        Their linear part.
    lent : float
        The curvature that those without one get.
    """

    def __init__(self, n, quadratic, transposed, curvature, cost=None, lent=0.0):
        self.quadratic, self.curvature, self.cost, self.lent = quadratic, curvature, cost, lent
        self.n, self.basis, self.place = n, None, None
        if transposed is not None:
            own = np.flatnonzero(np.arange(n) <= transposed)
            self.own, self.place = own, np.searchsorted(own, np.minimum(np.arange(n), transposed))
            self.basis, self.n = np.eye(len(own))[self.place], len(own)

    def reduced(self, A, B):
        """Rows A z + B τ as rows of x."""
        return np.concatenate([A if self.basis is None else A @ self.basis, B], axis=1)

    def whole(self, x):
        """z of x."""
        return x[:, : self.n] if self.place is None else x[:, self.place]

    def __call__(self, v, t):
        """G (1 or K, N, N), load (K, N), and x at v, for steps t (1 or K, 1)."""
        G, load, start, n = np.eye(v.shape[1])[None], v, v, self.n
        if self.quadratic is not None:
            load = v - t * self.quadratic.value_and_gradient(np.zeros((1, v.shape[1])))[1]
            if np.any(self.quadratic.H):
                G = G + t[:, :, None] * self.quadratic.H
        if self.basis is not None:
            load, G, start = load @ self.basis, self.basis.T @ G @ self.basis, v[:, self.own]
        e = self.curvature.shape[1]
        if e:
            flat = ~self.curvature.any(axis=0)
            own = np.where(flat, self.lent, t * self.curvature)
            whole = np.zeros((max(len(G), len(own)), n + e, n + e))
            whole[:, :n, :n] = G
            whole[:, np.arange(n, n + e), np.arange(n, n + e)] = own
            more = np.zeros((1, e)) if self.cost is None else -t * self.cost
            G, load = whole, np.concatenate([load, np.broadcast_to(more, (len(load), e))], axis=1)
            start = np.concatenate([start, np.zeros((len(v), e))], axis=1)
        return G, np.array(load, dtype=float, order="C"), start


def by_row(part):
    """(J, R, m) as the compiled methods read it, (R, m, J)."""
    return np.ascontiguousarray(np.moveaxis(part, 0, 2))
