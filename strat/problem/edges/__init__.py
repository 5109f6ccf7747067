"""Edge sets: the pairs of strata that may have a weight, and the computations of the solvers on these weights."""

from strat.problem.edges.edge_list import AllPairs, EdgeList

__all__ = ["AllPairs", "EdgeList"]
