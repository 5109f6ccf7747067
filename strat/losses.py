"""Named losses of one record: each function returns a CVXPY expression, which you can print, change and add to.

``y`` is the observation, a ``cp.Parameter`` of one record; ``z`` is the prediction, an affine expression in the
variables. You could write every loss by hand; print the result to see how.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import cvxpy as cp
import numpy as np

from strat.errors import DeclarationError, OptionError, ShapeError, type_name
from strat.oracles.base import floats

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
F = TypeVar("F", bound=Callable)
#: The declarations that are put before an example without any.
DECLARED = """>>> theta, x = cp.Variable(3, name="theta"), cp.Parameter(3, name="x")
>>> b, y = cp.Variable(name="b"), cp.Parameter(name="y")
"""


def named_loss(check: Callable, **arguments: str) -> Callable[[F], F]:
    """Turn a function whose docstring has three parts (summary, formula and example) into a loss.

    `check` validates the arguments; `arguments` give the type of each and, after a colon, its meaning.
    """

    def decorate(f):
        @functools.wraps(f)
        def checked(*args, **options):
            given = inspect.signature(f).bind(*args, **options).arguments
            check(f.__name__, given)
            return f(**given)

        if f.__doc__:  # python -OO strips docstrings
            summary, formula, example = inspect.getdoc(f).split("\n\n")
            example = example if "Variable" in example else DECLARED + example
            parameters = [f"{name} : " + text.replace(": ", "\n    ", 1) for name, text in arguments.items()]
            checked.__doc__ = "\n".join(
                [f"{summary}\n\nParameters\n----------", *parameters, "\nReturns\n-------\ncvxpy.Expression"]
                + [f"    {formula}\n\nExamples\n--------\n>>> import cvxpy as cp, strat\n{example}\n"]
            )
        return checked

    return decorate


def _shapes(loss, given, *names):
    """The shapes of the named arguments, each of which must be an expression or numeric."""
    for name in names:
        if not isinstance(given[name], cp.Expression) and np.asarray(given[name]).dtype.kind not in "fiub":
            raise DeclarationError(
                f"{name} of losses.{loss} must be a CVXPY expression, such as a Parameter or x @ theta, but it is "
                f"{type_name(given[name])}."
            )
    return {name: np.shape(given[name]) for name in names}


def alike(loss, given):
    """Check that target and prediction have the same shape: broadcasting would silently add terms."""
    u, v = _shapes(loss, given, "y", "z").values()
    if u != v and not (np.prod(u) == np.prod(v) == 1) and not (loss == "pinball" and u == ()):
        raise ShapeError(
            f"losses.{loss} needs y and z of one shape, but y has shape {u} and z has {v}. Declare the data of one "
            f"record with the shape of its prediction."
        )


def scalars(loss, given):
    """Check that every argument is a single number per record."""
    for name, shape in _shapes(loss, given, *given).items():
        if np.prod(shape) != 1:
            raise ShapeError(
                f"losses.{loss} is of one number: {name} must be a scalar, but it has shape {shape}. The loss is that of "
                f"one record; for several outputs sum it: sum(losses.{loss}(…[j], …[j]) for j in range({shape[0]}))."
            )


def vectors(loss, given):
    """Check that matrices are symmetric, (d, d), and that all other arguments are vectors of length d."""
    shapes = _shapes(loss, given, *(given.keys() - {"S", "R"}))
    if any(len(shape) != 1 for shape in shapes.values()) or len(set(shapes.values())) > 1:
        shown = " and ".join(f"{name} of shape {shapes[name]}" for name in given if name in shapes)
        raise ShapeError(f"losses.{loss} needs vectors of one length (m,), but it was given {shown}.")
    (size,), *_ = shapes.values()
    for name, shape in _shapes(loss, given, *(given.keys() & {"S", "R"})).items():
        if shape != (size, size):
            raise ShapeError(f"losses.{loss} needs {name} of shape {(size, size)}, but it has shape {shape}.")
        if not cp.Expression.cast_to_const(given[name]).is_symmetric():
            raise DeclarationError(
                f"losses.{loss} needs a symmetric {name}: declare it as cp.Variable(({size}, {size}), PSD=True)."
            )


def number(loss, name, value, high=np.inf):
    """Return a constant (a list as an array), or raise an OptionError if it is not between 0 and `high`."""
    if isinstance(value, cp.Expression) and (high < np.inf or value.is_nonneg()):
        return value
    array = floats(value)
    if not np.all((array >= 0) & (array <= high) & np.isfinite(array)):
        range_ = "between 0 and 1 or a Parameter" if high == 1 else "at least 0 or a Parameter(nonneg=True)"
        raise OptionError(f"{name} of losses.{loss} must be a number {range_}, but it is {value!r}.")
    return float(array) if array.ndim == 0 else array


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
    """Square of the hinge loss, which is smooth.

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

    log Σ exp(scores) − scores @ onehot, exact at any size of the scores; the probabilities are the softmax of the scores.

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
    """Poisson loss as a function of the rate itself.

    rate − n log(rate), which keeps the rate positive: minus the log-likelihood up to a constant.

    >>> rate, n = cp.Variable(name="rate"), cp.Parameter(name="n")
    >>> print(strat.losses.poisson_rate(n, rate))
    rate + -(n * log(rate))
    """
    return rate - cp.multiply(n, cp.log(rate))


@named_loss(scalars, y=DATUM + "0, 1, or a share between.", p=NUMBER + "Probability of 1, affine.")
def bernoulli(y: cp.Parameter, p: cp.Expression) -> cp.Expression:
    """Bernoulli loss as a function of the probability itself.

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
