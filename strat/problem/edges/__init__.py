"""Edge sets: the pairs of strata that may have a weight, and the computations of the solvers on these weights.

`AllPairs` stores the weights of all K(K-1)/2 pairs as a packed K x K triangle, which LAPACK reads as it is; dot products
over the vector are sums over edges. `EdgeList` stores one number per candidate edge. Both have the same methods, so that
solvers work with either. An array with one number per edge ("edge array" below) is a vector like `zeros()`. That of
`AllPairs` has entries for the diagonal, too: there weights and `mask` are zero, and gradients may be arbitrary.
"""

from strat.problem.edges.all_pairs import AllPairs
from strat.problem.edges.edge_list import EdgeList

__all__ = ["AllPairs", "EdgeList"]
