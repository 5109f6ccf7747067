"""Means of independent values with their standard errors."""

import numpy as np

from strat.records.tables import number


def mean_and_error(values, weight=None):
    """Weighted mean x̄ of n values, and its standard error; None where they do not exist (n = 0, n = 1, infinite values).

    s.e.² = n / (n - 1) Σ_i (w_i / Σ w)² (x_i - x̄)²
    """
    n = len(values)
    if n == 0:
        return None, None
    values = np.asarray(values, dtype=float)
    share = np.full(n, 1 / n) if weight is None else weight / weight.sum()
    mean = float(np.average(values, weights=weight))
    if n == 1 or not np.isfinite(values).all():
        return mean, None
    return mean, float(np.sqrt(n / (n - 1) * np.sum((share * (values - mean)) ** 2)))


def text_of(mean, error, digits):
    """A mean and its standard error as text."""
    return number(mean, digits) + ("" if error is None else f" ± {number(error, 2)}")
