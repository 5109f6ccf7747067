"""The inverse of G(w) diag(couple) + blocks for a complete graph of equal weights: blocks and one rank n correction."""

import numpy as np

from strat.solvers.free_directions import times


class UniformFactor:
    """Solves with diag(blocks) + s (K I − 1 1ᵀ) ⊗ diag(couple), by the formula of Sherman, Morrison and Woodbury.

    Parameters
    ----------
    edges : AllPairs or EdgeList
    w : edge array
    couple : (n,) ndarray
        Weight of every coordinate's Laplacian.
    """

    def __init__(self, edges, w, couple):
        self.weight, self.couple = float(edges.vector(w)[0]), couple

    @staticmethod
    def suits(edges, w):
        """Whether the graph is complete and its weights are equal."""
        if edges.K < 2 or edges.count != edges.K * (edges.K - 1) // 2:
            return False
        weights = edges.vector(w)
        return bool(weights[0] > 0 and np.ptp(weights) <= 1e-14 * weights[0])

    def factor(self, blocks, diagonal, mask):
        """Function r -> solution, (K, n) to (K, n); None where the matrix is not positive definite.

        Parameters
        ----------
        blocks : (K, n, n) ndarray
            Diagonal blocks, already restricted to the free coordinates.
        diagonal : (K, n) ndarray
            What to add to their diagonals: the degrees.
        mask : (K, n) bool ndarray or None
            The free coordinates; None where all are.
        """
        blocks, n = np.array(blocks), blocks.shape[1]
        root = np.broadcast_to(np.sqrt(self.weight * self.couple), blocks.shape[:2])
        root = root if mask is None else root * mask
        np.einsum("kaa->ka", blocks)[...] += diagonal + root**2
        try:
            np.linalg.cholesky(blocks)  # raises, as inv does not, where a block is not positive definite
            inverse = np.linalg.inv(blocks)
            own = np.einsum("ka,kab,kb->ab", root, inverse, root)
            left = np.eye(n) - 0.5 * (own + own.T)
            np.linalg.cholesky(left)  # and the whole matrix is, where this one is too
            correction = np.linalg.inv(left)
        except np.linalg.LinAlgError:
            return None

        def solve(r):
            x = times(inverse, r)
            common = correction @ np.einsum("ka,ka->a", root, x)
            return x + times(inverse, root * common)

        return solve
