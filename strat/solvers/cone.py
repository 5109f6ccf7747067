"""Cone: any convex regularizer and constraints on a given graph, by cone programs for all strata."""

from dataclasses import dataclass

import numpy as np

from strat.errors import NoOracleError
from strat.oracles.base import hessian_blocks
from strat.oracles.central_points import off_edges
from strat.oracles.cone_program import ConeProgram
from strat.solvers.algorithm import Algorithm
from strat.solvers.base import Solver
from strat.solvers.free_directions import times

DECREASE = 1e-4  # a step must achieve this share of the decrease that the model predicts (Armijo)
SHORTER, LENGTHS = 0.3, 12  # factor of the line search, and how many step lengths it tries
FLAT = 1e-9  # curvature below this share of the slope over theta's size counts as none
RIDGE, STEEP = 1e-10, 1e2  # least and most damping, in units of the mean curvature
SHARE = 0.03  # accuracy of a program over the squared residual before it: the error of a Newton step is of that order
ROUGH, FINE = 1e-3, 3e-8  # the roughest accuracy, and that below which a program is solved to full accuracy


@dataclass(kw_only=True, eq=False, repr=False)
class Cone(Solver):
    """Proximal Newton method on a given graph whose steps are cone programs of all strata, solved by Clarabel.

    It needs no prox: the regularizer and the constraints enter as the cone program that CVXPY writes for one stratum, repeated
    for all, and the graph as its Laplacian. Quadratic losses enter as they are and take one program; other losses with second
    derivatives enter as their quadratic model, with steps that lower the objective; losses with kinks enter as a cone program
    for each record and take one program, too. It is the default where a regularizer or constraint has no prox in closed form.

    Parameters
    ----------
    tol : float
        Stop when the residual in theta is at most tol; 0 never stops.
    max_iter : int
        Most iterations.
    {options}

    Notes
    -----
    The dual solution of a program gives a subgradient u of the regularizer and constraints at theta. The residual is
    ||grad loss(theta) + G(W) theta + u|| over 1 + max(||grad loss||, ||G(W) theta||), a bound on that of other solvers. Where
    the loss has no gradient, u includes a subgradient of the loss. An estimate of F less its minimum, relative to F, then
    replaces that norm if it is smaller. Where a program is the whole problem, the residual is at least the relative gap.

    References
    ----------
    P. J. Goulart and Y. Chen, "Clarabel: an interior-point solver for conic programs with quadratic objectives", 2024.
    J. D. Lee, Y. Sun and M. A. Saunders, "Proximal Newton-type methods for minimizing composite functions", SIAM
    Journal on Optimization, 2014.

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> w, y = cp.Variable(3, name="w"), cp.Parameter(3, name="y")
    >>> base = strat.BaseModel(cp.sum_squares(y - w), cp.max(w) - cp.min(w), [cp.norm(w, 2) <= 1], data=(y,))
    >>> model = strat.lrsm(base, strat.graphs.path(2), solver=strat.Cone())
    >>> model.fit([[3.0, 0.0, 0.0], [0.0, 2.0, 2.0]], strata=[0, 1]).theta_["w"].round(3)
    array([[0.956, 0.208, 0.208],
           [0.349, 0.663, 0.663]])
    """

    max_iter: int = 100
    follows_edges = True
    needs = {"loss": ("hessian_operator", "cones"), "regularizer": "cones"}
    learns_graphs = False

    def _algorithm(self, problem, theta, w, way=None):
        return ConeNewton(problem, theta, w, way)


class ConeNewton(Algorithm):
    """theta+ = argmin of the loss's quadratic model + regularizer + constraints + ½ ⟨theta, L theta⟩, and a line search on F.

    The model at theta is ⟨g, d⟩ + ½ ⟨d, (H + damping) d⟩ with d = theta+ − theta, exact for a quadratic loss. Without second
    derivatives, or where `cones` is "records", the records' cones enter the program, which is then the whole problem. Damping
    keeps steps short where curvature vanishes. `program` is the ConeProgram of another graph, to be reused; `left` is the
    residual at theta, if known. Far from the solution, programs are solved roughly except for the constraints: where those are
    violated, F may be below its minimum.
    """

    saved = ("damping", "accuracy", "rough")

    def __init__(self, problem, theta, w, cones=None, *, program=None, left=1.0):
        self.quadratic = getattr(problem.loss, "quadratic", False)
        self.smooth = self.quadratic or (problem.loss.has("hessian_operator") and cones != "records")
        super().__init__(problem, theta, w, gradient=self.smooth)
        self.regularizer = problem.regularizer.cones()
        if program is None:
            functions = self.regularizer if self.smooth else self.regularizer + problem.loss.cones()
            program = ConeProgram(problem.K, problem.n, functions, what="the fit's cone program")
        self.program = program
        program.set_graph(self.x.laplacians)
        self.z = self.new_point()
        self.damping, self.left = RIDGE, None
        self.restricted = getattr(problem.regularizer.prox, "restricted", True)
        # Accuracy of the next program, and of the one that gave x.
        self.accuracy, self.rough = _accuracy(left), 0.0

    def step(self):
        if not self.smooth:
            self._whole(*self._solved())
            return
        x = self.differentiate_x()
        H, g = hessian_blocks(self.problem.loss, x.theta), x.loss_gradient
        if self.quadratic:
            self._whole(*self._solved(H, g - times(H, x.theta)))
            return
        # Where a loss is linear, as the Huber loss is for large residuals, steps are about as long as theta.
        n, mean = self.problem.n, np.einsum("kaa->k", H) / self.problem.n
        pull = np.linalg.norm(g, axis=1) / (1 + np.linalg.norm(x.theta, axis=1))
        bent = mean > FLAT * pull
        ridge = np.where(bent, self.damping * (mean + mean.mean() + 1e-60), pull)[:, None, None]
        centring, shape = self.program.centred(H), np.eye(n)
        if centring is not None:  # with too few records, curvature vanishes in some directions, too
            centred = centring.metric(H.mean(axis=0)) + self.damping * shape
            shape = np.where(bent[:, None, None], centred, shape)
        H = H + ridge * shape
        try:
            theta, solution = self._solved(H, g - times(H, x.theta), self.accuracy)
        except NoOracleError:  # if rounding made this program fail, one with more damping may succeed
            if self.damping >= STEEP:
                raise
            self._damp(30.0, 1e-4)
            return
        self._searched(theta, H, solution)

    def _damp(self, factor, least):
        self.damping = min(max(factor * self.damping, least), STEEP)

    def _solved(self, H=None, g=None, accuracy=0.0):
        """theta of the program's solution, made to satisfy bounds and symmetries exactly, and the Solution."""
        solution = self.program.solve(H, g, accuracy=accuracy, restricted=self.restricted)
        theta = solution.theta
        for function in self.regularizer:
            theta = function.inside(theta)
        return theta, solution

    def _whole(self, theta, solution):
        """Take the solution of a program that is the whole problem."""
        x, z = self.x, self.z
        z.theta[...] = off_edges(self.problem.loss, theta, self.problem.project)
        z.evaluate()
        # If F is lower at x than at the solution, the gap is larger than the program reports.
        gap = max(solution.gap, z.objective - x.objective)
        self.left = (solution.error, gap / (1 + abs(x.objective)))
        if not z.objective <= x.objective:
            self.stalled = True
            slack = min(solution.gap, ROUGH * (1 + abs(x.objective)))
            if not z.objective <= x.objective + min(x.noise, z.noise) + slack:
                return
        self.x, self.z, self.exact, self.differentiated = z, x, True, False

    def _searched(self, theta, H, solution):
        """Line search from x towards theta: the longest step on which F falls as the model predicts."""
        x, z = self.x, self.z
        d = theta - x.theta
        promised = -float(np.vdot(x.theta_gradient, d)) + x.regularizer
        # How much F may rise once the constraints, which a rough program breaks slightly, hold exactly.
        doubt = solution.doubt if self.accuracy and self.restricted else 0.0
        for k in range(LENGTHS):
            length = SHORTER**k
            z.theta[...] = x.theta + length * d
            if z.evaluate(gradient=True).objective < np.inf:
                if not k:
                    promised -= z.regularizer
                z.objective += doubt
                gain = x.objective - z.objective
                if gain >= DECREASE * length * max(promised, 0.0) - min(x.noise, z.noise):
                    break
            if self.accuracy:
                self.accuracy = 0.0  # the program was solved too roughly to lower F
                return
        else:
            self.stalled = self.damping >= STEEP
            self._damp(30.0, 1e-4)
            return
        self._damp(*((0.1, RIDGE) if k == 0 else (10.0, 1e-6)))
        # The residual of the stationarity condition at z, which is known where the whole step is taken.
        error = z.loss_gradient - x.loss_gradient - times(H, d) + solution.error
        self.left = (error, solution.gap) if k == 0 else None
        z.objective = min(z.objective, x.objective)
        self.x, self.z, self.differentiated, self.rough = z, x, True, self.accuracy
        if k == 0:
            self.accuracy = _accuracy(self._share())

    @property
    def subgradient(self):
        """A subgradient of losses, regularizer and constraints at x, (K, n), from the dual solution; None if not known."""
        return None if self.left is None else self.left[0] - self.x.product

    def residual(self, tol):
        """Residual of x, or None where it is not known, such as after a shortened step."""
        if self.left is None:
            return None
        # The relative error of the objective is the accuracy, and that of theta its square root.
        least = np.sqrt(self.rough) if self.smooth and not self.exact else self.left[1]
        return {"theta": max(self._share(), float(least)), "W": 0.0}

    def _share(self):
        """Residual of the stationarity condition at x, relative to its terms."""
        error, x = self.left[0], self.x
        if self.smooth:
            return float(np.linalg.norm(error) / self.differentiate_x().size)
        return min(float(np.linalg.norm(error) / (1 + np.linalg.norm(x.product))), lowers(error, x))

    def certificate(self, theta, w):
        """Residual of the point that is to be returned; infinite where it is not known."""
        known = self.residual(0.0) if np.array_equal(theta, self.x.theta) else None
        if known is None and self.smooth:
            return super().certificate(theta, w)
        return known or {"theta": np.inf, "W": 0.0}


def lowers(error, point):
    """Estimate of F less its minimum, relative to F, at a point where `error` (K, n) is the residual of stationarity.

    F(theta) − F(theta*) ≤ gap + ⟨error, theta − theta*⟩, and theta* is about as large as theta, in any units.
    """
    return float(np.vdot(np.abs(error), np.abs(point.theta)) / (1 + abs(point.objective)))


def _accuracy(left):
    """Accuracy to ask for in the program at a point with residual `left`; 0 is full accuracy."""
    accuracy = min(SHARE * left**2, ROUGH)
    return accuracy if accuracy > FINE else 0.0
