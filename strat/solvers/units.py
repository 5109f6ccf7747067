"""Units in which a problem's numbers are near one, so that fits do not depend on those of columns, labels and weights."""

import numpy as np

from strat.oracles.base import Rescaled
from strat.oracles.iterated_prox import ConeProx
from strat.oracles.prox_base import BlockProx
from strat.problem.joint_problem import JointProblem

LOSSES = (1e-1, 1e6)  # a loss in this range needs no scaling
APART = 1e3  # largest ratio of the units of coordinates that a closed prox ties together, and of F and h
PERFECT = 1e-13  # relative change of parameters that changes the loss of a perfect fit
FACTOR, TRIALS = 4.0, 150  # ratio of the parameters' sizes at which the loss is tried, and how many are tried


class Units:
    """The problem F(unit · s) / worth in s, with powers of two as units, so that nothing is rounded.

    A coordinate's unit is one over the root mean square of its columns. Coordinates that the regularizer's prox ties together
    share a unit; where theirs are too far apart, a cone program takes the place of the prox. Where the loss at the start is
    tiny or huge, it is the unit of the objective, and the size of parameters that changes it by as much again is their unit.

    `theta` is the start, or a point near the solution (`fitted`), whose loss counts as it is. `problem` is the one in these
    units, or the given one if its own will do; `unit` (n,) holds the units of theta's coordinates, `worth` that of F.
    """

    def __init__(self, problem, theta, fitted=False):
        self.problem, self.unit, self.worth, self.by_cones = problem, 1.0, 1.0, False
        sizes = problem.sizes
        if problem.raw:
            tied, prox = sizes.copy(), problem.regularizer.prox  # the largest of those that a prox ties
            for group in prox.ties(len(sizes)) if isinstance(prox, BlockProx) else ():
                tied[group] = tied[group].max()
            if getattr(prox, "transposed", None) is not None:
                tied = np.maximum(tied, tied[prox.transposed])
            tied = np.where(tied > 0, tied, 1.0)
            sizes = np.where(sizes > 0, sizes, tied)
            self.by_cones = bool(np.any(tied > APART * sizes)) and problem.regularizer.has("cones")
            self.unit = 2.0 ** np.round(np.log2(1 / (sizes if self.by_cones else tied)))
        loss = self._loss(theta)
        # A tiny loss may be that of a perfect fit, a huge one that of a start far from the optimum.
        if not (fitted or LOSSES[0] <= loss <= LOSSES[1]):
            at_zero = self._loss(np.zeros(theta.shape))
            sizes = [size for size in (loss, at_zero) if size < np.inf] or [0.0]
            loss = max(sizes) if loss < LOSSES[0] else min(sizes)
        worth = loss / np.sqrt(np.prod(LOSSES))
        # The weights of a learned graph would be badly scaled where h is tiny in the objective's unit.
        if loss and not LOSSES[0] <= loss <= LOSSES[1] and worth <= APART * problem.graph_regularizer._weight:
            self.worth = 2.0 ** np.round(np.log2(worth))
            self.unit = self.unit * self._size(theta, loss)
        if np.ndim(self.unit) or self.worth != 1:
            self.unit = np.broadcast_to(self.unit, problem.n).copy()
            couple = (1.0 if problem.couple is None else problem.couple) * self.unit**2 / self.worth
            loss, r = Rescaled(problem.loss, 1 / self.worth, self.unit), self.regularizer(problem.regularizer)
            h = problem.graph_regularizer._times(1 / self.worth)
            self.problem = JointProblem(loss, r, h, problem.edges, problem.w0, couple, problem.outside)

    def outgrown(self, x):
        """Whether the loss at a point is far above these units, or hidden by them and yet not mere rounding error."""
        if self.worth <= 1 or not abs(x.loss) < LOSSES[0]:
            return LOSSES[1] < abs(x.loss) < np.inf
        theta = self.outside(x.theta)
        near = theta + PERFECT * theta * np.random.default_rng(0).standard_normal(theta.shape)
        return abs(self._loss(near) - self._loss(theta)) < self._loss(theta)

    def _loss(self, theta):
        return abs(float(np.sum(self.problem.loss.value(theta))))

    def _size(self, theta, loss):
        """Roughly the largest size of parameters, in units of their columns, that changes the loss by less than itself."""
        signs = np.where(np.random.default_rng(0).random(theta.shape) < 0.5, -1.0, 1.0) * self.unit

        def changes(size):
            return not abs(self._loss(theta + size * signs) - loss) < loss

        large = changes(1.0)
        sizes = (FACTOR ** (-k if large else k) for k in range(1, TRIALS + 1))
        size = next((size for size in sizes if changes(size) != large), None)
        return 1.0 if size is None else size if large else size / FACTOR

    def inside(self, theta):
        """Parameters in these units."""
        return theta / self.unit

    def regularizer(self, regularizer):
        """A regularizer of the user's parameters in these units."""
        r = Rescaled(regularizer, 1 / self.worth, self.unit)
        if self.by_cones:
            r.prox = ConeProx(r.cones, "the regularizer")
        return r

    def outside(self, theta):
        """Parameters in the user's units."""
        return theta * self.unit
