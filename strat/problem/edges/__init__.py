"""Edge sets: the pairs of strata that may have a weight, and the computations of the solvers on these weights."""

from strat.problem.edges.all_pairs import AllPairs
from strat.problem.edges.edge_list import EdgeList

__all__ = ["AllPairs", "EdgeList"]
