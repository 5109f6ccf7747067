"""Negative log-likelihoods: counts, rates, positive and Gaussian data."""

import cvxpy as cp

from strat.losses import shapes


def poisson(n: cp.Parameter, z: cp.Expression) -> cp.Expression:
    """Poisson loss with log link.

    Parameters
    ----------
    n : cvxpy.Parameter, scalar
        Count.
    z : cvxpy.Expression, scalar
        Logarithm of the rate; add the logarithm of an exposure where there is one.

    Returns
    -------
    cvxpy.Expression
        exp(z) − nz: minus the log-likelihood up to a constant.

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> theta, x, n = cp.Variable(3, name="theta"), cp.Parameter(3, name="x"), cp.Parameter(name="n")
    >>> print(strat.losses.poisson(n, x @ theta))
    exp(x @ theta) + -(n * x @ theta)
    """
    shapes.scalars("poisson", n=n, z=z)
    return cp.exp(z) - cp.multiply(n, z)


def poisson_rate(n: cp.Parameter, rate: cp.Expression) -> cp.Expression:
    """Poisson loss of a rate itself.

    Parameters
    ----------
    n : cvxpy.Parameter, scalar
        Count, at least 0.
    rate : cvxpy.Expression, scalar
        Rate, affine in the variables; it is kept positive by the loss.

    Returns
    -------
    cvxpy.Expression
        rate − n log(rate): minus the log-likelihood up to a constant.

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> rate, n = cp.Variable(name="rate"), cp.Parameter(name="n")
    >>> print(strat.losses.poisson_rate(n, rate))
    rate + -(n * log(rate))
    """
    shapes.scalars("poisson_rate", n=n, rate=rate)
    return rate - cp.multiply(n, cp.log(rate))


def bernoulli(y: cp.Parameter, p: cp.Expression) -> cp.Expression:
    """Bernoulli loss of a probability itself.

    Parameters
    ----------
    y : cvxpy.Parameter, scalar
        Outcome: 0, 1, or a share between them.
    p : cvxpy.Expression, scalar
        Probability of 1, affine in the variables; it is kept in [0, 1] by the loss.

    Returns
    -------
    cvxpy.Expression
        −y log(p) − (1 − y) log(1 − p).

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> p, y = cp.Variable(name="p"), cp.Parameter(name="y")
    >>> print(strat.losses.bernoulli(y, p))
    -(y * log(p)) + -((1.0 + -y) * log(1.0 + -p))
    """
    shapes.scalars("bernoulli", y=y, p=p)
    return -cp.multiply(y, cp.log(p)) - cp.multiply(1 - y, cp.log(1 - p))


def gamma(y: cp.Parameter, z: cp.Expression) -> cp.Expression:
    """Gamma loss with log link: positive targets whose spread grows with their mean.

    Parameters
    ----------
    y : cvxpy.Parameter, scalar
        Target, positive.
    z : cvxpy.Expression, scalar
        Logarithm of the mean.

    Returns
    -------
    cvxpy.Expression
        z + y exp(−z): minus the log-likelihood of shape 1 up to a constant.

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> b, y = cp.Variable(name="b"), cp.Parameter(name="y")
    >>> print(strat.losses.gamma(y, b))
    b + y * exp(-b)
    """
    shapes.scalars("gamma", y=y, z=z)
    return z + cp.multiply(y, cp.exp(-z))


def gaussian(y: cp.Parameter, S: cp.Variable) -> cp.Expression:
    """Minus the Gaussian log-likelihood of mean zero, as a function of the precision matrix.

    Parameters
    ----------
    y : cvxpy.Parameter (d,)
        Observation, centred.
    S : cvxpy.Variable (d, d), PSD or symmetric
        Inverse of the covariance matrix; it is kept positive definite by the loss.

    Returns
    -------
    cvxpy.Expression
        yᵀSy − log det S, twice the negative log-likelihood up to a constant.

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> S, y = cp.Variable((2, 2), PSD=True, name="S"), cp.Parameter(2, name="y")
    >>> print(strat.losses.gaussian(y, S))
    y @ S @ y + -(log_det(S))
    """
    shapes.vectors("gaussian", y=y)
    shapes.symmetric("gaussian", "S", S, y.shape[0])
    return y @ S @ y - cp.log_det(S)


def gaussian_with_mean(y: cp.Parameter, R: cp.Variable, m: cp.Variable) -> cp.Expression:
    """Minus the Gaussian log-likelihood with a mean, in the variables that make it convex.

    Parameters
    ----------
    y : cvxpy.Parameter (d,)
        Observation.
    R : cvxpy.Variable (d, d), PSD or symmetric
        Root of the precision matrix: the covariance is the inverse of R².
    m : cvxpy.Variable (d,)
        R times the mean: the mean is the solution of R μ = m.

    Returns
    -------
    cvxpy.Expression
        ½‖Ry − m‖² − log det R: the negative log-likelihood up to a constant.

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> R, m = cp.Variable((2, 2), PSD=True, name="R"), cp.Variable(2, name="m")
    >>> y = cp.Parameter(2, name="y")
    >>> print(strat.losses.gaussian_with_mean(y, R, m))
    0.5 * quad_over_lin(R @ y + -m, 1.0...) + -(log_det(R))
    """
    shapes.vectors("gaussian_with_mean", y=y, m=m)
    shapes.symmetric("gaussian_with_mean", "R", R, y.shape[0])
    return 0.5 * cp.sum_squares(R @ y - m) - cp.log_det(R)
