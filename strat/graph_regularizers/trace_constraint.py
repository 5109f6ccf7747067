"""The trace-constrained graph regularizer."""

import numpy as np

from strat.graph_regularizers.base import GraphRegularizer, check_range, several_strata
from strat.slots.trace_constraint import TraceConstraintSlot


class TraceConstraint(GraphRegularizer):
    """Graph regularizer with a given sum of all weights, which learns W.

    h(W) = (lambda2/2) ||G(W)||_F^2, with W >= 0 and Tr G(W) = sum_ij W_ij = lambda1, every edge counted twice. G(W) is
    the Laplacian: ||G(W)||_F^2 = sum_i deg_i^2 + ||W||_F^2. Strata may lose all their edges. The prior graph has no part
    in h; its nodes are the strata.

    Parameters
    ----------
    lambda1 : float, >= 0
        The sum of all entries of W.
    lambda2 : float, >= 0
        Weight of the squares, which spread the weights over more edges; with 0 all weight goes to the closest pair.

    References
    ----------
    X. Dong, D. Thanou, P. Frossard and P. Vandergheynst, "Learning Laplacian matrix in smooth graph signal
    representations", IEEE Transactions on Signal Processing, 2016.

    Examples
    --------
    >>> import strat
    >>> graph = strat.learn_graph([[0.0], [0.1], [2.0]], strat.TraceConstraint(lambda1=6.0, lambda2=0.5))
    >>> graph.W.round(2)
    array([[0.  , 1.84, 0.51],
           [1.84, 0.  , 0.64],
           [0.51, 0.64, 0.  ]])
    >>> round(float(graph.W.sum()), 6)
    6.0
    """

    def __init__(self, lambda1, lambda2):
        self.lambda1 = lambda1
        self.lambda2 = lambda2

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
        check_range("lambda1", self.lambda1, "of at least 0", lambda v: v >= 0)
        check_range("lambda2", self.lambda2, "of at least 0", lambda v: v >= 0)

    def check_edges(self, edges, labels):
        """Check that there are edges to take the weight.

        Parameters
        ----------
        edges : AllPairs or EdgeList
            Where W may be nonzero.
        labels : list
            The strata.

        Raises
        ------
        GraphError
            If there is one stratum only.
        """
        several_strata(self, edges)

    def constraints(self, W):
        """Constraints on W.

        Parameters
        ----------
        W : cvxpy.Variable, shape (K, K), symmetric
            The graph.

        Returns
        -------
        list of cvxpy constraints
            W >= 0 with a zero diagonal, and the sum of its entries.
        """
        import cvxpy as cp

        return [*super().constraints(W), cp.sum(W) == self.lambda1]

    def expression(self, W, W0=None):
        """Give h(W) as a CVXPY expression, without constraints.

        Parameters
        ----------
        W : cvxpy.Expression or ndarray, shape (K, K), symmetric
            The graph.
        W0 : ndarray, optional
            Not used.

        Returns
        -------
        cvxpy.Expression
            A convex scalar.
        """
        import cvxpy as cp

        W = cp.Constant(W) if isinstance(W, np.ndarray) else W
        return self.lambda2 / 2 * (cp.sum_squares(cp.sum(W, axis=1)) + cp.sum_squares(W))

    def slot(self, edges, w0, outside=0.0):
        """Make memory for h and its derivatives at one point.

        Parameters
        ----------
        edges : AllPairs or EdgeList
            Where W may be nonzero.
        w0 : edge array
            Not used.
        outside : float
            Not used.

        Returns
        -------
        TraceConstraintSlot
            The memory.
        """
        return TraceConstraintSlot(self, edges)
