"""Linear systems of a given graph: Newton's equations, and the Laplacian plus a multiple of the identity."""

from functools import partial

import numpy as np

from strat.oracles.base import hessian_blocks, solve_blocks
from strat.oracles.interior_point import InteriorPoint, kinked_and_quadratic
from strat.solvers.free_directions import FreeDirections, times
from strat.solvers.preconditioner import Preconditioner

# Ratio of degrees to curvatures above which rounding hides the latter, a negligible share of such degrees, and most components.
STRONG, HELD, MOST_APART = 1e6, 1e-10, 500
BLOCKS = 2**27  # most numbers in the Hessians' blocks, if these are formed
COUPLED = 64  # most parameters per stratum for which coupled strata form new blocks at every step
ONCE = 16  # the same for a system of a single step
DIRECT = 100  # most parameters per stratum for which strata without edges are solved directly
MOST = 200  # conjugate gradient steps
# Ratio of degrees to the mean curvature below which a small residual hides errors in what edges alone determine. The relative
# error of solutions is then at most LEFT times the relative residual, and at most FORCED.
FAINT, LEFT, FORCED = 1e-4, 100.0, 0.1
DEFINITE = 1e-13  # share of every diagonal entry that keeps the equations definite without records
DAMPING = 1e-9  # the same in an interior point method
EXACT = 1e-11  # a solution of `GraphSystem` by its factor needs no refinement if its relative residual is at most this
REDUCED = 1e-10  # reduction of the residual by conjugate gradients otherwise


class NewtonSystem:
    """(H + ridge + G(w) diag(couple) + C) d = b over the free directions, C the curvature of the regularizer there.

    Conjugate gradients solve the system, in one step where the preconditioner is the inverse. Without edges (`coupled` is
    False) every stratum is solved directly. `once`: the system is for a single step, for which forming large Hessian blocks
    of coupled strata does not pay.
    """

    def __init__(self, problem, w, degrees, once=False):
        self.problem, self.K, self.n = problem, problem.K, problem.n
        self.laplacians = problem.laplacians(w, degrees)
        self.coupled, self.laplacian = self.laplacians.any, self.laplacians.operator
        self.forms_blocks = self.K * self.n**2 <= BLOCKS and (self.coupled or self.n <= DIRECT)
        self.quadratic = getattr(problem.loss, "quadratic", False)
        cheap = problem.loss.has("hessian") and (self.quadratic or self.n <= (ONCE if once else COUPLED))
        self._uses_blocks = self.forms_blocks and (cheap or not self.coupled)
        self._mean = self._blocks = None
        degrees = self.laplacians.degrees
        self._least = np.min(degrees, where=degrees > 0, initial=np.inf)
        self.preconditioner = Preconditioner(self.laplacians)
        self._work = np.empty((3, self.K, self.n))  # takes no memory until conjugate gradients write to it

    def measure(self, theta):
        """Take the losses' Hessian at theta; return every stratum's mean curvature (K,)."""
        loss = self.problem.loss
        if self._mean is not None and self.quadratic and (self._blocks is not None or not self._uses_blocks):
            return self._mean
        if self._uses_blocks:
            self.take(hessian_blocks(loss, theta))
        else:
            self._blocks, self._operator = None, loss.hessian_operator(theta)
            # Estimated by two products with vectors of signs.
            i = np.arange(theta.size)
            signs = [np.where((i * a >> 7) & 1, 1.0, -1.0).reshape(theta.shape) for a in (2654435761, 40503)]
            means = [np.mean(s * self._operator(s), axis=1) for s in signs]
            self._mean = np.maximum(np.mean(means, axis=0), 0.0)
        return self._mean

    def take(self, blocks):
        """Use the given blocks (K, n, n) as the Hessian's; they may be overwritten unless they are read-only."""
        self._blocks, self._operator = blocks, None
        self._mean = np.maximum(np.einsum("kaa->k", blocks) / self.n, 0.0)

    def bound(self, theta):
        """A bound (K,) on the curvature of a quadratic loss whose blocks are at hand; None for any other loss."""
        if not self.quadratic:
            return None
        self.measure(theta)
        size = None if self._blocks is None else np.linalg.norm(self._blocks, axis=(1, 2))
        return size if size is not None and size.any() else None

    def set(self, free, ridge=0.0, share=DEFINITE):
        """Set the free directions with their curvature C, and add a ridge (K,) and a share of each entry to the diagonal.

        In raw units, the same addition to all coordinates would hide the edges and curvatures of some of them.
        """
        blocks, degrees, mean = self._blocks, self.laplacians.degrees, self._mean[:, None]
        own = np.broadcast_to(mean, degrees.shape) if blocks is None else np.einsum("kaa->ka", blocks)
        diagonal = own.copy()
        self._faint = self._least < FAINT * mean.mean()
        held = self.coupled and blocks is not None and free.all
        self.strong = held and bool(np.any(degrees.mean(axis=0) > STRONG * own.mean(axis=0)))
        self.strong = self.strong and self.laplacians.components.max() < MOST_APART
        if self.strong:
            free.settle()
        added = diagonal + (0.0 if self.strong else degrees)
        added *= share
        added += np.asarray(ridge)[..., None] + 1e-300
        added = added if free.curvature.ndim == 2 else added[:, :, None] * np.eye(self.n)
        added += free.curvature
        diagonal += added if added.ndim == 2 else np.einsum("kaa->ka", added)
        if blocks is not None and added.ndim == 3:
            blocks, added = blocks + added, np.zeros(degrees.shape)
        self._matrices, self._diagonal = blocks, added
        if not self.coupled and blocks is not None:
            return
        if free.mask is not None and not free.all:
            diagonal = np.where(free.mask, diagonal, mean)
        np.maximum(diagonal, 1e-14 * (diagonal.mean(axis=0) + 1e-300), out=diagonal)
        if self.coupled:
            ready = self._with_common if self.strong else self.preconditioner.prepare
            self._precondition = ready(self._matrices, self._diagonal, diagonal, free)
            if self.preconditioner.rest:  # products do not need the blocks, which now hold their inverses
                self._blocks = self._matrices = self._diagonal = None
        else:
            self._precondition = partial(np.multiply, 1 / diagonal)

    def _with_common(self, blocks, added, diagonal, free):
        """A preconditioner that is exact for common moves of all strata of a component, which the edges do not affect.

        Z spans the common moves, so A Z = H Z. It is r -> Q + (1 − Z E⁻¹ (H Z)ᵀ) M⁻¹ (r − H Q), E = Zᵀ H Z, Q = Z E⁻¹ Zᵀ r.
        """
        component = self.laplacians.components
        number, H = component.max() + 1, blocks + added[:, :, None] * np.eye(self.n)
        places = component[:, :, None] * number + component[:, None, :]
        E = np.bincount(places.ravel(), H.ravel(), number**2).reshape(number, number)
        scale = np.outer(*2 * [1 / np.sqrt(E.diagonal())])
        inverse = np.linalg.pinv(E * scale, hermitian=True, rcond=1e-14) * scale

        held = added + HELD * self.laplacians.degrees
        precondition = self.preconditioner.prepare(blocks.copy(), held, diagonal, free)
        self.preconditioner.exact, self.preconditioner.rest = False, None

        def common(r):
            return (inverse @ np.bincount(component.ravel(), r.ravel(), number))[component]

        def solve(r):
            moved = common(r)
            apart = precondition(r - times(H, moved))
            return moved + apart - common(times(H, apart))

        return solve

    def release(self):
        """Free the preconditioner, after the last `solve`: functions that are evaluated next may need as much memory."""
        self._precondition = None

    def _times(self, d):
        """The whole matrix, not restricted to the free directions, times d (K, n)."""
        out = times(self._diagonal, d)
        out += times(self._matrices, d) if self._matrices is not None else self._operator(d)
        if self.coupled:
            out += self.laplacian(self.problem.centred(d) if self.strong else d)
        return out

    def solve(self, b, free, tolerance, checked=True):
        """Solution d (K, n), 0 off the free directions that were set; `checked`: refined even where a factor is exact."""
        if not self.coupled and self._matrices is not None:
            matrices = np.array(self._matrices)  # stratum by stratum
            np.einsum("kaa->ka", matrices)[...] += self._diagonal
            size = np.einsum("kaa->k", matrices) / self.n + 1e-300
            matrix = free.restricted(matrices, size) + (1e-14 * size)[:, None, None] * np.eye(self.n)
            return free.project(solve_blocks(matrix, free.project(b)))
        project, precondition = free.project, self._precondition
        if not checked and self.coupled and self.preconditioner.exact:
            return project(precondition(project(b)))
        products = 0

        def product(x):
            nonlocal products
            products += 1
            return project(self._times(x))

        between = self.coupled and self.preconditioner.rest
        rest = between and (lambda x: project(between(x)))
        b, share = project(b), 0.0
        if self._faint:
            share = min(LEFT * tolerance / (np.linalg.norm(b) + 1e-300), FORCED)
        d = conjugate_gradients(
            product, lambda r: project(precondition(r)), b, tolerance, MOST, self._work, rest, share
        )
        if products == MOST and self.forms_blocks and self.problem.loss.has("hessian"):
            self._uses_blocks = True  # from the next Hessian on: its diagonal alone preconditions poorly
        return d


class GraphSystem:
    """(G(w) diag(couple) + 2 rho I) x = b, by a factor for each rho, refined where the factor is approximate."""

    def __init__(self, problem, w):
        self.laplacians = problem.laplacians(w)
        self.preconditioner, self.rho = Preconditioner(self.laplacians), None

    def solve(self, b, rho, start):
        """Solution x for b (K, n); `start` is a point near x."""
        if rho != self.rho:
            self.rho, self._near = rho, self.preconditioner.by_graph(np.full(b.shape, 2 * rho))

        def product(u):
            return self.laplacians.operator(u) + 2 * rho * u

        x = self._near(b)
        if np.linalg.norm(b - product(x)) <= EXACT * np.linalg.norm(b):
            return x
        rest = b - product(start)
        goal, work = REDUCED * np.linalg.norm(rest), np.empty((3, *b.shape))
        return start + conjugate_gradients(product, self._near, rest, goal, 500, work)


def kinks_of(system):
    """The KinkedRows of a NewtonSystem's problem and its other terms, where these are quadratic; None for other problems."""
    loss, regularizer = system.problem.loss, system.problem.regularizer
    return kinked_and_quadratic([*getattr(loss, "parts", ()), regularizer]) if system.forms_blocks else None


def among_kinks(system, rows, rest, point, tol):
    """The minimiser theta of a problem with `kinks_of`, by an `InteriorPoint` from a point, to a gradient of norm tol."""
    problem, theta = system.problem, point.theta
    slope = point.theta_gradient + problem.regularizer_slope(theta)
    slope = slope - rows.back(rows.slopes(rows.arguments(theta)))
    everywhere, laplacian = FreeDirections.everywhere(*theta.shape), system.coupled and system.laplacian

    def solver_of(blocks):
        system.take(blocks)
        system.set(everywhere, share=DAMPING)
        return lambda b, tolerance: system.solve(b, everywhere, tolerance)

    quadratic = sum(hessian_blocks(oracle, theta) for oracle in rest)
    return InteriorPoint(rows, quadratic, solver_of, laplacian=laplacian).solve(theta, slope, tol)


def conjugate_gradients(product, precondition, b, tolerance, most, work, rest=None, share=0.0):
    """Approximate solution of product(x) = b, b (K, n), with a residual of norm `tolerance`, in `most` steps at most.

    With a `share` the preconditioned residual, which estimates the error, is at most this share of x, too. Given `rest`, the
    matrix is M + rest, M⁻¹ being the preconditioner, and M p follows from M M⁻¹ r = r. `work` is memory (3, K, n).
    """
    x, (r, p, Mp), rho = np.zeros_like(b), work, 1.0
    r[...], p[...], Mp[...] = b, 0.0, 0.0
    for _ in range(most):
        small = not float(np.vdot(r, r)) > tolerance**2
        if small and not share:
            break
        q = precondition(r)
        rho, old = float(np.vdot(r, q)), rho
        if not rho > 0 or (small and not np.abs(q).max() > share * np.abs(x).max()):
            break
        p *= rho / old
        p += q
        del q
        if not rest:
            Ap = product(p)
        else:
            Mp *= rho / old
            Mp += r
            Ap = rest(p)
            Ap += Mp
        curvature = float(np.vdot(p, Ap))
        if not (curvature > 0 and np.isfinite(curvature)):
            break
        r -= np.multiply(rho / curvature, Ap, out=Ap)
        x += np.multiply(rho / curvature, p, out=Ap)
        del Ap
    return x
