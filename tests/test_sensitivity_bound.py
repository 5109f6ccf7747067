"""Theorem 1: no accurate pair of fits lies above the bound."""

import cvxpy as cp
import numpy as np
import pytest

import strat


def accuracy(fitted, true):
    return np.linalg.norm(fitted - true, axis=-1) / np.linalg.norm(true, axis=-1)


@pytest.mark.parametrize("imbalance", [3.0, 10.0, 100.0])
def test_accurate_fits_are_within_the_bound(imbalance):
    """Fits of a star whose centre has no records, before and after one weight has changed."""
    rng, K, n = np.random.default_rng(int(imbalance)), 6, 3
    theta, y = cp.Variable(n, name="theta"), cp.Parameter(n, name="y")
    base = strat.BaseModel(cp.sum_squares(y - theta), data=(y,))
    finite = 0
    for _ in range(15):
        leaves = rng.standard_normal((K - 1, n)) * np.r_[imbalance, np.ones(K - 2)][:, None]
        weight = rng.uniform(0.5, 1.5, K - 1)
        true = np.vstack([weight @ leaves / weight.sum(), leaves])
        changed = weight * np.r_[1 + 10 ** rng.uniform(-3, 1), np.ones(K - 2)]
        records = leaves + 1e-3 * rng.standard_normal((K - 1, n))
        models = [strat.lrsm(base, strat.graphs.star(K, weight=1e-3 * w)) for w in (weight, changed)]
        fits = [model.fit(records, strata=np.arange(1, K)).theta_["theta"] for model in models]
        errors = np.max([accuracy(fit, true) for fit in fits], axis=0)
        norms = np.linalg.norm(true, axis=1)
        share, ratio = weight[0] / weight.sum(), norms[1] / np.delete(norms, 1).max()
        bound = strat.sensitivity_bound(share, ratio, delta=errors[1:].max(), delta_center=errors[0])
        assert changed[0] / weight[0] - 1 <= bound
        finite += np.isfinite(bound)
    assert finite


def test_with_exact_leaves_it_is_the_formula_of_the_remark():
    p, A, center = np.array([0.1, 0.3]), np.array([[5.0], [50.0]]), 0.02
    expected = 2 * center / ((1 - p) * (A - 1) - 2 * center) / p
    assert np.allclose(strat.sensitivity_bound(p, A, 0.0, center), expected)
    assert strat.sensitivity_bound(0.1, 5.0, 0.0, 0.02) == pytest.approx(expected[0, 0])
    assert isinstance(strat.sensitivity_bound(0.1, 5.0, 0.0, 0.02), float)


def test_it_is_infinite_where_the_theorem_says_nothing():
    assert strat.sensitivity_bound(0.5, 0.5, 0.0, 0.1) == np.inf
    assert strat.sensitivity_bound(1.0, 5.0, 0.1, 0.1) == np.inf
    assert np.array_equal(np.isinf(strat.sensitivity_bound(0.2, [1.0, 50.0], 0.0, 0.1)), [True, False])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 2.0, 0.0, 0.1), "share is 0, but it must be above 0 and at most 1"),
        (([0.5, 1.5], 2.0, 0.0, 0.1), "share is 1.5"),
        ((0.1, -2.0, 0.0, 0.1), "ratio is -2"),
        ((0.1, 2.0, -0.1, 0.1), "delta is -0.1"),
        ((0.1, 2.0, 0.0, np.nan), "delta_center is nan, but it must be a finite number"),
        ((0.1, "large", 0.0, 0.1), "ratio is 'large'"),
        (([0.1, 0.2], [1, 2, 3], 0, 0.1), "do not go together"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(strat.OptionError, match=message):
        strat.sensitivity_bound(*arguments)
