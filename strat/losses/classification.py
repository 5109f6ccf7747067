"""Losses of margins and scores: classification."""

import cvxpy as cp

from strat.losses import shapes


def logistic(y: cp.Parameter, z: cp.Expression) -> cp.Expression:
    """Logistic loss of a margin.

    Parameters
    ----------
    y : cvxpy.Parameter, scalar
        Label, −1 or +1.
    z : cvxpy.Expression, scalar
        Score; the probability of +1 is 1/(1 + exp(−z)).

    Returns
    -------
    cvxpy.Expression
        log(1 + exp(−yz)), exact at any margin.

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> theta, x, y = cp.Variable(3, name="theta"), cp.Parameter(3, name="x"), cp.Parameter(name="y")
    >>> print(strat.losses.logistic(y, x @ theta))
    logistic(-y * x @ theta)
    """
    shapes.scalars("logistic", y=y, z=z)
    return cp.logistic(cp.multiply(-y, z))


def hinge(y: cp.Parameter, z: cp.Expression) -> cp.Expression:
    """Hinge loss of a margin: support vector machines.

    Parameters
    ----------
    y : cvxpy.Parameter, scalar
        Label, −1 or +1.
    z : cvxpy.Expression, scalar
        Score.

    Returns
    -------
    cvxpy.Expression
        max(1 − yz, 0), with a kink: ``ADMM`` fits it exactly, gradient methods need ``smoothing=``.

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> b, y = cp.Variable(name="b"), cp.Parameter(name="y")
    >>> print(strat.losses.hinge(y, b))
    maximum(1.0 + -(y * b), 0.0)
    """
    shapes.scalars("hinge", y=y, z=z)
    return cp.pos(1 - cp.multiply(y, z))


def squared_hinge(y: cp.Parameter, z: cp.Expression) -> cp.Expression:
    """Square of the hinge loss: smooth.

    Parameters
    ----------
    y : cvxpy.Parameter, scalar
        Label, −1 or +1.
    z : cvxpy.Expression, scalar
        Score.

    Returns
    -------
    cvxpy.Expression
        Square of max(1 − yz, 0).

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> b, y = cp.Variable(name="b"), cp.Parameter(name="y")
    >>> print(strat.losses.squared_hinge(y, b))
    Power...(maximum(1.0 + -(y * b), 0.0), 2.0)
    """
    shapes.scalars("squared_hinge", y=y, z=z)
    return cp.square(cp.pos(1 - cp.multiply(y, z)))


def exponential(y: cp.Parameter, z: cp.Expression) -> cp.Expression:
    """Exponential loss of a margin: boosting.

    Parameters
    ----------
    y : cvxpy.Parameter, scalar
        Label, −1 or +1.
    z : cvxpy.Expression, scalar
        Score.

    Returns
    -------
    cvxpy.Expression
        Exponential of −yz.

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> b, y = cp.Variable(name="b"), cp.Parameter(name="y")
    >>> print(strat.losses.exponential(y, b))
    exp(-y * b)
    """
    shapes.scalars("exponential", y=y, z=z)
    return cp.exp(cp.multiply(-y, z))


def softmax(onehot: cp.Parameter, scores: cp.Expression) -> cp.Expression:
    """Multinomial logistic loss.

    Parameters
    ----------
    onehot : cvxpy.Parameter (m,)
        Class of the record: 1 in its place, 0 elsewhere.
    scores : cvxpy.Expression (m,)
        Scores of the classes; probabilities are their softmax.

    Returns
    -------
    cvxpy.Expression
        log Σ exp(scores) − scores @ onehot, exact at any size of the scores.

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> theta = cp.Variable((4, 3), name="theta")
    >>> x, onehot = cp.Parameter(4, name="x"), cp.Parameter(3, name="onehot")
    >>> print(strat.losses.softmax(onehot, x @ theta))
    log_sum_exp(x @ theta...) + -(x @ theta @ onehot)
    """
    shapes.vectors("softmax", onehot=onehot, scores=scores)
    return cp.log_sum_exp(scores) - scores @ onehot
