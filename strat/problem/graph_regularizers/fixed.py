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

    def _formula(self, cp, W, W0):
        return cp.Constant(0.0)
