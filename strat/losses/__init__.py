"""Losses of one record by name: each function returns a CVXPY expression, which you can print, change and add to.

``y`` is the observation, a ``cp.Parameter`` of one record; ``z`` is the prediction, an affine expression in the
variables. You could write every loss by hand; print the result to see how.
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
