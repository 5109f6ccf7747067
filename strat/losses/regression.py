"""Losses of residuals: regression."""

from typing import Any

import cvxpy as cp

from strat.losses import shapes


def squared(y: cp.Parameter, z: Any) -> cp.Expression:
    """Square of the residual: least squares.

    Parameters
    ----------
    y : cvxpy.Parameter, scalar or (m,)
        Target.
    z : cvxpy.Expression of the same shape
        Prediction.

    Returns
    -------
    cvxpy.Expression
        ‖y − z‖₂², a scalar.

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> theta, x, y = cp.Variable(3, name="theta"), cp.Parameter(3, name="x"), cp.Parameter(name="y")
    >>> print(strat.losses.squared(y, x @ theta))
    quad_over_lin(y + -(x @ theta), 1.0...)
    """
    shapes.same_shape("squared", y=y, z=z)
    return cp.sum_squares(y - z)


def absolute(y: cp.Parameter, z: Any) -> cp.Expression:
    """Absolute value of the residual: median regression.

    Parameters
    ----------
    y : cvxpy.Parameter, scalar or (m,)
        Target.
    z : cvxpy.Expression of the same shape
        Prediction.

    Returns
    -------
    cvxpy.Expression
        ‖y − z‖₁, a scalar.

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> b, y = cp.Variable(name="b"), cp.Parameter(name="y")
    >>> print(strat.losses.absolute(y, b))
    norm1(y + -b)
    """
    shapes.same_shape("absolute", y=y, z=z)
    return cp.norm1(y - z)


def huber(y: cp.Parameter, z: Any, M: float | cp.Parameter = 1.0) -> cp.Expression:
    """Square of a small residual, absolute value of a large one: robust regression.

    Parameters
    ----------
    y : cvxpy.Parameter, scalar or (m,)
        Target.
    z : cvxpy.Expression of the same shape
        Prediction.
    M : float or cvxpy.Parameter
        Where the square ends; a Parameter must be declared nonneg.

    Returns
    -------
    cvxpy.Expression
        Sum of r² for ``|r|`` ≤ M and ``2M|r| − M²`` beyond, r = y − z: CVXPY's scale, twice that of many books.

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> b, y = cp.Variable(name="b"), cp.Parameter(name="y")
    >>> print(strat.losses.huber(y, b, M=0.5))
    Sum(huber(y + -b, 0.5)...)
    """
    shapes.same_shape("huber", y=y, z=z)
    return cp.sum(cp.huber(y - z, shapes.number("huber", "M", M, 0)))


def pinball(y: cp.Parameter, z: cp.Expression, tau: float = 0.5) -> cp.Expression:
    """Tilted absolute value of the residual: quantile regression.

    Parameters
    ----------
    y : cvxpy.Parameter, scalar
        Target.
    z : cvxpy.Expression, scalar or (m,)
        Predicted quantiles.
    tau : float, (m,) ndarray or cvxpy.Parameter
        Levels between 0 and 1.

    Returns
    -------
    cvxpy.Expression
        Sum of max(τr, (τ − 1)r), r = y − z, with a kink: ``ADMM`` fits it exactly, gradient methods need ``smoothing=``.

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> b, y = cp.Variable(name="b"), cp.Parameter(name="y")
    >>> print(strat.losses.pinball(y, b, tau=0.9))
    Sum(maximum(0.9 * (y + -b), -0.09... * (y + -b))...)
    """
    if cp.Constant(0).shape != getattr(y, "shape", None):  # a scalar stands beside several quantiles
        shapes.same_shape("pinball", y=y, z=z)
    tau = shapes.number("pinball", "tau", tau, 0, 1)
    return cp.sum(cp.maximum(cp.multiply(tau, y - z), cp.multiply(tau - 1, y - z)))


def epsilon_insensitive(y: cp.Parameter, z: Any, epsilon: float = 0.1) -> cp.Expression:
    """Absolute value of the residual beyond a tolerance: support vector regression.

    Parameters
    ----------
    y : cvxpy.Parameter, scalar or (m,)
        Target.
    z : cvxpy.Expression of the same shape
        Prediction.
    epsilon : float
        Residuals up to this size cost nothing.

    Returns
    -------
    cvxpy.Expression
        Sum of ``max(|y − z| − ε, 0)``, with kinks: ``ADMM`` fits it exactly, gradient methods need ``smoothing=``.

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> b, y = cp.Variable(name="b"), cp.Parameter(name="y")
    >>> print(strat.losses.epsilon_insensitive(y, b))
    Sum(maximum(abs(y + -b) + -0.1, 0.0)...)
    """
    shapes.same_shape("epsilon_insensitive", y=y, z=z)
    return cp.sum(cp.pos(cp.abs(y - z) - shapes.number("epsilon_insensitive", "epsilon", epsilon, 0)))
