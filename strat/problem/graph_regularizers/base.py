"""What every graph regularizer h(W) has: parameters, a CVXPY expression, and memory for its numbers."""

from numbers import Real

import numpy as np
from sklearn.base import BaseEstimator

from strat.errors import GraphError, OptionError


class GraphRegularizer(BaseEstimator):
    """Base class: h(W) with W >= 0 and a zero diagonal.

    A subclass gives `validate`, `expression`, and, where W is learned, `oracle`: an object that holds the numbers of h
    at one point in memory of its own (see `strat.problem.graph_oracles`).
    """

    learned = True

    def validate(self, joint=False):
        """Check the parameters.

        Parameters
        ----------
        joint : bool
            Whether Theta is fitted together with W.

        Raises
        ------
        OptionError
            If one is out of its range.
        """

    def constraints(self, W):
        """Constraints on W.

        Parameters
        ----------
        W : cvxpy.Variable, shape (K, K), symmetric
            The graph.

        Returns
        -------
        list of cvxpy constraints
            W >= 0 with a zero diagonal.
        """
        import cvxpy as cp

        return [W >= 0, cp.diag(W) == 0]

    def check_edges(self, edges, labels):
        """Check that h is finite somewhere on an edge set.

        Parameters
        ----------
        edges : AllPairs or EdgeList
            Where W may be nonzero.
        labels : list
            The strata.

        Raises
        ------
        GraphError
            If it is not.
        """

    def feasible(self, edges, w):
        """Tell whether weights are in the domain of h, so that a solver may start there.

        Parameters
        ----------
        edges : AllPairs or EdgeList
            Where W may be nonzero.
        w : edge array
            The weights.

        Returns
        -------
        bool
            Whether h is finite at w.
        """
        return self.oracle(edges, edges.zeros()).feasible(w)


#: What lambda2 must be in a joint fit.
unbounded = "above 0 where lambda1 > 0: with equal parameters and W going to infinity the objective would fall for ever"


def several_strata(h, edges):
    """Refuse a single stratum, which has no other to join."""
    if edges.K == 1:
        raise GraphError(
            f"there is one stratum, and {type(h).__name__} needs an edge between two. "
            "Use FixedGraph(), or give a graph with more nodes."
        )


def check_range(name, value, allowed, good):
    if not (isinstance(value, Real) and np.isfinite(value) and good(value)):
        raise OptionError(f"{name} = {value!r} is out of range: it must be a number {allowed}.")
