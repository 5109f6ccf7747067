"""Linear systems with the Laplacian plus a multiple of the identity, factorised once for many right-hand sides."""

import numpy as np

from strat.solvers.newton_system import conjugate_gradients

EXACT = 1e-11  # relative residual of a solution by an exact factorisation
REDUCED = 1e-10  # reduction of the residual by conjugate gradients, in at most MOST steps
MOST = 500


class GraphSystem:
    """G(w) + 2 rho I for a given graph, with the Laplacian weighted by `couple` in every coordinate.

    Coordinates of one Laplacian p G(v) share a factorisation, of G(v) + (2 rho / p) I. Where the graph would fill the
    factor, the edge set has an approximate one, and conjugate gradients refine the solution.

    Parameters
    ----------
    problem : JointProblem
        Edges and `couple`.
    w : edge array
        The graph.
    """

    def __init__(self, problem, w):
        self.edges, laplacians = problem.edges, problem.laplacians(w)
        columns = [np.flatnonzero(laplacians.kind == kind) for kind in range(laplacians.kind.max() + 1)]
        self.groups = [(*laplacians.graph(same[0]), same) for same in columns]
        self.degrees = [self.edges.degrees(v) for v, _, _ in self.groups]
        self.rho, self.factorizations, self._solvers = None, 0, []

    def solve(self, b, rho, start):
        """Solution of (G(w) + 2 rho I) x = b, b (K, n); `start` is near it."""
        if rho != self.rho:
            self._factorise(rho)
        out = np.empty_like(b)
        for (v, p, columns), degrees, solver in zip(self.groups, self.degrees, self._solvers, strict=True):
            if solver is None:
                out[:, columns] = b[:, columns] / (2 * rho)
            else:
                graph = v, degrees, 2 * rho / p
                out[:, columns] = self._solved(solver, graph, b[:, columns] / p, start[:, columns])
        return out

    def _factorise(self, rho):
        self.rho, self._solvers = rho, []
        for (v, p, _), degrees in zip(self.groups, self.degrees, strict=True):
            coupled = p > 0 and degrees.any()
            shift = np.full(len(degrees), 2 * rho / p if coupled else 0.0)
            self._solvers.append(self.edges.solver(v, shift) if coupled else None)
            self.factorizations += coupled

    def _solved(self, solver, graph, b, start):
        v, degrees, shift = graph

        def product(u):
            return self.edges.laplacian(v, u, degrees) + shift * u

        x = solver(b)
        if np.linalg.norm(b - product(x)) <= EXACT * np.linalg.norm(b):
            return x
        rest = b - product(start)
        return start + conjugate_gradients(product, solver, rest, REDUCED * np.linalg.norm(rest), MOST)
