"""The joint problem in parameters and edge weights, in the form that solvers use."""

import copy
import math
from contextlib import suppress
from functools import cached_property

import numpy as np

from strat.problem.laplacians import Laplacians

PROJECTION = 1e-14  # step of a prox that projects, where the loss's coefficients are about 1
COLUMNS = (1e-2, 1e2)  # range of root mean squares within which columns are taken as they are
#: Rounding error relative to degrees, the share of gradients above which it counts, and a negligible share of degrees and F.
EPS, SEEN, TIGHT = 1e-16, 1e-8, 1e-10
ALIKE = 0.99  # share of the mean in a parameter's sum of squares from which it counts as alike in all strata
#: The attributes of a point that depend on theta, without the gradients, and those that depend on w alone.
OF_THETA = ("losses", "loss", "laplacian", "regularizer", "_product", "energies", "_centred")
OF_W = ("w", "laplacians", "graph", "graph_oracle")
#: Count of parameters at which a regularizer is evaluated at a time, so that intermediate arrays stay in the cache.
PART = 2**17


class JointProblem:
    """F(theta, w) = sum_k loss_k + sum_k r + 1/2 sum_e w_e d_e + h(w).

    `loss` and `regularizer` are oracles over K strata of n parameters; the regularizer's prox also satisfies the constraints.
    `graph_regularizer` is h, on the pairs `edges`; `w0` are the prior graph's weights. `couple`, (n,) or, on an EdgeList,
    (E, n), weights each coordinate in the distance d_e = sum_c couple_c (theta_ic - theta_jc)^2; ones by default. `outside` is
    the sum of the squares of the prior graph's weights on pairs that are not edges, a constant of the objective.
    ``start_point(theta, bad)``, if set, gives a start (K, n) for a theta that is not `inside` in the strata `bad`. `empty`
    (K,), if set, masks the strata without records.
    """

    given = cached_property(lambda self: self.laplacians(self.w0))  # of the graph W0

    def __init__(self, loss, regularizer, graph_regularizer, edges, w0, couple=None, outside=0.0):
        self.loss, self.regularizer, self.graph_regularizer = loss, regularizer, graph_regularizer
        self.edges, self.w0 = edges, w0
        self.K, self.n, self.outside = edges.K, loss.n, outside
        self.couple = None if couple is None or np.all(couple == 1) else np.asarray(couple, dtype=float)
        self._weights = np.ones(self.n) if self.couple is None else self.couple
        self.learned = graph_regularizer.learned
        if self.learned and self.couple is not None and self.couple.ndim == 2:
            self.edges = copy.copy(edges)
            self.edges.couple = self.couple
        self.start_point = self.empty = None

    def point(self, theta, w):
        """One point of the problem, evaluated at (theta, w); w is W0 where the graph is given."""
        return Point(self).move(theta, w).evaluate()

    def graph_oracle(self):
        """A new oracle of h, with memory for one point."""
        h = self.graph_regularizer
        return h._oracle_class(h, self.edges, self.w0, self.outside)

    def feasible(self, w):
        """Whether h is finite at w, so that a solver may start there."""
        return not self.learned or self.graph_oracle().feasible(w)

    def laplacians(self, w, degrees=None):
        """The Laplacians of the coordinates of theta, weighted by `couple`."""
        return Laplacians(self.edges, w, self._weights, degrees)

    def scaled(self, theta):
        """theta in coordinates where the distance is Euclidean, or as it is if `couple` differs between edges."""
        return theta if self.couple is None or self.couple.ndim == 2 else theta * np.sqrt(self.couple)

    def centred(self, theta):
        """theta less its means over the strata, which cancel on every edge, if they are so large that they hide differences."""
        mean = np.add.reduce(theta) / self.K
        return theta - np.where(self.K * mean * mean >= ALIKE * np.vecdot(theta, theta, axis=0), mean, 0.0)

    def prox(self, theta, t, start=None):
        """Prox of the regularizer and constraints, step t scalar or one per stratum; NaN for points that are not finite.

        `start` is the Start of a fit's next prox, where that is costly.
        """
        if not math.isfinite(np.add.reduce(theta, axis=None)):  # factorisations of these may never return
            return np.full_like(theta, np.nan)
        if getattr(self.regularizer.prox, "costly", False):
            return self.regularizer.prox(theta, t, start)
        return _by_parts(self.regularizer.prox, theta, t)

    def regularizer_values(self, theta):
        """The regularizer's values (K,)."""
        return _by_parts(lambda some, _: self.regularizer.value(some), theta)

    def regularizer_slope(self, theta):
        """Gradient (K, n) of a regularizer that has one."""
        return _by_parts(lambda some, _: self.regularizer.value_and_gradient(some)[1], theta)

    @cached_property
    def sizes(self):
        """Root mean squares (n,) of the columns, 0 where there are none."""
        return np.broadcast_to(getattr(self.loss, "sizes", 0.0), self.n)

    @property
    def raw(self):
        """Whether the root mean square of some column lies outside COLUMNS."""
        sizes = self.sizes[self.sizes > 0]
        return bool(sizes.size) and not (sizes.min() >= COLUMNS[0] and sizes.max() <= COLUMNS[1])

    def project(self, theta):
        """The nearest point in the regularizer's domain: its prox with a step too short to follow a slope, in any units."""
        return self.prox(theta, PROJECTION / self.sizes.max(initial=1.0) ** 2)

    def half_distances(self, theta):
        """1/2 ||theta_i - theta_j||^2 of every edge, an edge array."""
        return self.edges.distances(math.sqrt(0.5) * self.scaled(theta))

    @np.errstate(all="ignore")
    def inside(self, theta):
        """Mask (K,) of the strata whose loss is finite at theta, and its gradient where it has one."""
        if not self.loss.has("value_and_gradient"):
            return np.isfinite(self.loss.value(theta))
        value, gradient = self.loss.value_and_gradient(theta)
        return np.isfinite(value) & np.isfinite(gradient).all(axis=1)

    def parts(self, theta, w):
        """The terms of the objective, each computed afresh: loss, regularizer, laplacian, graph."""
        graph_oracle = self.graph_oracle() if self.learned else None
        graph = graph_oracle.set(w) + graph_oracle.rest() if self.learned else 0.0
        loss, regularizer = (float(np.sum(f(theta))) for f in (self.loss.value, self.regularizer_values))
        laplacian = self.laplacians(w).energy(theta)
        return {"loss": loss, "regularizer": regularizer, "laplacian": laplacian, "graph": float(graph)}

    def objective(self, theta, w):
        """F(theta, w)."""
        return sum(self.parts(theta, w).values())

    def residual(self, theta, w):
        """Distances from stationarity, relative to the terms that balance, as ``{"theta": ..., "W": ...}``.

        The length of a proximal gradient step of size 1: for theta divided by 1 + max(||grad loss||, ||G(w) theta||),
        for W by 1 + max(||d/2||, ||the gradient of h's main term||), with norms over the edges. Both are zero exactly
        at critical points, and infinite outside the domain.
        """
        point = self.point(theta, w)
        if not point.objective < np.inf:
            return {"theta": np.inf, "W": np.inf}
        return point.differentiate().residual()


class Point:
    """One point (theta, w) with its values and gradients, in memory that is allocated once.

    Write into `theta` and `w`, then `evaluate` (F, +inf outside the domain) and, if wanted, `differentiate`.
    """

    degrees = property(lambda self: self.laplacians.sums)  # (K,), of the graph

    def __init__(self, problem):
        self.problem, edges = problem, problem.edges
        self.theta, self.graph, self.graph_oracle = np.zeros((problem.K, problem.n)), 0.0, None
        if problem.learned:
            self.w, self.w_gradient, self.graph_oracle = edges.zeros(), edges.zeros(), problem.graph_oracle()
        else:
            self.w, self.laplacians = problem.w0, problem.given
        self.objective = self.smooth = self.loss = np.inf  # until it is evaluated
        self.laplacian = self.regularizer = 0.0
        self._product = self._centred = self.start = None

    def move(self, theta, w):
        """Write theta and, where it is learned, w."""
        self.theta[...] = theta
        if self.graph_oracle is not None:
            self.w[...] = w
        return self

    def take(self, other):
        """Take theta and its terms from an evaluated point with the same w."""
        vars(self).update({name: getattr(other, name) for name in OF_THETA})
        self.theta = other.theta.copy()
        return self.add_up()

    def forget(self):
        """Free the memory of gradients in theta."""
        self.loss_gradient = self.theta_gradient = self._product = self._centred = None

    def evaluate(self, gradient=False):
        """Compute the objective F, +inf outside the domain; `gradient`: also all gradients."""
        if self.evaluate_smooth(gradient) < np.inf:
            self.add_regularizer()
        return self

    def evaluate_smooth(self, gradient=False):
        """Compute and return the smooth part of F, without the regularizer, with `gradient` its gradients, too."""
        self.objective = self.smooth = np.inf
        if self.evaluate_w() and self.evaluate_theta(gradient):
            self.add_laplacian()
            if gradient:
                self._add_gradients()
        return self.smooth

    def evaluate_w(self):
        """Compute what depends on w alone; return whether it is in the domain."""
        if self.graph_oracle is not None:  # a given w does not change
            self.laplacians = self.problem.laplacians(self.w)
            self.graph = self.graph_oracle.set(self.w, self.degrees)
        return self.graph < np.inf

    def evaluate_theta(self, gradient=False):
        """Compute the losses, with `gradient` also their gradient; return whether theta is in their domain."""
        loss = self.problem.loss
        if not math.isfinite(np.add.reduce(self.theta, axis=None)):  # before a loss factorises them
            self.losses, self.loss = np.full(len(self.theta), np.inf), np.inf
            return False
        if gradient:
            self.losses, self.loss_gradient = loss.value_and_gradient(self.theta)
        else:
            self.losses = loss.value(self.theta)
        self.loss = float(np.add.reduce(self.losses))
        return self.loss < np.inf

    def move_theta(self):
        """Compute F where theta has moved and w has not."""
        self.evaluate_theta()
        self.add_laplacian()
        self.add_regularizer()

    def add_laplacian(self):
        """Compute the smooth part from the results of `evaluate_w` and `evaluate_theta`."""
        self._centred = self.problem.centred(self.theta)
        self._product = self.laplacians.times(self._centred)
        self.energies = 0.5 * np.vecdot(self._centred, self._product)
        self.laplacian = float(np.add.reduce(self.energies))
        self.smooth = self.loss + self.laplacian + self.graph

    @property
    def product(self):
        """Gradient of the Laplacian term in theta, shape (K, n), computed when it is first needed."""
        if self._product is None:
            self._product = self.laplacians.times(self.problem.centred(self.theta))
        return self._product

    def add_regularizer(self):
        """Compute the regularizer, and F."""
        self.regularizer = float(np.add.reduce(self.problem.regularizer_values(self.theta)))
        self.add_up()

    def add_up(self):
        """Compute the smooth part and F, +inf where it is not finite, from their terms."""
        self.smooth = self.loss + self.laplacian + self.graph
        rest = 0.0 if self.graph_oracle is None else self.graph_oracle.rest()
        total = self.smooth + self.regularizer + rest
        self.objective = total if total < np.inf else np.inf
        return self

    @property
    def noise(self):
        """Rounding error to expect in F, whose terms may cancel, as may parts of the Laplacian term; 0 outside the domain."""
        if not self.smooth < np.inf:
            return 0.0
        centred = self.problem.centred(self.theta) if self._centred is None else self._centred
        theta = self.problem.scaled(centred)
        energy = float(self.degrees @ np.vecdot(theta, theta))
        energy += 0.0 if self.graph_oracle is None else self.graph_oracle.ill_conditioned
        return 1e-14 * (1 + abs(self.loss) + abs(self.laplacian) + abs(self.graph)) + 2e-16 * energy

    def differentiate(self):
        """Compute the gradients of the smooth part at a point that is evaluated."""
        self.loss_gradient = self.problem.loss.value_and_gradient(self.theta)[1]
        return self._add_gradients()

    def _add_gradients(self):
        self.theta_gradient, self._residual = self.loss_gradient + self.product, None
        return self.differentiate_w()

    def differentiate_w(self):
        """Compute the smooth part's gradient over the edges of a learned graph, which does not depend on the loss."""
        if self.graph_oracle is not None:
            ends, half = self.graph_oracle.split_gradient(self.w_gradient), math.sqrt(0.5)
            self.problem.edges.add_ends(ends, self.w_gradient, half * self.problem.scaled(self.theta))
        return self

    def residual(self):
        """The residual of `JointProblem.residual` at a point with gradients."""
        if self._residual is None:
            ahead = self.problem.prox(self.theta - self.theta_gradient, 1.0, self.start)
            step = self._settled(self.theta - ahead)
            lost = 1e-16 * np.linalg.norm(self.theta)  # where theta is huge, rounding absorbs the step
            theta = _share(max(np.linalg.norm(step), lost), self.size)
            self._residual = {"theta": theta, "W": self.w_residual()}
        return self._residual

    def _settled(self, step):
        """The step, less G q if q = (G + s)⁻¹ step, s small, lowers F by a tiny ½ ⟨q, G q⟩: strong edges magnify rounding."""
        degrees, K = self.laplacians.degrees, len(step)
        if EPS * degrees.max() * np.linalg.norm(self.theta) <= SEEN * self.size:
            return step
        for c in np.flatnonzero(EPS * np.linalg.norm(degrees * self.theta, axis=0) > SEEN * self.size):
            s = TIGHT * degrees[:, c].mean()
            with suppress(np.linalg.LinAlgError, RuntimeError):
                q = self.laplacians.solver(c, np.full(K, s))(step[:, c, None])[:, 0]
                if np.vdot(q, step[:, c] - s * q) <= TIGHT * (1 + abs(self.objective)):
                    step[:, c] = s * q
        return step

    @property
    def size(self):
        """1 + size of the terms in the residual of theta, at a point with gradients."""
        return 1 + max(np.linalg.norm(self.loss_gradient), np.linalg.norm(self.product))

    def w_residual(self):
        """||prox(w - gradient) - w||, with step 1, over the size of its terms; 0 for a given graph."""
        if self.graph_oracle is None:
            return 0.0
        moved = self.w - self.w_gradient
        self.graph_oracle.prox(moved, 1.0, out=moved)
        return _share(np.linalg.norm(moved - self.w), self.w_scale())

    def w_scale(self):
        """The size of the terms in the W part of the residual."""
        return self.graph_oracle.size(self.problem.half_distances(self.theta))


def _by_parts(function, theta, t=1.0):
    """function(theta, t), an array with a row for each of the strata, computed for some of them at a time."""
    step = max(1, PART // theta.shape[1])
    if len(theta) <= step:
        return function(theta, t)
    parts = [slice(first, first + step) for first in range(0, len(theta), step)]
    return np.concatenate([function(theta[part], t[part] if np.ndim(t) else t) for part in parts])


def _share(step, size):
    """step / size, and infinite if numbers have overflowed, as nothing is known then."""
    return float(step / size) if step < np.inf and size < np.inf else np.inf
