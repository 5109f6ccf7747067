"""The explicit edge set: where the weights of the graph live, and what the solvers compute on them.

`AllPairs` stores the weights of all K(K-1)/2 pairs as a packed K x K triangle, which LAPACK reads as it is; dot products
over the vector are sums over edges. `EdgeList` stores one number per candidate edge. Both offer the same methods, so
that solvers never ask which one they hold. Every array of one number per edge ("edge array" below) is a vector like
`zeros()`; that of `AllPairs` has places for the diagonal, too, where gradients may hold arbitrary numbers, weights and
`mask` are zero. Chains of elementwise operations run over `chunks` of the vectors, to stay in cache.
"""

from strat.problem.edges.all_pairs import AllPairs
from strat.problem.edges.edge_list import EdgeList

__all__ = ["AllPairs", "EdgeList"]
