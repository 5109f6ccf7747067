"""The entropy graph regularizer."""

import numpy as np

from strat.graph_regularizers.base import GraphRegularizer, check_range
from strat.slots.entropy import EntropySlot


class Entropy(GraphRegularizer):
    """Entropy graph regularizer, which learns W as a Gaussian kernel of the parameters.

    h(W) = (sigma^2/2) sum_{i != j} W_ij (log W_ij - 1), with W >= 0. For given parameters the best weights are
    exp(-||theta_i - theta_j||^2 / (2 sigma^2)). The prior graph has no part in h; its nodes are the strata.

    Parameters
    ----------
    sigma : float, > 0
        Width of the kernel.

    Examples
    --------
    >>> import strat
    >>> graph = strat.learn_graph([[0.0], [0.1], [2.0]], strat.Entropy(sigma=1.0))
    >>> graph.W.round(3)
    array([[0.   , 0.995, 0.135],
           [0.995, 0.   , 0.164],
           [0.135, 0.164, 0.   ]])
    """

    def __init__(self, sigma):
        self.sigma = sigma

    def validate(self, joint=False):
        """Check the parameter.

        Parameters
        ----------
        joint : bool
            Whether Theta is fitted together with W.

        Raises
        ------
        OptionError
            If it is out of its range.
        """
        check_range("sigma", self.sigma, "above 0", lambda v: v > 0)

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

        w = cp.upper_tri(cp.Constant(W) if isinstance(W, np.ndarray) else W)
        return self.sigma**2 * cp.sum(-cp.entr(w) - w)

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
        EntropySlot
            The memory.
        """
        return EntropySlot(self, edges)
