"""Semismooth Newton's method on a dual with one unknown for each stratum.

The graph steps of regularizers of the degrees are

    minimise  sum_e (c_e w_e + rho_e w_e^2) + g(degrees of w)  over w >= 0.

With a multiplier nu_i for the degree of stratum i, the weights are w_e = max(0, nu_i + nu_j - c_e) / (2 rho_e), and the dual,
to be minimised, is sum_e rho_e w_e(nu)^2 plus the conjugate of g at -nu. Its gradient is the mismatch of the degrees. The
edges' part of its Hessian is D(a) + A(a), the signless Laplacian, with a = 1 / (2 rho) on the edges of positive weight.
"""

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

MOST = 200  # Newton iterations
SHORTEST = 1e-10  # step length at which the line search gives up
EXACT = 1e-13  # mismatch of the degrees that needs no further step
ROUNDING = 1e-13  # relative decrease that the value does not show reliably


class DegreeDual:
    """The dual of one graph step, with rho > 0 a number or an edge array; each g has a subclass, with its own constants.

    A subclass gives the conjugate of g, its `value` and `gradient`, the `size` of a mismatch, the `longest` step, and the
    Newton `direction` from weights w, by the `solver` below.
    """

    def __init__(self, edges, c, rho, **own):
        self.edges, self.c, self.rho = edges, c, rho
        vars(self).update(own)

    def minimize(self, nu):
        """Minimise the dual from nu, inside its domain; return the weights, the best nu, and the iterations."""
        w, value, mismatch, size = self._evaluate(nu)
        for iteration in range(MOST):
            if size <= EXACT:
                return w, nu, iteration
            step = self.direction(w, mismatch, nu)
            slope, length = float(mismatch @ step), self.longest(nu, step)
            hidden = -slope <= ROUNDING * abs(value)  # only the mismatch can tell whether such a step helps
            while length > SHORTEST:
                trial = self._evaluate(nu + length * step)
                if trial[3] <= 0.5 * size if hidden else trial[1] <= value + 1e-4 * length * slope:
                    break
                length = 0.0 if hidden else length / 2
            else:
                return w, nu, iteration
            nu = nu + length * step
            w, value, mismatch, size = trial
        return w, nu, MOST

    def _evaluate(self, nu):
        """Weights, value, and the mismatch of the degrees with its size."""
        w = self.edges.add_ends(nu, -self.c)
        np.maximum(w, 0.0, out=w)
        w /= 2 * self.rho
        mismatch = self.edges.degrees(w) + self.gradient(nu)
        value = float(w @ (self.rho * w)) + self.value(nu)
        return w, value, mismatch, self.size(mismatch, nu)

    def solver(self, w, shift):
        """The function b -> (edges' part of the Hessian at w + diag(shift))^-1 b."""
        edges, a = self.edges, (w > 0) / (2 * self.rho)
        degrees = edges.degrees(a)
        shift = shift + 1e-15 * (degrees + shift)
        approximate, neighbors = edges.solver(-a, shift, degrees), edges.adjacency_operator(a)

        def solve(b):
            x = approximate(b[:, None])[:, 0]
            if edges.exact_solver:
                return x
            shape = (edges.K, edges.K)
            M = LinearOperator(shape, matvec=lambda r: approximate(r.reshape(-1, 1))[:, 0])
            A = LinearOperator(shape, matvec=lambda x: (degrees + shift) * x + neighbors(x))
            return cg(A, b, x0=x, rtol=1e-10, maxiter=1000, M=M)[0]

        return solve
