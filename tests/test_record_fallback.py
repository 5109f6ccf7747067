"""Proxes of losses for which there is no closed form: Newton from far outside, domains, cone programs of records."""

import pickle

import cvxpy as cp
import numpy as np
import pytest
from against_cvxpy import assert_same_prox, prox_by_cvxpy

import strat
from strat.oracles.prox_newton import NewtonProx

INDEX = np.array([0, 0, 0, 1, 1, 1, 3])  # stratum 2 has no records, stratum 3 has one
STEPS = np.array([0.1, 1.0, 10.0, 2.0])
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(7, 3)), RNG.normal(size=7)
w, b, x, y = (
    cp.Variable(3, name="w"),
    cp.Variable(name="b"),
    cp.Parameter(3, name="x"),
    cp.Parameter(name="y"),
)
T, m = cp.Variable((3, 3), symmetric=True, name="T"), cp.Variable(3, name="m")
R = cp.Variable((3, 3), PSD=True, name="R")
r = y - x @ w - b


def bound(loss, constraints=(), weight=None):
    program = strat.compile(
        loss, data=[p for p in (x, y) if p.id in {q.id for q in loss.parameters()}], constraints=constraints
    )
    arrays = [{"x": X, "y": Y}[p.name()] for p in program.data]
    return program, program.bind(*arrays, strata=INDEX, strata_order=range(4), sample_weight=weight), arrays


def points(variables, size=1.5, seed=0):
    out, rng = {}, np.random.default_rng(seed)
    for v in variables:
        value = size * rng.normal(size=(4, *v.shape))
        out[v.name()] = (
            0.5 * (value + np.swapaxes(value, 1, 2)) if v.is_symmetric() and v.ndim == 2 else value
        )
    return out


CASES = {
    "largest of several": (cp.max(cp.hstack([r, -0.5 * r, b + 0 * y])), ()),
    "norm of a record": (cp.norm2(cp.hstack([r, w])), ()),
    "logistic of a kink": (cp.logistic(cp.abs(r) - 0.2), ()),
    "kink and log det": (cp.abs(y - x @ m - T[0, 1]) - cp.log_det(T), ()),
    "cone": (cp.logistic(r) + cp.sum_squares(w), (cp.norm(w) <= 1, b >= -0.5)),
    "simplex": (cp.max(cp.hstack([r, w[0] - b, 0.1])), (w >= 0, cp.sum(w) == 1)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("weight", [None, np.array([1, 0.5, 0, 2, 1, 3, 0.1])])
def test_a_loss_without_another_prox_takes_cone_programs(name, weight):
    loss, constraints = CASES[name]
    program, oracle, arrays = bound(loss, constraints, weight)
    oracle = pickle.loads(pickle.dumps(oracle))
    assert "Clarabel, one solve a stratum (" in str(program)
    v = points(program.variables)
    z = oracle.prox(v, STEPS)
    if weight is None:
        reference = prox_by_cvxpy(loss, program.variables, v, STEPS, constraints, program.data, arrays, INDEX)
        assert_same_prox(oracle, program.variables, z, v, STEPS, reference, constraints, 2e-6, gap=1e-9)
    else:  # a weight of 0 removes a record, one of 2 counts it twice
        twice = np.repeat(np.arange(7), [1, 1, 0, 2, 1, 3, 1])
        weight = np.where(np.arange(7) == 1, 0.5, np.where(np.arange(7) == 6, 0.1, 1.0))[twice]
        again = program.bind(
            *(a[twice] for a in arrays), strata=INDEX[twice], strata_order=range(4), sample_weight=weight
        ).prox(v, STEPS)
        for part in z:
            np.testing.assert_allclose(z[part], again[part], atol=1e-5)
    if not constraints:
        for part in z:
            np.testing.assert_allclose(z[part][2], v[part][2], atol=1e-12)


GAUSSIAN = 0.5 * cp.sum_squares(T @ x - m) - cp.log_det(T)


@pytest.mark.parametrize("size", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("S", [T, R], ids=["symmetric", "PSD"])
def test_covariance_and_mean_far_from_definite(size, S):
    """A point with eigenvalues of -size, from which Newton's steps alone come to rest at the edge of the cone."""
    loss = 0.5 * cp.sum_squares(S @ x - m) - cp.log_det(S)
    program, oracle, _ = bound(loss)
    assert isinstance(oracle.flat.prox, NewtonProx)
    for seed in range(2 if size < 1000 else 1):
        v = points(program.variables, size, seed)
        for t in (0.1, 1.0, 10.0):
            z = oracle.prox(v, t)
            gradient = oracle.gradient(z)
            for part, g in gradient.items():
                balance = g + (z[part] - v[part]) / t
                assert t * np.abs(balance[[0, 1, 3]]).max() <= 1e-7 * size  # bounds the error in z
            S_ = z[S.name()]
            assert np.array_equal(S_, np.swapaxes(S_, 1, 2))
            assert np.linalg.eigvalsh(S_[[0, 1, 3]]).min() > 0
            assert np.linalg.eigvalsh(S_[2]).min() >= -1e-9 * size  # no records: the domain alone counts


DOMAINS = {
    "a power of one variable": (cp.logistic(y * (x @ w - b)) + cp.power(w[0], 1.5), [w[0] >= 0]),
    "powers": (cp.square(r) + cp.sum(cp.power(w, 1.5)) + cp.power(b, 3), [w >= 0, b >= 0]),
    "entropy": (cp.square(r) - cp.sum(cp.entr(w)), [w >= 0]),
    "ratio": (cp.logistic(r) + cp.quad_over_lin(w, b), [b >= 0]),
    "ratio of records": (cp.quad_over_lin(y - x @ w, b) + b, None),
    "geometric mean": (cp.logistic(r) - cp.geo_mean(w), None),
}


@pytest.mark.filterwarnings("ignore:a power of")
@pytest.mark.parametrize("name", DOMAINS)
def test_points_outside_a_domain_are_led_into_it(name):
    loss, domain = DOMAINS[name]
    program, oracle, arrays = bound(loss)
    v = {
        u.name(): -1.0 - np.abs(part)
        for u, part in zip(program.variables, points(program.variables).values(), strict=True)
    }
    z = oracle.prox(v, STEPS)
    assert np.isfinite(oracle.value(z)).all()
    reference = prox_by_cvxpy(loss, program.variables, v, STEPS, domain or (), program.data, arrays, INDEX)
    if domain is None:  # of records: the stratum without any is free
        z, v, reference = ({k: np.delete(part, 2, 0) for k, part in of.items()} for of in (z, v, reference))
        steps, keep = np.delete(STEPS, 2), INDEX != 2
        oracle = program.bind(*(a[keep] for a in arrays), strata=INDEX[keep], strata_order=[0, 1, 3])
    else:
        steps = STEPS
    assert_same_prox(oracle, program.variables, z, v, steps, reference, domain or (), 1e-6, gap=1e-9)


def test_the_number_of_records_for_cone_programs_is_limited(monkeypatch):
    monkeypatch.setattr("strat.compiler.record_fallback.LIMIT", 6)
    _, oracle, _ = bound(CASES["norm of a record"][0])
    with pytest.raises(strat.NoOracleError, match="not written for more than 6 records, and there are 7"):
        oracle.prox(points((w, b)), 1.0)


def test_exponentials_beyond_all_curvature_leave_no_error_of_numpy():
    """exp(300) beside 1/t: the dual method's systems are singular to rounding."""
    u = cp.Variable(2, name="u")
    d = cp.Variable(nonneg=True, name="d")
    loss = cp.square(y * b) + 1.6 * cp.exp(0.3 * cp.sum(u + d)) + cp.square(d - 3.38)
    _, oracle, _ = bound(loss)
    rng = np.random.default_rng(1)
    v = {"u": 1000 * rng.normal(size=(4, 2)), "b": 100 * rng.normal(size=4), "d": 100 * rng.normal(size=4)}
    z = oracle.prox(v, STEPS)
    assert np.isfinite(oracle.value(z)).all() and z["d"].min() >= 0


def test_bounds_hold_exactly_where_a_cone_program_solves():
    q = cp.Variable(3, nonneg=True, name="q")
    loss = cp.square(cp.neg(cp.geo_mean(q))) + y**2 * cp.abs(b) + cp.norm2(cp.hstack([r, q[0]]))
    _, oracle, _ = bound(loss)
    v = {"q": -(points((q,))["q"] ** 2), "b": np.ones(4), "w": np.ones((4, 3))}
    z = oracle.prox(v, STEPS)
    assert z["q"].min() >= 0 and np.isfinite(oracle.value(z)).all()


def test_a_check_compares_the_prox_by_cone_programs():
    report = strat.compile(CASES["norm of a record"][0], data=(x, y)).check()
    assert report.ok and "prox" in [row.oracle for row in report.rows]


def test_the_printed_program_says_how_the_prox_of_a_loss_is_computed():
    base = strat.BaseModel(cp.abs(r), 0.1 * cp.norm1(w), data=(x, y))
    assert "loss's prox  dual method, to 1e-10\nregularizer's prox  closed form" in str(base)
    assert "prox  one linear system a stratum" in str(strat.compile(cp.square(r), data=(x, y)))
    assert "prox  Newton" in str(strat.compile(cp.logistic(r), data=(x, y)))
    kinked = str(strat.compile(cp.logistic(cp.abs(r) - 0.2), data=(x, y)))
    assert "value prox" in kinked and "gradient" not in kinked


def test_a_cone_program_that_only_ends_with_a_coarser_feasibility():
    """Clarabel reports a numerical error on this one when asked for a feasibility of 1e-10."""
    u = cp.Variable(3, name="u")
    rows = np.array([
        [2.20350988, -0.05202897, -0.68368619], [2.36530391, -1.22868372, -0.33962001],
        [-0.61318908, 0.15219296, 1.47388795], [-1.2969154, 0.34567253, -0.85458423],
    ])  # fmt: skip
    offsets = np.array([2.23524321, 2.34364464, -0.13496184, -1.7249067])
    total = sum(cp.norm2(cp.hstack([o - a @ u, 2 * u])) for a, o in zip(rows, offsets, strict=True))
    program = strat.compile(cp.maximum(total, 0) * 0.97560976)
    from strat.compiler.fallback import FallbackProx

    v = -np.array([[0.40525061, 0.18246549, 0.03635447]])
    z = FallbackProx(program, program.values())(v, 1.0)
    problem = cp.Problem(cp.Minimize(0.97560976 * total + 0.5 * cp.sum_squares(u - v[0])))
    problem.solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(z[0], u.value, atol=1e-5)


@pytest.mark.parametrize("margin", [1e3, 1e6, -1e6])
def test_softmax_at_extreme_margins(margin):
    """Kinks almost, between which a Newton step sees nothing: a path of smoother functions leads there."""
    label, u, B = cp.Parameter(4, name="label"), cp.Parameter(1, name="u"), cp.Variable((1, 4), name="B")
    oracle = strat.compile(strat.losses.softmax(label, u @ B), data=(u, label)).bind(
        np.full((4, 1), margin), np.eye(4), strata=range(4)
    )
    for size in (1.0, 1e4):
        v = size * np.tile([1.0, -2.0, 0.5, 0.0], (4, 1))[:, None, :]
        for t in (0.1, 10.0):
            z = oracle.prox(v, t)
            gradient = (oracle.gradient(z) + (z - v) / t)[:, 0]
            products = [oracle.hvp(z, np.broadcast_to(e, z.shape))[:, 0] for e in np.eye(4)]
            step = np.linalg.solve(np.stack(products, axis=2) + np.eye(4) / t, gradient[..., None])
            assert np.abs(step).max() <= 1e-8 * np.abs(z).max()


@pytest.mark.parametrize("scale", [1.0, 10.0, 1e3])
def test_counts_at_extreme_margins(scale):
    """exp(500) and more at the point whose prox is asked for."""
    u, n, a = cp.Parameter(1, name="u"), cp.Parameter(name="n"), cp.Variable(1, name="a")
    counts = np.array([0.0, 1.0, 1e3, 1e6, 1e12])
    oracle = strat.compile(strat.losses.poisson(n, u @ a), data=(u, n)).bind(
        np.full((5, 1), scale), counts, strata=range(5)
    )
    for v in (-50.0, 0.0, 50.0, 1000.0):
        for t in (0.1, 1.0, 10.0):
            z = oracle.prox(np.full((5, 1), v), t)[:, 0]
            mean = np.exp(scale * z)
            step = (t * scale * (mean - counts) + z - v) / (1 + t * scale**2 * mean)
            assert np.abs(step).max() <= 1e-9 * (1 + np.abs(z).max())


@pytest.mark.parametrize(
    "more", [cp.norm1(m), 1.8 * cp.sum(cp.power(cp.abs(m), 1.5))], ids=["kinks", "powers"]
)
def test_squares_beyond_a_cap_that_weigh_nothing_bound_nothing(more):
    """A stratum without records, where the weight of the squares is 0 and everything else is free of data."""
    n = cp.Parameter(nonneg=True, name="n")
    loss = n * cp.sum(cp.square(cp.pos(1.5 * b - 0.3 * m))) + more
    oracle = strat.compile(loss, data=(n,)).bind(np.ones(7), strata=INDEX, strata_order=range(4))
    v = points((m, b))
    z = oracle.prox(v, STEPS)
    for part in v:
        np.testing.assert_allclose(z[part][2], v[part][2], atol=1e-9)
    reference = prox_by_cvxpy(loss, (m, b), v, STEPS, (), (n,), [np.ones(7)], INDEX)
    assert_same_prox(oracle, (m, b), z, v, STEPS, reference, (), 1e-6)


def test_a_sum_on_the_edge_of_a_power_s_domain_stays_inside():
    q = cp.Variable(3, nonneg=True, name="q")
    total = cp.power(cp.trace(R) + q[1], 1.5)
    program = strat.compile(total + y * b, data=(y,))
    oracle = program.bind(Y, strata=INDEX, strata_order=range(4))
    v = {"R": -np.tile(np.eye(3), (4, 1, 1)), "q": -np.ones((4, 3)), "b": np.zeros(4)}
    assert np.isfinite(oracle.value(oracle.prox(v, STEPS))).all()
