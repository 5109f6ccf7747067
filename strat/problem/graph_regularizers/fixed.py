"""The given graph."""

from strat.problem.graph_regularizers.base import GraphRegularizer


class FixedGraph(GraphRegularizer):
    """The graph is given: W = W0, h = 0.

    Examples
    --------
    >>> from strat.problem.graph_regularizers import FixedGraph
    >>> FixedGraph()
    FixedGraph()
    """

    learned = False

    def expression(self, W, W0=None):
        """Give h(W) = 0 as a CVXPY expression.

        Parameters
        ----------
        W : cvxpy.Expression or ndarray, shape (K, K)
            The graph.
        W0 : ndarray, optional
            Not used.

        Returns
        -------
        cvxpy.Expression
            Zero.
        """
        import cvxpy as cp

        return cp.Constant(0.0)

    def feasible(self, edges, w):
        """Say yes: every W may be given.

        Parameters
        ----------
        edges : AllPairs or EdgeList
            Where W may be nonzero.
        w : edge array
            The weights.

        Returns
        -------
        bool
            True.
        """
        return True
