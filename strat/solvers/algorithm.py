"""The interface of an algorithm to the run loop: a point x that `step` improves, and a state that can be saved."""

from contextlib import suppress
from operator import attrgetter

import numpy as np

from strat.errors import NoOracleError, OptionError
from strat.oracles.iterated_prox import Start
from strat.problem.graph_regularizers import FixedGraph
from strat.problem.joint_problem import JointProblem, Point

_NUMBERS = ("objective", "smooth", "loss", "laplacian", "regularizer", "graph")


class Algorithm:
    """Base class of the iterations that a Run drives; `x` is the current iterate, a Point, which `step()` improves."""

    #: Whether the objective of x never increases.
    monotone = True
    #: Set where no further decrease is possible in floating point.
    stalled = False
    #: Whether the last step, if it is a fit of its own, ended before it reached its tolerance.
    slow = False
    #: Whether that fit used up its iterations.
    endless = False
    #: Number of iterations in which theta stayed far behind W.
    apart = 0
    #: Set where x left the domain, so that no further step is possible.
    diverged = False
    #: Whether the last step minimised an exact model (that of a quadratic), so that a small residual means an optimum,
    #: however much F fell in that step.
    exact = False
    #: The linear system that is solved for a given graph, with its `preconditioner`, if the algorithm has one.
    system = None
    #: Attributes (with dotted names for those of parts) that together with x make up the whole state.
    saved = ()

    def __init__(self, problem, theta, w, gradient=False):
        self.problem = problem
        self.points, self.start = [], Start()
        self.extra_factorizations = 0  # those that no graph oracle and no preconditioner counts
        self.x = self.new_point()
        if isinstance(theta, Point):  # a point of another problem with the same terms in theta, moved to w
            self.x.take(theta)
            gradient = False
        else:
            self.x.move(theta, w).evaluate(gradient)
        if not self.x.objective < np.inf:
            bad = np.flatnonzero(~problem.inside(self.x.theta))
            what = "the regularizer" if self.x.graph < np.inf else "the graph regularizer"
            if self.x.graph < np.inf and bad.size:
                what = f"the loss of stratum number {bad[0]} ({bad.size} in all)"
            raise OptionError(f"init: {what} is not finite at the start. Give init= values in its domain.")
        self.differentiated = gradient

    def new_point(self):
        """Memory for one more point, whose factorisations are counted, and whose proxes are warm started from the last."""
        self.points.append(Point(self.problem))
        self.points[-1].start = self.start
        return self.points[-1]

    def differentiate_x(self):
        """Make sure that x has its gradients."""
        if not self.differentiated:
            self.x.differentiate()
            self.differentiated = True
        return self.x

    def residual(self, tol):
        """Residual of x, or None where it is known to be above tol."""
        return self.differentiate_x().residual() if tol else None

    def certificate(self, theta, w):
        """Residual of the point that is to be returned, usually x."""
        if np.array_equal(theta, self.x.theta) and np.array_equal(w, self.x.w):
            return self.differentiate_x().residual()
        return self.problem.residual(theta, w)

    @property
    def factorizations(self):
        """Cholesky factorisations so far."""
        oracles = [point.graph_oracle for point in self.points if point.graph_oracle is not None]
        counted = oracles if self.system is None else [*oracles, self.system.preconditioner]
        return self.extra_factorizations + sum(part.factorizations for part in counted)

    def state(self):
        """The whole state, as a dict of arrays."""
        # A part that is created on first use is not created only to save its state.
        made = [name for name in self.saved if name.partition(".")[0] in vars(self)]
        state = {name: attrgetter(name)(self) for name in made}
        state |= {"x_theta": self.x.theta, "x_w": self.x.w, "stalled": self.stalled}
        state |= {"x_numbers": [getattr(self.x, name) for name in _NUMBERS], "work": self.factorizations}
        return {name: np.array(value) for name, value in state.items()}

    def restore(self, state):
        """Go back to a saved state."""
        for name in state.keys() & set(self.saved):
            value, (*owner, attribute) = np.array(state[name]), name.split(".")
            owner = attrgetter(".".join(owner))(self) if owner else self
            setattr(owner, attribute, value if value.ndim else value.item())
        self.x.move(state["x_theta"], state["x_w"]).evaluate()
        for name, value in zip(_NUMBERS, state["x_numbers"], strict=True):
            setattr(self.x, name, float(value))
        self.differentiated, self.stalled = False, bool(state["stalled"])
        self.extra_factorizations += int(state["work"]) - self.factorizations


def for_given_graph(problem, w):
    """The same problem with the weights w held fixed."""
    return JointProblem(problem.loss, problem.regularizer, FixedGraph(), problem.edges, w, problem.couple)


def has_cones(loss):
    """Whether the cone program of a loss (or of a regularizer) can be written."""
    with suppress(NoOracleError):
        return loss.has("cones") and loss.cones() is not None
    return False


def needs_cones(problem):
    """Whether the step in theta is to be a cone program: the prox of the regularizer is one, or the loss has no gradient."""
    usable = problem.loss.has("hessian_operator") or problem.loss.has("cones")
    costly = getattr(problem.regularizer.prox, "costly", False) or not problem.loss.has("value_and_gradient")
    return usable and costly
