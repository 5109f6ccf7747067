"""Semismooth Newton's method on a dual with one unknown for each stratum.

The graph steps of the regularizers of the degrees are

    minimise  sum_e (c_e w_e + rho_e w_e^2) + g(degrees of w)  over w >= 0.

With a multiplier nu_i for the degree of stratum i, the weights are w_e = max(0, nu_i + nu_j - c_e) / (2 rho_e), and
the dual, to be minimised, is sum_e rho_e w_e(nu)^2 plus a function `own` of nu alone, the conjugate of g. Its gradient
is the mismatch of the degrees, its Hessian D(a) + A(a) (the signless Laplacian) with a = 1 / (2 rho) on the edges of
positive weight, plus that of `own`.
"""

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

MOST = 200  # Newton iterations
SHORTEST = 1e-10  # step length at which the line search gives up
EXACT = 1e-13  # mismatch of the degrees that needs no further step
ROUNDING = 1e-13  # relative decrease that the value does not show reliably


class DegreeDual:
    """The edges' part of the dual.

    Parameters
    ----------
    edges : AllPairs or EdgeList
    c : edge array
    rho : float or edge array
        Above 0.
    """

    def __init__(self, edges, c, rho):
        self.edges, self.rho = edges, rho
        self._negative_c = np.where(edges.mask, -c, -np.inf) if edges.count else -c
        self._negative_c = np.asfortranarray(self._negative_c)

    def weights(self, nu):
        """Edge array of the weights at nu."""
        w = self.edges.add_ends(nu, self._negative_c.copy())
        np.maximum(w, 0.0, out=w)
        w /= 2 * self.rho
        return w

    def value(self, w):
        """Value where the weights are w."""
        return self.edges.dot(w, self.rho * w)

    def solver(self, w):
        """Function of a diagonal shift that gives the function b -> (Hessian + diag(shift))^-1 b."""
        edges = self.edges
        a = (w > 0) / (2 * self.rho)
        degrees = edges.degrees(a)

        def at(shift):
            shift = shift + 1e-15 * (degrees + shift)
            inner = edges.solver(-a, shift, degrees)

            def product(x):
                x = x.reshape(-1, 1)
                return (edges.laplacian(-a, x, degrees) + shift[:, None] * x)[:, 0]

            def solve(b):
                x = inner(b[:, None])[:, 0]
                if edges.exact_solver:
                    return x
                shape = (edges.K, edges.K)
                M = LinearOperator(shape, matvec=lambda r: inner(r.reshape(-1, 1))[:, 0])
                return cg(LinearOperator(shape, matvec=product), b, x0=x, rtol=1e-10, maxiter=1000, M=M)[0]

            return solve

        return at


def minimize(dual, own, nu):
    """Minimise the dual from nu.

    Parameters
    ----------
    dual : DegreeDual
    own : object
        The part of the strata: `value`, `gradient`, `size` of a mismatch, `longest` step, Newton `direction`.
    nu : ndarray, shape (K,)
        Start, inside the domain.

    Returns
    -------
    w : edge array
        The weights, the solution of the graph step.
    nu : ndarray, shape (K,)
    iterations : int
    """
    w = dual.weights(nu)
    value, mismatch = dual.value(w) + own.value(nu), dual.edges.degrees(w) + own.gradient(nu)
    size = own.size(mismatch, nu)
    for iteration in range(MOST):
        if size <= EXACT:
            return w, nu, iteration
        step = own.direction(dual.solver(w), mismatch, nu)
        slope, length = float(mismatch @ step), own.longest(nu, step)
        hidden = -slope <= ROUNDING * abs(value)  # only the mismatch can tell whether such a step helps
        while length > SHORTEST:
            trial = nu + length * step
            w_trial = dual.weights(trial)
            value_trial = dual.value(w_trial) + own.value(trial)
            mismatch_trial = dual.edges.degrees(w_trial) + own.gradient(trial)
            size_trial = own.size(mismatch_trial, trial)
            if size_trial <= 0.5 * size if hidden else value_trial <= value + 1e-4 * length * slope:
                break
            length = 0.0 if hidden else length / 2
        else:
            return w, nu, iteration
        nu, w, value, mismatch, size = trial, w_trial, value_trial, mismatch_trial, size_trial
    return w, nu, MOST
