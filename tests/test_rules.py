"""Every rule of the registry against CVXPY and against differences; what is registered is tested."""

import warnings

import cvxpy as cp
import numpy as np
import pytest

import strat
from strat.compiler.expressions import rebuilt
from strat.oracles.tape import Tape
from strat.rules import rules
from strat.rules.base import Rule

RULES = rules()
TESTED = sorted(name for name, cls in RULES.items() if cls.example()[0].is_convex())
PREDICTING = sorted(set(RULES) - set(TESTED))  # what is not convex occurs in predictions only
STEPS = [0.1, 1.0, 10.0, np.array([0.3, 4.0])]
CLARABEL = {"solver": cp.CLARABEL, "tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", strat.DataWarning)
        return strat.compile(expression).bind()


def at_cvxpy(expression, theta, k):
    """CVXPY's value of an expression at stratum k; +inf where it says nan."""
    variables = {v.name(): v for v in expression.variables()}
    for key, v in variables.items():
        v.save_value(theta[key][k])
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = float(np.asarray(expression.value).item())
    for v in variables.values():
        v.save_value(None)
    return value


def moved(theta, direction, h):
    return {key: theta[key] + h * direction[key] for key in theta}


def dot(a, b):
    return sum((a[key] * b[key]).reshape(len(a[key]), -1).sum(axis=1) for key in a)


def directions(name, K, seed=1):
    _, variables, point = example(name)
    rng = np.random.default_rng(seed)
    out = {key: rng.normal(size=(K, *value.shape)) for key, value in point.items()}
    for key, value in out.items():
        if variables[key].is_symmetric() and value.ndim == 3:
            out[key] = 0.5 * (value + np.swapaxes(value, 1, 2))
    return out


def smooth_cases(word):
    oracles = {name: bound(example(name)[0]) for name in TESTED}
    return [name for name, oracle in oracles.items() if oracle.flat.has(word)]


def variants(name):
    """The example scaled, shifted, and with linear and quadratic parts."""
    expression, variables, _ = example(name)
    shift = {
        id(v): 1.5 * v + 0.25 * (np.eye(v.shape[0]) if v.is_symmetric() and v.ndim == 2 else np.ones(v.shape))
        for v in variables.values()
    }
    linear = sum(0.3 * cp.sum(v) for v in variables.values())
    square = sum(0.4 * cp.sum_squares(v) for v in variables.values())
    return {
        "plain": expression,
        "scaled": 2.5 * expression,
        "shifted": rebuilt(expression, shift),
        "linear": expression + linear,
        "quadratic": 0.5 * expression + square + linear,
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
    value = bound(expression).value(theta)
    expected = [at_cvxpy(expression, theta, k) for k in range(6)]
    np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-9)


def legal(name):
    """Whether CVXPY and the rule take random points as legal: two masks."""
    expression, theta = example(name)[0], {key: 2 * value for key, value in directions(name, 40).items()}
    by_cvxpy = []
    for k in range(40):
        for v in expression.variables():
            v.save_value(theta[v.name()][k])
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
    monkeypatch.setattr(RULES[name], "domain", Rule.domain)
    with pytest.raises(AssertionError):
        test_domain_is_cvxpys(name)


@pytest.mark.parametrize("name", smooth_cases("value_and_gradient"))
def test_gradient_is_that_of_differences(name):
    theta, v = points(name, 5), directions(name, 5)
    oracle = bound(example(name)[0])
    value, gradient = oracle.value_and_gradient(theta)
    np.testing.assert_allclose(value, oracle.value(theta), rtol=1e-14, atol=1e-14)
    h = 1e-5
    numeric = (oracle.value(moved(theta, v, h)) - oracle.value(moved(theta, v, -h))) / (2 * h)
    np.testing.assert_allclose(dot(gradient, v), numeric, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", smooth_cases("hessian_operator"))
def test_hessian_products_are_differences_of_gradients(name):
    theta, v = points(name, 5), directions(name, 5)
    oracle = bound(example(name)[0])
    product, h = oracle.hvp(theta, v), 1e-5
    above, below = oracle.gradient(moved(theta, v, h)), oracle.gradient(moved(theta, v, -h))
    for key in theta:
        np.testing.assert_allclose(product[key], (above[key] - below[key]) / (2 * h), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", TESTED)
def test_batched_is_looped(name):
    theta, v = points(name, 4), directions(name, 4)
    oracle = bound(example(name)[0])
    one = [{key: value[k : k + 1] for key, value in theta.items()} for k in range(4)]
    np.testing.assert_allclose(
        oracle.value(theta), np.concatenate([oracle.value(o) for o in one]), rtol=1e-14
    )
    if oracle.flat.has("value_and_gradient"):
        gradient = oracle.gradient(theta)
        for key in theta:
            looped = np.concatenate([oracle.gradient(o)[key] for o in one])
            np.testing.assert_allclose(gradient[key], looped, rtol=1e-13, atol=1e-14)
    if oracle.flat.has("prox"):
        t = np.array([0.1, 1.0, 10.0, 2.0])
        far, close = moved(theta, v, 3.0), 1e-6 if solved_by_clarabel(oracle) else 1e-9
        z = oracle.prox(far, t)
        for k in range(4):
            single = oracle.prox({key: value[k : k + 1] for key, value in far.items()}, float(t[k]))
            for key in theta:
                np.testing.assert_allclose(z[key][k], single[key][0], rtol=close, atol=close)


class Prox:
    """One CVXPY problem of the prox, solved for many points and steps."""

    def __init__(self, expression):
        self.expression, self.variables = expression, expression.variables()
        self.root = cp.Parameter(pos=True)
        self.points = [
            cp.Parameter(v.shape, symmetric=v.is_symmetric() and v.ndim == 2) for v in self.variables
        ]
        distance = sum(
            cp.sum_squares(self.root * v - p) for v, p in zip(self.variables, self.points, strict=True)
        )
        self.problem = cp.Problem(cp.Minimize(expression + 0.5 * distance))

    def __call__(self, point, t):
        self.root.value = t**-0.5
        for v, p in zip(self.variables, self.points, strict=True):
            p.value = t**-0.5 * point[v.name()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.problem.solve(**CLARABEL)
        return {v.name(): np.array(v.value) for v in self.variables}


def distance(a, b):
    return np.sqrt(sum(((a[key] - b[key]) ** 2).sum() for key in a))


@pytest.mark.parametrize(("name", "kind"), PROXES)
def test_prox_is_cvxpys(name, kind):
    """z is the prox where the objective at any b exceeds that at z by ‖b − z‖²/(2t); b is CVXPY's solution."""
    expression = variants(name)[kind]
    oracle, solve = bound(expression), Prox(expression)
    far = moved(points(name, 2), directions(name, 2, seed=2), 1.5)
    accuracy = 1e-7 if solved_by_clarabel(oracle) else 1e-9
    for t in STEPS:
        z, steps = oracle.prox(far, t), np.broadcast_to(t, 2)
        for k in range(2):
            point, ours = ({key: value[k] for key, value in part.items()} for part in (far, z))
            best = solve(point, float(steps[k]))
            here, there = (
                at_cvxpy(expression, {key: value[None] for key, value in at.items()}, 0)
                + distance(at, point) ** 2 / (2 * steps[k])
                for at in (ours, best)
            )
            gap = distance(ours, best)
            assert gap < 1e-3 * (1 + distance(best, {key: 0 * value for key, value in best.items()})), (
                t,
                ours,
                best,
            )
            slack = accuracy * (1 + abs(there)) + max(rounding(expression, ours), rounding(expression, best))
            assert here + gap**2 / (2 * steps[k]) <= there + slack, (t, ours, best)


def rounding(expression, point, size=1e-12):
    """How much the last digits of a point change the value: without bound where it is singular to double precision."""
    rng = np.random.default_rng(3)
    values = [
        at_cvxpy(
            expression, {k: (v + s * size * rng.normal(size=v.shape))[None] for k, v in point.items()}, 0
        )
        for s in (0, 1, 1, 1)
    ]
    spread = np.ptp(values) if np.isfinite(values).all() else np.inf
    return 0.0 if spread <= 1e3 * size else spread


def solved_by_clarabel(oracle):
    prox = oracle.flat.prox
    return "Clarabel" in prox.kind or getattr(prox, "rescue", None) is not None


@pytest.mark.parametrize("name", TESTED)
@pytest.mark.parametrize("size", [1e4, -1e4, 0.0])
def test_extreme_arguments_give_no_nan(name, size):
    _, variables, point = example(name)
    theta = {key: np.full((1, *value.shape), size) for key, value in point.items()}
    oracle = bound(example(name)[0])
    value = oracle.value(theta)
    assert not np.isnan(value).any() and not np.any(value == -np.inf)
    if oracle.flat.has("value_and_gradient") and np.isfinite(value).all():
        assert not any(np.isnan(g).any() for g in oracle.gradient(theta).values())
    if oracle.flat.has("prox"):
        z = oracle.prox(theta, 1.0)
        assert all(np.isfinite(part).all() for part in z.values())
        assert np.isfinite(oracle.value(z)).all()


u = cp.Variable(name="u")
BOUNDARIES = [
    (-cp.log(u), 0.0, np.inf),
    (-cp.log(u), -1.0, np.inf),
    (-cp.log1p(u), -1.0, np.inf),
    (-cp.log1p(u), -2.0, np.inf),
    (-cp.entr(u), 0.0, 0.0),
    (-cp.entr(u), -1e-3, np.inf),
    (-0.0 * cp.log(u), 0.0, 0.0),
    (cp.kl_div(0, u), 0.0, 0.0),
    (cp.kl_div(0, u), 2.0, 2.0),
    (cp.kl_div(1, u), 0.0, np.inf),
    (cp.kl_div(1, u), -1.0, np.inf),
    (cp.rel_entr(0, u), 0.0, 0.0),
    (cp.rel_entr(2, u), 0.0, np.inf),
    (cp.kl_div(u, 1), 0.0, 1.0),
    (cp.power(u, 1.5), 0.0, 0.0),
    (cp.power(u, 1.5), -1.0, np.inf),
    (cp.power(u, 3), -1.0, np.inf),
    (cp.power(u, 4), -2.0, 16.0),
    (cp.power(u, -1), 0.0, np.inf),
    (cp.power(u, -1), -1.0, np.inf),
    (-cp.sqrt(u), 0.0, 0.0),
    (-cp.sqrt(u), -1.0, np.inf),
    (cp.inv_pos(u), 0.0, np.inf),
    (cp.quad_over_lin(cp.hstack([u, 0]), u), 0.0, 0.0),
    (cp.quad_over_lin(np.ones(2), u), 0.0, np.inf),
    (cp.quad_over_lin(np.ones(2), u), -1.0, np.inf),
    (cp.logistic(u), 1e4, 1e4),
    (cp.logistic(u), -1e4, 0.0),
    (cp.log_sum_exp(cp.hstack([u, -u, 0])), 1e4, 1e4),
    (cp.log_sum_exp(u), 3.0, 3.0),
    (cp.log_sum_exp(cp.hstack([u] * 10)), 1e4, 1e4 + np.log(10)),
    (cp.exp(u), 1e4, np.inf),
    (cp.huber(u, 1), 1e200, 2e200),
]


@pytest.mark.parametrize(("expression", "at", "expected"), BOUNDARIES)
def test_values_at_the_boundary_of_the_domain(expression, at, expected):
    assert bound(expression).value(np.array([at]))[0] == expected


def test_log_det_outside_its_domain():
    S = cp.Variable((2, 2), symmetric=True, name="S")
    oracle = strat.compile(-cp.log_det(S)).bind()
    assert np.array_equal(
        oracle.value(np.stack([np.zeros((2, 2)), np.diag([1.0, -1.0]), -np.eye(2)])), [np.inf] * 3
    )
