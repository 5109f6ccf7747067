"""Losses with kinks that are smoothed, by interior points over all strata of a graph."""

from strat.oracles.base import hessian_blocks
from strat.oracles.interior_point import InteriorPoint, kinked_and_quadratic
from strat.solvers.free_directions import FreeDirections, times

DAMPING = 1e-9  # share of every diagonal entry that is added to it


class Smoothed:
    """The minimiser of a JointProblem whose terms are quadratic but for kinks of records (`rows`), by an `InteriorPoint`.

    `system`, a NewtonSystem, solves with the matrices; `rest` are the oracles of all other terms but the Laplacian's.
    """

    def __init__(self, problem, system, rows, rest):
        self.problem, self.system, self.rows, self.rest = problem, system, rows, rest
        self.everywhere = FreeDirections.everywhere(problem.K, problem.n)

    @classmethod
    def of(cls, problem, system):
        """The method for a problem, or None where it is not of this kind."""
        known = kinked_and_quadratic([*getattr(problem.loss, "parts", ()), problem.regularizer])
        return cls(problem, system, *known) if known and system.forms_blocks else None

    def minimiser(self, point, tol):
        """Theta from a differentiated point on, as far as a gradient of norm tol."""
        rows, theta = self.rows, point.theta
        slope = point.theta_gradient + self.problem.regularizer_slope(theta)
        slope = slope - rows.back(rows.slopes(rows.arguments(theta)))
        self.quadratic = sum(hessian_blocks(oracle, theta) for oracle in self.rest)
        return InteriorPoint(rows, self.quadratic, self).solve(theta, slope, tol)

    def factorise(self, blocks):
        """Take the blocks."""
        self.system.take(blocks)
        self.system.set(self.everywhere, share=DAMPING)

    def solve(self, b, tolerance):
        """Solve with the blocks and the Laplacian."""
        return self.system.solve(b, self.everywhere, tolerance)

    def product(self, move):
        """The product with the Hessian of what is quadratic."""
        bent = times(self.quadratic, move)
        return bent + self.system.laplacian(move) if self.system.coupled else bent
