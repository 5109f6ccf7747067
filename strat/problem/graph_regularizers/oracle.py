"""What a graph_oracle is to the solvers: memory for a graph regularizer h at one point of the edge weights."""

import numpy as np


class GraphOracle:
    """Base class: h at one point w, split into a smooth part and a rest that has a prox.

    A subclass gives `set` (move to w and return the smooth part's value, +inf outside its domain),
    `gradient_without_ends`, `curvature` (a diagonal that bounds the smooth part's Hessian, for step lengths) and
    `scale` (the size of the terms that balance in the stationarity condition). What is below holds where the rest is
    the constraint w >= 0 alone.

    Attributes
    ----------
    projects : bool
        Whether the prox is the projection on w >= 0, whatever the step; solvers then take it chunk by chunk.
    factorizations, inversions : int
        Cholesky factorisations and inverses so far.
    """

    projects = True
    factorizations = inversions = 0

    def gradient(self, out):
        """The smooth part's gradient over the edges, written to out."""
        return self.edges.add_ends(self.gradient_without_ends(out), out)

    def rest(self):
        """Value at w of what the gradient leaves out."""
        return 0.0

    def prox(self, v, t, out):
        """Write argmin_z rest(z) + sum_e (z_e - v_e)^2 / (2 t_e) to out; t a number or an edge array."""
        return np.maximum(v, 0.0, out=out)

    def feasible(self, w):
        """Whether h is finite at w, so that a solver may start there."""
        return bool(np.min(w, initial=0.0) >= 0 and np.isfinite(self.set(w) + self.rest()))
