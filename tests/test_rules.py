"""Every rule of the registry against CVXPY and differences, functions that CVXPY approximates; what is registered is tested."""

import warnings

import cvxpy as cp
import numpy as np
import pytest
from against_cvxpy import assert_derivatives, assert_same_prox, directions, prox_by_cvxpy, saved, values_at
from scipy.optimize import minimize
from scipy.special import gammaln, log_ndtr

import strat
from strat.compiler.expressions import rebuilt
from strat.oracles.tape import Tape
from strat.rules import rules
from strat.rules.base import Rule

RULES = rules()
TESTED = sorted(name for name, cls in RULES.items() if cls.example()[0].is_convex())
PREDICTING = sorted(set(RULES) - set(TESTED))  # what is not convex occurs in predictions only
STEPS = np.array([0.1, 1.0, 10.0, 0.3, 4.0])


def example(name):
    """Expression, variables in the program's order, and a point."""
    expression, point = RULES[name].example()
    point = {k: np.asarray(v, dtype=float) for k, v in point.items()}
    return expression, {v.name(): v for v in expression.variables()}, point


def points(name, K, seed=0, spread=0.1):
    """K points inside the domain: the example's and K - 1 near it, ``{name: (K, *shape)}``."""
    _, variables, point = example(name)
    rng = np.random.default_rng(seed)
    out = {}
    for key, value in point.items():
        factors = 1 + spread * rng.uniform(-1, 1, size=(K, *value.shape))
        if variables[key].is_symmetric() and value.ndim == 2:
            factors = 0.5 * (factors + np.swapaxes(factors, 1, 2))
        factors[0] = 1
        out[key] = value * factors
    return out


def bound(expression):
    """The oracle, without the warnings about hidden domains that some examples deserve."""
    with warnings.catch_warnings(action="ignore", category=strat.DataWarning):
        return strat.compile(expression).bind()


def moved(name, K, far, seed=1):
    """Points K and random directions from them, so many times as long."""
    step = directions(example(name)[1].values(), K, np.random.default_rng(seed))
    return {key: part + far * step[key] for key, part in points(name, K).items()}


def variants(name):
    """The example scaled, shifted, and with linear and quadratic parts."""
    expression, variables, _ = example(name)
    shift = {
        id(v): 1.5 * v + 0.25 * (np.eye(v.shape[0]) if v.is_symmetric() and v.ndim == 2 else np.ones(v.shape))
        for v in variables.values()
    }
    linear = sum(0.3 * cp.sum(v) for v in variables.values())
    return {
        "plain": expression,
        "scaled": 2.5 * expression,
        "shifted": rebuilt(expression, shift),
        "linear": expression + linear,
        "quadratic": 0.5 * expression + sum(0.4 * cp.sum_squares(v) for v in variables.values()) + linear,
    }


PROXES = [(name, kind) for name in TESTED for kind, e in variants(name).items() if bound(e).flat.has("prox")]


def test_every_rule_has_an_example():
    for name in TESTED:
        expression, point = RULES[name].example()
        assert {v.name() for v in expression.variables()} == set(point), name
        assert RULES[name].__doc__, name


@pytest.mark.parametrize("name", PREDICTING)
def test_predictions_are_cvxpys(name):
    """Values of what is not convex, which occurs in predictions only."""
    expression, variables, point = example(name)
    y = cp.Parameter(name="y")
    distance = sum(cp.sum_squares(v - y) for v in variables.values())
    base = strat.BaseModel(distance, data=(y,), predict=expression)
    assert not expression.is_dcp(), "an example of a concave atom is its negative"
    assert RULES[name].__doc__
    assert base.check().ok
    with pytest.raises(strat.StratError, match="convex|positive"):
        strat.BaseModel(distance + cp.sum(expression), data=(y,))


@pytest.mark.parametrize("name", TESTED)
def test_value_is_cvxpys(name):
    expression, theta = example(name)[0], points(name, 6)
    expected = values_at(expression, expression.variables(), theta)
    np.testing.assert_allclose(bound(expression).value(theta), expected, rtol=1e-9, atol=1e-9)


def legal(name):
    """Whether CVXPY and the rule take random points as legal: two masks."""
    expression, rng = example(name)[0], np.random.default_rng(1)
    theta = {key: 2 * value for key, value in directions(expression.variables(), 40, rng).items()}
    by_cvxpy = []
    for k in range(40):
        saved((v, theta[v.name()][k]) for v in expression.variables())
        by_cvxpy.append(all(np.all(condition.violation() <= 1e-9) for condition in expression.domain))
    oracle = bound(expression)
    flat = np.concatenate([theta[key].reshape(40, -1) for key in theta], axis=1)
    with np.errstate(all="ignore"):
        illegal = [part.run(flat)[2] for part in oracle.flat.parts if isinstance(part, Tape)]
    by_rule = ~sum((mask for mask in illegal if mask is not None), np.zeros(40, dtype=bool))
    assert np.all(oracle.value(theta)[~by_rule] == np.inf)
    return np.array(by_cvxpy), by_rule


RESTRICTED = [name for name in TESTED if not legal(name)[0].all()]


@pytest.mark.parametrize("name", TESTED)
def test_domain_is_cvxpys(name):
    np.testing.assert_array_equal(*legal(name))


@pytest.mark.parametrize("name", RESTRICTED)
def test_a_rule_that_forgets_its_domain_is_found(name, monkeypatch):
    monkeypatch.setattr(RULES[name], "intervals", {})
    monkeypatch.setattr(RULES[name], "definite", ())
    monkeypatch.setattr(RULES[name], "domain", Rule.domain)
    with pytest.raises(AssertionError):
        test_domain_is_cvxpys(name)


@pytest.mark.parametrize("name", TESTED)
def test_derivatives_are_differences(name):
    expression, theta = example(name)[0], points(name, 5)
    oracle = bound(expression)
    if oracle.flat.has("value_and_gradient"):
        assert_derivatives(oracle, expression.variables(), theta, np.random.default_rng(1))
    else:
        assert "not differentiable" in oracle.flat.missing("value_and_gradient")


@pytest.mark.parametrize("name", TESTED)
def test_what_a_rule_declares_holds(name):
    cls, oracle, theta = RULES[name], bound(example(name)[0]), points(name, 4)
    flat = np.concatenate([part.reshape(4, -1) for part in theta.values()], axis=1)
    moved = {
        "absolute": {key: np.abs(part) for key, part in theta.items()},
        "ordered": {key: part[..., ::-1] for key, part in theta.items()},
    }.get(cls.invariance, theta)
    np.testing.assert_allclose(oracle.value(moved), oracle.value(theta), rtol=1e-12)
    if oracle.flat.has("hessian_operator"):
        operator = oracle.flat.hessian_operator(flat)
        H = np.stack([operator(np.broadcast_to(e, flat.shape)) for e in np.eye(flat.shape[1])], axis=2)
        if oracle.flat.has("hessian"):
            np.testing.assert_allclose(oracle.flat.hessian(flat), H, rtol=1e-10, atol=1e-10)
        if oracle.flat.quadratic:
            np.testing.assert_allclose(H, np.broadcast_to(H[0], H.shape), rtol=1e-10)
    for tape in (part for part in oracle.flat.parts if isinstance(part, Tape)):
        for node, (args, _, _) in tape.run(flat)[0].items():
            if node.rule.flat_at_zero:
                args = [np.zeros_like(args[0]), *args[1:]]
                out, memo = node.rule.forward(args)
                assert not node.rule.pullback(0, args, out, memo, np.ones_like(out)).any()


@pytest.mark.parametrize("name", TESTED)
def test_kinks_are_declared(name):
    """The slope of a convex function along a line through 0 does not jump, by bisection, where it is said to have one."""
    oracle, point = bound(example(name)[0]), points(name, 1)

    def slope(c):
        gradient = oracle.gradient({key: c * value for key, value in point.items()})
        return sum(np.vdot(gradient[key], value) for key, value in point.items())

    low, high = -0.83, 1.0
    inside = np.isfinite(oracle.value({key: low * value for key, value in point.items()})).all()
    if not (inside and oracle.flat.has("value_and_gradient")):
        return
    left, right = slope(low), slope(high)
    whole = right - left
    for _ in range(40):
        middle = (low + high) / 2
        between = slope(middle)
        if between - left > right - between:
            high, right = middle, between
        else:
            low, left = middle, between
    assert right - left <= 1e-6 * whole


@pytest.mark.parametrize("name", ["Abs", "LambdaMax", "SumLargest"])
def test_a_rule_that_forgets_its_kinks_is_found(name, monkeypatch):
    monkeypatch.setattr(RULES[name], "kinks", "none")
    with pytest.raises(AssertionError):
        test_kinks_are_declared(name)


@pytest.mark.parametrize("name", TESTED)
def test_batched_is_looped(name):
    theta, oracle = points(name, 4), bound(example(name)[0])
    one = [{key: value[k : k + 1] for key, value in theta.items()} for k in range(4)]
    np.testing.assert_allclose(oracle.value(theta), np.ravel([oracle.value(o) for o in one]), rtol=1e-14)
    if oracle.flat.has("value_and_gradient"):
        gradient = oracle.gradient(theta)
        for key in theta:
            looped = np.concatenate([oracle.gradient(o)[key] for o in one])
            np.testing.assert_allclose(gradient[key], looped, rtol=1e-13, atol=1e-14)
    if oracle.flat.has("prox"):
        t = np.array([0.1, 1.0, 10.0, 2.0])
        far, close = moved(name, 4, 3.0), 1e-6 if solved_by_clarabel(oracle) else 1e-9
        z = oracle.prox(far, t)
        for k in range(4):
            single = oracle.prox({key: value[k : k + 1] for key, value in far.items()}, float(t[k]))
            for key in theta:
                np.testing.assert_allclose(z[key][k], single[key][0], rtol=close, atol=close)


@pytest.mark.parametrize(("name", "kind"), PROXES)
def test_prox_is_cvxpys(name, kind):
    expression = variants(name)[kind]
    oracle, variables, v = bound(expression), expression.variables(), moved(name, len(STEPS), 1.5, seed=2)
    z, reference = oracle.prox(v, STEPS), prox_by_cvxpy(expression, variables, v, STEPS)
    gap = 1e-7 if solved_by_clarabel(oracle) else 1e-9
    assert reference is not None
    assert_same_prox(oracle, variables, z, v, STEPS, reference, gap=gap)


def solved_by_clarabel(oracle):
    prox = oracle.flat.prox
    return "cone program" in prox.kind or getattr(prox, "rescue", None) is not None


@pytest.mark.parametrize("name", TESTED)
@pytest.mark.parametrize("size", [1e4, -1e4, 0.0])
def test_extreme_arguments_give_no_nan(name, size):
    _, variables, point = example(name)
    theta = {key: np.full((1, *value.shape), size) for key, value in point.items()}
    oracle = bound(example(name)[0])
    value = oracle.value(theta)
    assert not np.isnan(value).any() and not np.any(value == -np.inf)
    if oracle.flat.has("value_and_gradient") and np.isfinite(value).all():
        gradient = np.concatenate([g.ravel() for g in oracle.gradient(theta).values()])
        assert not np.isnan(gradient).any()
        # an infinite slope where the value is finite is declared as steep
        flat = np.full((1, gradient.size), size)
        assert np.isfinite(gradient).all() or oracle.flat.interior().value(flat) == np.inf
        if size == 0:  # and so is an end that belongs to the domain
            for node in [node for part in oracle.flat.parts for node in getattr(part, "nodes", ())]:
                ends = {i for i, (low, _) in node.rule.intervals.items() if low == 0 and i in node.varying}
                assert ends <= {*node.rule.steep, *node.rule.closed}
    if oracle.flat.has("prox"):
        z = oracle.prox(theta, 1.0)
        assert all(np.isfinite(part).all() for part in z.values())
        assert np.isfinite(oracle.value(z)).all()


u = cp.Variable(name="u")
BOUNDARIES = [
    (-cp.log(u), 0.0, np.inf), (-cp.log(u), -1.0, np.inf), (-cp.log1p(u), -1.0, np.inf),
    (-cp.log1p(u), -2.0, np.inf), (-cp.entr(u), 0.0, 0.0), (-cp.entr(u), -1e-3, np.inf),
    (-0.0 * cp.log(u), 0.0, 0.0), (cp.kl_div(0, u), 0.0, 0.0), (cp.kl_div(0, u), 2.0, 2.0),
    (cp.kl_div(1, u), 0.0, np.inf), (cp.kl_div(1, u), -1.0, np.inf), (cp.rel_entr(0, u), 0.0, 0.0),
    (cp.rel_entr(2, u), 0.0, np.inf), (cp.kl_div(u, 1), 0.0, 1.0), (cp.power(u, 1.5), 0.0, 0.0),
    (cp.power(u, 1.5), -1.0, np.inf), (cp.power(u, 3), -1.0, np.inf), (cp.power(u, 4), -2.0, 16.0),
    (cp.power(u, -1), 0.0, np.inf), (cp.power(u, -1), -1.0, np.inf), (-cp.sqrt(u), 0.0, 0.0),
    (-cp.sqrt(u), -1.0, np.inf), (cp.inv_pos(u), 0.0, np.inf),
    (cp.quad_over_lin(cp.hstack([u, 0]), u), 0.0, 0.0), (cp.quad_over_lin(np.ones(2), u), 0.0, np.inf),
    (cp.quad_over_lin(np.ones(2), u), -1.0, np.inf), (cp.logistic(u), 1e4, 1e4), (cp.logistic(u), -1e4, 0.0),
    (cp.log_sum_exp(cp.hstack([u, -u, 0])), 1e4, 1e4), (cp.log_sum_exp(u), 3.0, 3.0),
    (cp.log_sum_exp(cp.hstack([u] * 10)), 1e4, 1e4 + np.log(10)), (cp.exp(u), 1e4, np.inf),
    (cp.huber(u, 1), 1e200, 2e200),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "at", "expected"), BOUNDARIES)
def test_values_at_the_boundary_of_the_domain(expression, at, expected):
    assert bound(expression).value(np.array([at]))[0] == expected


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
    sign, exact = (1, gammaln) if function is cp.loggamma else (-1, log_ndtr)
    oracle, theta = strat.compile(sign * cp.sum(function(v))).bind(), {"v": np.array([point])}
    assert oracle.value(theta)[0] == pytest.approx(sign * exact(np.array(point)).sum(), rel=1e-14)
    for _ in range(3):
        assert_derivatives(oracle, [v], theta, RNG)


def test_check_and_cone_programs_say_so():
    base = strat.BaseModel(cp.loggamma(a) - (a - 1) * y, data=(y,))
    report = base.check()
    assert report.ok and "CVXPY's is an approximation" in str(report)
    base = strat.BaseModel(cp.abs(y - a) + cp.loggamma(a), data=(y,))
    with pytest.raises(strat.NoOracleError, match=r"CVXPY writes cp\.loggamma as an approximation"):
        strat.separate(base, solver=strat.Cone()).fit(LOGS, strata=ONE, init={"theta": {"a": np.ones(1)}})
