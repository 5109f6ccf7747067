"""cp.loggamma and cp.log_normcdf: exact in a fit, though CVXPY writes approximations of them."""

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import gammaln, log_ndtr

import strat

RNG = np.random.default_rng(0)
w, a = cp.Variable(2, name="w"), cp.Variable(name="a", pos=True)
x, y = cp.Parameter(2, name="x"), cp.Parameter(name="y")
X = RNG.normal(size=(200, 2))
SIGNS = np.where(X @ [1.0, -0.5] + RNG.normal(size=200) > 0, 1.0, -1.0)
LOGS = np.log(RNG.gamma(2.7, size=200))
ONE = [0] * 200


def test_the_shape_of_a_gamma_distribution_is_the_maximum_of_its_likelihood():
    model = strat.separate(strat.BaseModel(cp.loggamma(a) - (a - 1) * y, data=(y,))).fit(LOGS, strata=ONE)
    best = minimize(lambda v: 200 * gammaln(v[0]) - (v[0] - 1) * LOGS.sum(), [2.0], tol=1e-12)
    assert model.theta_["a"][0] == pytest.approx(best.x[0], rel=1e-5)
    assert model.result_.objective == pytest.approx(best.fun, rel=1e-10)


def test_probit_regression():
    base = strat.BaseModel(-cp.log_normcdf(y * (x @ w)), data=(x, y))
    model = strat.separate(base).fit(X, SIGNS, strata=ONE)
    best = minimize(lambda t: -log_ndtr(SIGNS * (X @ t)).sum(), [0.0, 0.0], tol=1e-12)
    np.testing.assert_allclose(model.theta_["w"][0], best.x, atol=1e-5)
    assert model.result_.objective == pytest.approx(best.fun, rel=1e-10)
    with pytest.warns(strat.DataWarning, match=r"approximation of cp\.log_normcdf"):
        model.to_cvxpy()


@pytest.mark.parametrize("function, point", [(cp.loggamma, [0.1, 1, 30]), (cp.log_normcdf, [-30.0, 0, 9])])
def test_derivatives(function, point):
    v = cp.Variable(3, name="v")
    sign = 1 if function is cp.loggamma else -1
    oracle = strat.compile(sign * cp.sum(function(v))).bind()
    theta, d, h = {"v": np.array([point])}, {"v": np.ones((1, 3))}, 1e-6
    exact = gammaln if function is cp.loggamma else log_ndtr
    assert oracle.value(theta)[0] == pytest.approx(sign * exact(np.array(point)).sum(), rel=1e-14)
    _, gradient = oracle.value_and_gradient(theta)
    above, below = (oracle.value_and_gradient({"v": theta["v"] + s * h}) for s in (1, -1))
    steps = h * np.maximum(1, np.abs(point))
    wanted = (exact(point + steps) - exact(point - steps)) / (2 * steps)
    np.testing.assert_allclose(gradient["v"][0], sign * wanted, rtol=1e-6, atol=1e-9)
    curvature = (above[1]["v"] - below[1]["v"]) / (2 * h)
    np.testing.assert_allclose(oracle.hvp(theta, d)["v"], curvature, rtol=1e-5, atol=1e-9)


def test_check_and_cone_programs_say_so():
    base = strat.BaseModel(cp.loggamma(a) - (a - 1) * y, data=(y,))
    report = base.check()
    assert report.ok and "CVXPY's is an approximation" in str(report)
    base = strat.BaseModel(cp.abs(y - a) + cp.loggamma(a), data=(y,))
    with pytest.raises(strat.NoOracleError, match=r"CVXPY writes cp\.loggamma as an approximation"):
        strat.separate(base, solver=strat.Cone()).fit(LOGS, strata=ONE, init={"theta": {"a": np.ones(1)}})
