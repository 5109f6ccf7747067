"""The diagonal metrics of MAPG: how far each stratum and each edge may move, learned from previous steps."""

import math

import numpy as np

# The next curvature is RAISED times the measured one, and at least LEAST times the last one. If both are larger, fewer
# steps have to be repeated, but all steps are shorter.
RAISED, LEAST = 1.3, 0.6
AGE = 10  # most iterations between two measurements of the edges' curvature
FLATTEST = 1e-9  # least curvature of h: where h is linear, steps would be lost to rounding
TINY, STEEPEST = 1e-300, 1e100  # least and most curvature: steps with more are 0


class StrataMetric:
    """One number per stratum: curvature of its loss plus a multiple of its degree.

    The loss part is raised where the losses rise above their quadratic models, and otherwise follows the curvature
    measured along the steps. The Laplacian is below twice the degrees, so `share` = 2 is always safe; less is tried.
    """

    def __init__(self, problem, x, curvature=None):
        self.problem = problem
        self.loss_curvature = _curvature(problem.loss, x.theta) if curvature is None else curvature.copy()
        self.share, self.start = 1.0, x.start
        self.move = np.empty_like(x.theta)  # of the last step
        self.couple = 1.0 if problem.couple is None else problem.couple.max()

    def step(self, y, z):
        """Set z.theta to a prox-gradient step from y, short enough that the losses stay below their models."""
        problem, move = self.problem, self.move
        while True:
            curvature = self.share * self.couple * y.degrees + self.loss_curvature
            curvature += 1e-10 * curvature.max() + TINY
            inverse = 1 / curvature
            z.theta[...] = problem.prox(y.theta - inverse[:, None] * y.theta_gradient, inverse, self.start)
            np.subtract(z.theta, y.theta, out=move)
            squares = np.vecdot(move, move)
            z.evaluate_theta()
            rest = z.losses - y.losses - np.vecdot(y.loss_gradient, move)
            model = 0.5 * float(self.loss_curvature @ squares)
            self._rest, self._losses, self.squares = rest, y.losses, squares
            loss_rest = float(rest.sum())
            seen = None if loss_rest <= model + 1e-14 * (1 + abs(y.loss)) else self._seen()
            if seen is None or not (bad := (seen > self.loss_curvature) & (curvature < STEEPEST)).any():
                break
            old = np.maximum(self.loss_curvature, 1e-3 * curvature)
            self.loss_curvature[bad] = np.clip(1.2 * seen, 2 * old, 100 * old)[bad]
        self.curvature = curvature
        self.square = float(curvature @ squares)
        self.graph_square = self.square - 2 * loss_rest

    def _seen(self):
        """Curvature of the losses, measured along the last step."""
        above = np.maximum(self._rest - 1e-14 * np.abs(self._losses), 0.0)
        return above / (0.5 * self.squares + TINY)

    def relax(self):
        """Let the metric follow the curvature measured along the last step, and lengthen the steps a little."""
        self.share = max(self.share / 1.05, 0.6)
        old = self.loss_curvature
        followed = np.minimum(np.maximum(RAISED * self._seen(), LEAST * old), 2 * old)
        self.loss_curvature = np.where(self.squares > 0, followed, old)


class EdgeMetric:
    """One number per edge, a bound on the curvature of h (see the graph regularizer), and one step length for all."""

    def __init__(self, problem):
        self.problem, edges = problem, problem.edges
        self.curvature, self.inverse = edges.zeros(), edges.zeros()
        self.length, self.age = 1.0, AGE
        self.total = self.scale = 0.0

    def refresh(self, y):
        """Measure the curvature at y where the last measurement is old or was far away."""
        self.age += 1
        total = float(np.add.reduce(y.degrees))
        if self.age < AGE and abs(total - self.total) <= 0.1 * self.total:
            return
        y.graph_oracle.curvature(self.curvature)
        np.maximum(self.curvature, FLATTEST, out=self.curvature)
        np.divide(1.0, self.curvature, out=self.inverse)
        self.age, self.total, self.scale = 0, total, y.w_scale()

    def step(self, x, y, z):
        """Set z.w to the prox-gradient step from y, and measure it."""
        steps = self.length * self.inverse
        np.subtract(y.w, np.multiply(steps, y.w_gradient, out=z.w), out=z.w)
        z.graph_oracle.prox(z.w, steps, out=z.w)
        move = z.w - y.w
        weighted = self.curvature * move
        self.slope, self.square = float(y.w_gradient @ move), float(weighted @ move) / self.length
        self.uphill = (float(weighted @ z.w) - float(weighted @ x.w)) / self.length
        self.size = np.linalg.norm(weighted) / self.length

    def shrink(self, ratio):
        """Shorten the steps: `ratio` is the rise that the model allows over the rise that occurred."""
        self.length *= min(max(0.8 * ratio, 0.25), 0.7)

    def relax(self, ratio):
        """Lengthen the steps a little, more where the model had much slack."""
        self.length = min(self.length * min(max(0.7 * math.sqrt(ratio), 1.02), 1.3), 4.0)


@np.errstate(all="ignore")
def _curvature(loss, theta):
    """Curvature of every stratum's loss, from power iterations on its Hessian or one difference of gradients.

    Where the loss is linear, as Huber's is for large residuals, it is chosen to make the first step about as long as theta.
    """
    v = np.random.default_rng(0).standard_normal(theta.shape)
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    gradient = loss.value_and_gradient(theta)[1]
    if loss.has("hessian_operator"):
        product = loss.hessian_operator(theta)
        for _ in range(6):
            u = product(v)
            size = np.linalg.norm(u, axis=1)
            v = np.where(size[:, None] > 0, u / np.maximum(size, TINY)[:, None], v)
    else:
        size = np.linalg.norm(loss.value_and_gradient(theta + 1e-6 * v)[1] - gradient, axis=1) / 1e-6
    straight = np.linalg.norm(gradient, axis=1) / (1 + np.linalg.norm(theta, axis=1))
    size = np.where(size > 1e-10 * straight, size, straight)
    return np.where(np.isfinite(size), size, 1.0)
