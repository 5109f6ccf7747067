"""Losses of one record by name: each function returns a plain CVXPY expression, to be seen, changed and added to.

``y`` is what is observed, a ``cp.Parameter`` of one record; ``z`` is the prediction, an affine expression of the
variables. Everything here can be written by hand; print the result to see how.
"""

from strat.losses.classification import exponential, hinge, logistic, softmax, squared_hinge
from strat.losses.distributions import bernoulli, gamma, gaussian, gaussian_with_mean, poisson, poisson_rate
from strat.losses.regression import absolute, epsilon_insensitive, huber, pinball, squared

__all__ = [
    "absolute",
    "bernoulli",
    "epsilon_insensitive",
    "exponential",
    "gamma",
    "gaussian",
    "gaussian_with_mean",
    "hinge",
    "huber",
    "logistic",
    "pinball",
    "poisson",
    "poisson_rate",
    "softmax",
    "squared",
    "squared_hinge",
]
