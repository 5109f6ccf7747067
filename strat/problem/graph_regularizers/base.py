"""What every graph regularizer h(W) has: its parameters, its CVXPY expression, and an oracle for the solvers."""

from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from strat.errors import GraphError, OptionError

NONNEGATIVE = ("of at least 0", lambda value: value >= 0)
POSITIVE = ("above 0", lambda value: value > 0)


class GraphRegularizer(BaseEstimator):
    """Base class: h(W) with W >= 0 and a zero diagonal.

    A subclass states the `_ranges` of its parameters, gives `_formula`, h in CVXPY, and, where W is learned, names its
    `_oracle_class`, a GraphOracle.
    """

    learned = True
    _oracle_class = None
    _ranges = {}
    _powers = {}  # {parameter: p}: h is multiplied by x if each of them is multiplied by x^p; empty if unknown
    _falls_with_weights = False  # whether h falls without bound in W where lambda1 > 0 and lambda2 = 0
    _needs_an_edge = False  # whether h is infinite or infeasible without edges
    _needs_degrees = False  # whether h is infinite where a stratum has no edge

    def validate(self, joint=False):
        """Check the parameters.

        Parameters
        ----------
        joint : bool
            Whether Theta is fitted together with W.

        Raises
        ------
        OptionError
            If a parameter is out of its range.
        """
        for name, (allowed, is_allowed) in self._ranges.items():
            check_range(name, getattr(self, name), allowed, is_allowed)
        if joint and self._falls_with_weights and self.lambda1 > 0:
            reason = "with equal parameters and W going to infinity the objective would keep falling"
            check_range("lambda2", self.lambda2, f"above 0 where lambda1 > 0: {reason}", POSITIVE[1])

    @property
    def _weight(self):
        """The factor of h, by its largest scaling parameter; 0 where none is known."""
        return max((getattr(self, name) ** (1 / p) for name, p in self._powers.items()), default=0.0)

    def _times(self, factor):
        """Give the same h times a positive number, where its factor is known."""
        return type(self)(**{k: v * factor ** self._powers.get(k, 0) for k, v in self.get_params().items()})

    def expression(self, W: np.ndarray, W0: np.ndarray | None = None) -> Any:
        """Give h(W) as a CVXPY expression, without constraints.

        Parameters
        ----------
        W : cvxpy.Expression or ndarray, shape (K, K), symmetric
            The graph.
        W0 : ndarray, shape (K, K), optional
            The prior graph, where h depends on it; zero by default.

        Returns
        -------
        cvxpy.Expression
            A convex scalar.
        """
        import cvxpy as cp

        W = cp.Constant(W) if isinstance(W, np.ndarray) else W
        return self._formula(cp, W, np.zeros(W.shape) if W0 is None else W0)

    def constraints(self, W: Any) -> list:
        """Constraints on W.

        Parameters
        ----------
        W : cvxpy.Variable, shape (K, K), symmetric
            The graph.

        Returns
        -------
        list of cvxpy constraints
            W >= 0 with a zero diagonal, and any further constraints of h.
        """
        import cvxpy as cp

        return [W >= 0, cp.diag(W) == 0, *self._constraints(cp, W)]

    def _check_edges(self, edges, labels):
        """Raise a GraphError unless h is finite somewhere on an edge set; `labels` are the strata, for its message."""
        name = type(self).__name__
        if self._needs_an_edge and edges.K == 1:
            way = "Use FixedGraph(), or give a graph with more nodes."
            raise GraphError(f"there is one stratum, and {name} needs an edge between two. {way}")
        lonely = np.flatnonzero(edges.neighbors == 0)
        if self._needs_degrees and lonely.size:
            raise GraphError(
                f"edges: stratum {labels[lonely[0]]!r} ({lonely.size} in all) has no candidate edge, so that its degree "
                f'is 0, where {name} is infinite. Add edges to it, use edges="all", or LogDet.'
            )

    def _constraints(self, cp, W):
        return []


class FixedGraph(GraphRegularizer):
    """The graph is given: W = W0, h = 0.

    Examples
    --------
    >>> from strat.problem.graph_regularizers import FixedGraph
    >>> FixedGraph()
    FixedGraph()
    """

    learned, _weight = False, np.inf

    def _formula(self, cp, W, W0):
        return cp.Constant(0.0)


class GraphOracle:
    """Base class of the oracles: h at one point w, split into a smooth part and a rest that has a prox.

    A subclass gives three methods. ``smooth()`` is the smooth part at w, not finite outside its domain; ``split_gradient(out)``
    returns a, shape (K,), and writes b to out, where the smooth part's gradient over the edges is b_e + a_i + a_j;
    ``curvature(out)`` writes to out a positive diagonal that bounds its Hessian, for step lengths. By default the rest is the
    constraint w >= 0 alone; a subclass with another rest also gives `rest` and `prox`. A subclass with `minimize(c)`, which
    returns the weights that minimise sum_e c_e w_e + h(w) and the number of Newton iterations, solves graph steps exactly.
    The parameters of h are attributes.
    """

    #: Whether `minimize` is a closed form, which gives a fit its final weights.
    closed_form = False
    factorizations = 0  # number of Cholesky factorisations so far
    ill_conditioned = 0.0  # the size, beside its value, to which the smooth part's rounding error is relative

    def __init__(self, h, edges, w0, outside=0.0):
        self.edges, self.w0, self.outside = edges, w0, outside
        vars(self).update({name: float(getattr(h, name)) for name in h._ranges})

    def set(self, w, degrees=None):
        """Move to the weights w, with their degrees where known, and return the smooth part, +inf outside its domain."""
        self._w, self._degrees = w, self.edges.degrees(w) if degrees is None else degrees
        value = self.smooth()
        return value if np.isfinite(value) else np.inf

    def gradient(self, out):
        """Write the smooth part's gradient over the edges to out."""
        return self.edges.add_ends(self.split_gradient(out), out)

    def scale(self):
        """Size of the terms of h that balance the distances where the objective is stationary."""
        return np.linalg.norm(self.gradient(self.edges.zeros()))

    def size(self, half):
        """1 + size of the terms in the residual of W: half the distances, and the terms of h."""
        return 1 + max(np.linalg.norm(half), self.scale())

    def rest(self):
        """Value at w of the rest, the part of h that is left to the prox."""
        return 0.0

    def prox(self, v, t, out):
        """Write argmin_z rest(z) + sum_e (z_e - v_e)^2 / (2 t_e) to out; t is a number or an edge array."""
        return np.maximum(v, 0.0, out=out)

    def feasible(self, w):
        """Whether h is finite at w."""
        return bool(np.min(w, initial=0.0) >= 0 and np.isfinite(self.set(w) + self.rest()))


def check_range(name, value, allowed, is_allowed):
    """Raise an OptionError unless the value is a finite number of the range, which `allowed` puts in words."""
    if not (isinstance(value, Real) and np.isfinite(value) and is_allowed(value)):
        raise OptionError(f"{name} = {value!r} is out of range: it must be a number {allowed}.")
