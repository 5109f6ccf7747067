"""Losses of one record by name: each function returns a CVXPY expression, which you can print, change and add to.

``y`` is the observation, a ``cp.Parameter`` of one record; ``z`` is the prediction, an affine expression in the
variables. You could write every loss by hand; print the result to see how.
"""

from typing import Any

import cvxpy as cp

from strat.losses.arguments import alike, named_loss, number, scalars, vectors

__all__ = [
    "absolute", "bernoulli", "epsilon_insensitive", "exponential", "gamma", "gaussian", "gaussian_with_mean", "hinge",
    "huber", "logistic", "pinball", "poisson", "poisson_rate", "softmax", "squared", "squared_hinge",
]  # fmt: skip

DATUM, NUMBER = "cvxpy.Parameter, scalar: ", "cvxpy.Expression, scalar: "
VECTOR, MATRIX = "cvxpy.Parameter (d,): ", "cvxpy.Variable (d, d), PSD or symmetric: "
TARGET = "cvxpy.Parameter, scalar or (m,): Target."
PREDICTION = "cvxpy.Expression of the same shape: Prediction."
QUANTILES = "cvxpy.Expression, scalar or (m,): Predicted quantiles."
ROOT = "Root of the precision matrix: the covariance is the inverse of R²."
LABEL, SCORE = DATUM + "Label, −1 or +1.", NUMBER + "Score."


@named_loss(alike, y=TARGET, z=PREDICTION)
def squared(y: cp.Parameter, z: Any) -> cp.Expression:
    """Square of the residual: least squares.

    ‖y − z‖₂², a scalar.

    >>> print(strat.losses.squared(y, x @ theta))
    quad_over_lin(y + -(x @ theta), 1.0...)
    """
    return cp.sum_squares(y - z)


@named_loss(alike, y=TARGET, z=PREDICTION)
def absolute(y: cp.Parameter, z: Any) -> cp.Expression:
    """Absolute value of the residual: median regression.

    ‖y − z‖₁, a scalar.

    >>> print(strat.losses.absolute(y, b))
    norm1(y + -b)
    """
    return cp.norm1(y - z)


@named_loss(alike, y=TARGET, z=PREDICTION, M="float or cvxpy.Parameter, nonneg: Where the square ends.")
def huber(y: cp.Parameter, z: Any, M: float | cp.Parameter = 1.0) -> cp.Expression:
    """Square of a small residual, absolute value of a large one: robust regression.

    Sum of r² for ``|r|`` ≤ M and ``2M|r| − M²`` beyond, r = y − z: CVXPY's scale, twice that of many books.

    >>> print(strat.losses.huber(y, b, M=0.5))
    Sum(huber(y + -b, 0.5)...)
    """
    return cp.sum(cp.huber(y - z, number("huber", "M", M)))


@named_loss(
    alike, y=DATUM + "Target.", z=QUANTILES, tau="float, ndarray or cvxpy.Parameter: Levels in [0, 1]."
)
def pinball(y: cp.Parameter, z: cp.Expression, tau: float = 0.5) -> cp.Expression:
    """Tilted absolute value of the residual: quantile regression.

    Sum of max(τr, (τ − 1)r), r = y − z, with a kink: ``ADMM`` fits it exactly, gradient methods need ``smoothing=``.

    >>> print(strat.losses.pinball(y, b, tau=0.9))
    Sum(maximum(0.9 * (y + -b), -0.09... * (y + -b))...)
    """
    tau = number("pinball", "tau", tau, 1)
    return cp.sum(cp.maximum(cp.multiply(tau, y - z), cp.multiply(tau - 1, y - z)))


@named_loss(alike, y=TARGET, z=PREDICTION, epsilon="float: Residuals up to this size cost nothing.")
def epsilon_insensitive(y: cp.Parameter, z: Any, epsilon: float = 0.1) -> cp.Expression:
    """Absolute value of the residual beyond a tolerance: support vector regression.

    Sum of ``max(|y − z| − ε, 0)``, with kinks: ``ADMM`` fits it exactly, gradient methods need ``smoothing=``.

    >>> print(strat.losses.epsilon_insensitive(y, b))
    Sum(maximum(abs(y + -b) + -0.1, 0.0)...)
    """
    return cp.sum(cp.pos(cp.abs(y - z) - number("epsilon_insensitive", "epsilon", epsilon)))


@named_loss(scalars, y=LABEL, z=SCORE)
def logistic(y: cp.Parameter, z: cp.Expression) -> cp.Expression:
    """Logistic loss of a margin.

    log(1 + exp(−yz)), exact at any margin; the probability of +1 is 1/(1 + exp(−z)).

    >>> print(strat.losses.logistic(y, x @ theta))
    logistic(-y * x @ theta)
    """
    return cp.logistic(cp.multiply(-y, z))


@named_loss(scalars, y=LABEL, z=SCORE)
def hinge(y: cp.Parameter, z: cp.Expression) -> cp.Expression:
    """Hinge loss of a margin: support vector machines.

    max(1 − yz, 0), with a kink: ``ADMM`` fits it exactly, gradient methods need ``smoothing=``.

    >>> print(strat.losses.hinge(y, b))
    maximum(1.0 + -(y * b), 0.0)
    """
    return cp.pos(1 - cp.multiply(y, z))


@named_loss(scalars, y=LABEL, z=SCORE)
def squared_hinge(y: cp.Parameter, z: cp.Expression) -> cp.Expression:
    """Square of the hinge loss: smooth.

    Square of max(1 − yz, 0).

    >>> print(strat.losses.squared_hinge(y, b))
    Power...(maximum(1.0 + -(y * b), 0.0), 2.0)
    """
    return cp.square(cp.pos(1 - cp.multiply(y, z)))


@named_loss(scalars, y=LABEL, z=SCORE)
def exponential(y: cp.Parameter, z: cp.Expression) -> cp.Expression:
    """Exponential loss of a margin: boosting.

    Exponential of −yz.

    >>> print(strat.losses.exponential(y, b))
    exp(-y * b)
    """
    return cp.exp(cp.multiply(-y, z))


@named_loss(vectors, onehot=VECTOR + "1 at the class, 0 elsewhere.", scores="cvxpy.Expression (d,): Scores.")
def softmax(onehot: cp.Parameter, scores: cp.Expression) -> cp.Expression:
    """Multinomial logistic loss.

    log Σ exp(scores) − scores @ onehot, exact at any size of the scores; the softmax of the scores are the probabilities.

    >>> theta = cp.Variable((4, 3), name="theta")
    >>> x, onehot = cp.Parameter(4, name="x"), cp.Parameter(3, name="onehot")
    >>> print(strat.losses.softmax(onehot, x @ theta))
    log_sum_exp(x @ theta...) + -(x @ theta @ onehot)
    """
    return cp.log_sum_exp(scores) - scores @ onehot


@named_loss(scalars, n=DATUM + "Count.", z=NUMBER + "Logarithm of the rate, plus that of an exposure if any.")
def poisson(n: cp.Parameter, z: cp.Expression) -> cp.Expression:
    """Poisson loss with log link.

    exp(z) − nz: minus the log-likelihood up to a constant.

    >>> theta, x, n = cp.Variable(3, name="theta"), cp.Parameter(3, name="x"), cp.Parameter(name="n")
    >>> print(strat.losses.poisson(n, x @ theta))
    exp(x @ theta) + -(n * x @ theta)
    """
    return cp.exp(z) - cp.multiply(n, z)


@named_loss(scalars, n=DATUM + "Count, at least 0.", rate=NUMBER + "Rate, affine in the variables.")
def poisson_rate(n: cp.Parameter, rate: cp.Expression) -> cp.Expression:
    """Poisson loss of a rate itself.

    rate − n log(rate), which keeps the rate positive: minus the log-likelihood up to a constant.

    >>> rate, n = cp.Variable(name="rate"), cp.Parameter(name="n")
    >>> print(strat.losses.poisson_rate(n, rate))
    rate + -(n * log(rate))
    """
    return rate - cp.multiply(n, cp.log(rate))


@named_loss(scalars, y=DATUM + "0, 1, or a share between.", p=NUMBER + "Probability of 1, affine.")
def bernoulli(y: cp.Parameter, p: cp.Expression) -> cp.Expression:
    """Bernoulli loss of a probability itself.

    −y log(p) − (1 − y) log(1 − p), which keeps p in [0, 1].

    >>> p, y = cp.Variable(name="p"), cp.Parameter(name="y")
    >>> print(strat.losses.bernoulli(y, p))
    -(y * log(p)) + -((1.0 + -y) * log(1.0 + -p))
    """
    return -cp.multiply(y, cp.log(p)) - cp.multiply(1 - y, cp.log(1 - p))


@named_loss(scalars, y=DATUM + "Target, positive.", z=NUMBER + "Logarithm of the mean.")
def gamma(y: cp.Parameter, z: cp.Expression) -> cp.Expression:
    """Gamma loss with log link: positive targets whose spread grows with their mean.

    z + y exp(−z): minus the log-likelihood of shape 1 up to a constant.

    >>> print(strat.losses.gamma(y, b))
    b + y * exp(-b)
    """
    return z + cp.multiply(y, cp.exp(-z))


@named_loss(vectors, y=VECTOR + "Observation, centred.", S=MATRIX + "Inverse of the covariance matrix.")
def gaussian(y: cp.Parameter, S: cp.Variable) -> cp.Expression:
    """Minus the Gaussian log-likelihood of mean zero, as a function of the precision matrix.

    yᵀSy − log det S, which keeps S positive definite: twice the negative log-likelihood up to a constant.

    >>> S, y = cp.Variable((2, 2), PSD=True, name="S"), cp.Parameter(2, name="y")
    >>> print(strat.losses.gaussian(y, S))
    y @ S @ y + -(log_det(S))
    """
    return y @ S @ y - cp.log_det(S)


@named_loss(vectors, y=VECTOR + "Observation.", R=MATRIX + ROOT, m="cvxpy.Variable (d,): R times the mean.")
def gaussian_with_mean(y: cp.Parameter, R: cp.Variable, m: cp.Variable) -> cp.Expression:
    """Minus the Gaussian log-likelihood with a mean, in the variables that make it convex.

    ½‖Ry − m‖² − log det R: the negative log-likelihood up to a constant.

    >>> R, m = cp.Variable((2, 2), PSD=True, name="R"), cp.Variable(2, name="m")
    >>> y = cp.Parameter(2, name="y")
    >>> print(strat.losses.gaussian_with_mean(y, R, m))
    0.5 * quad_over_lin(R @ y + -m, 1.0...) + -(log_det(R))
    """
    return 0.5 * cp.sum_squares(R @ y - m) - cp.log_det(R)
