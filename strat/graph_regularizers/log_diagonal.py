"""The log-degree graph regularizer."""

import numpy as np

from strat.errors import GraphError
from strat.graph_regularizers.base import GraphRegularizer, check_range, several_strata, unbounded
from strat.slots.log_diagonal import LogDiagonalSlot


class LogDiagonal(GraphRegularizer):
    """Log-degree graph regularizer, which learns W.

    h(W) = -lambda1 sum_i log(sum_j W_ij) + (lambda2/2) ||W||_F^2, with W >= 0; the norm is over the full matrix, so
    that every edge counts twice. Every stratum keeps neighbours, but the graph may fall into parts. The prior graph has
    no part in h; its nodes are the strata.

    Parameters
    ----------
    lambda1 : float, >= 0
        Weight of the logarithms, which keep all degrees positive.
    lambda2 : float, >= 0
        Weight of the squares, which spread the weights over more edges; > 0 where lambda1 > 0 and Theta is fitted, too.

    References
    ----------
    V. Kalofolias, "How to learn a graph from smooth signals", AISTATS 2016.

    Examples
    --------
    >>> import strat
    >>> graph = strat.learn_graph([[0.0], [0.1], [2.0]], strat.LogDiagonal(lambda1=1.0, lambda2=0.1))
    >>> graph.W.round(2)
    array([[0.  , 3.01, 0.  ],
           [3.01, 0.  , 0.61],
           [0.  , 0.61, 0.  ]])
    """

    def __init__(self, lambda1, lambda2):
        self.lambda1 = lambda1
        self.lambda2 = lambda2

    def validate(self, joint=False):
        """Check the parameters.

        Parameters
        ----------
        joint : bool
            Whether Theta is fitted together with W; then lambda2 must be above 0 where lambda1 is.

        Raises
        ------
        OptionError
            If one is out of its range.
        """
        check_range("lambda1", self.lambda1, "of at least 0", lambda v: v >= 0)
        check_range("lambda2", self.lambda2, "of at least 0", lambda v: v >= 0)
        if joint and self.lambda1 > 0:
            check_range("lambda2", self.lambda2, unbounded, lambda v: v > 0)

    def check_edges(self, edges, labels):
        """Check that every stratum has a candidate edge, as the logarithm of a degree 0 is not finite.

        Parameters
        ----------
        edges : AllPairs or EdgeList
            Where W may be nonzero.
        labels : list
            The strata.

        Raises
        ------
        GraphError
            If one has none.
        """
        several_strata(self, edges)
        lonely = np.flatnonzero(edges.degrees(edges.mask) == 0)
        if lonely.size:
            raise GraphError(
                f"edges: stratum {labels[lonely[0]]!r} ({lonely.size} in all) has no candidate edge, so that its degree "
                f'is 0, where LogDiagonal is infinite. Add edges to it, use edges="all", or LogDet.'
            )

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
        return -self.lambda1 * cp.sum(cp.log(cp.sum(W, axis=1))) + self.lambda2 / 2 * cp.sum_squares(W)

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
        LogDiagonalSlot
            The memory.
        """
        return LogDiagonalSlot(self, edges)
