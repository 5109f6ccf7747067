"""Every row of the table of idioms: values, gradients and proxes against CVXPY, refusals, warnings."""

import warnings

import cvxpy as cp
import numpy as np
import pytest
from against_cvxpy import assert_derivatives, assert_same_prox, prox_by_cvxpy, values_at
from idioms import IDIOMS, K, N, points, records

import strat

#: Stratum 2 has no records, stratum 3 has one.
INDEX = np.array([0, 0, 0, 1, 1, 1, 1, 3, 4, 4, 4, 5, 5, 5])
STEPS = np.array([0.1, 1.0, 10.0, 1.0, 0.3, 10.0])
RECORDS = records()
COMPILED = [row for row in IDIOMS if row.error is None]
REFUSED = [row for row in IDIOMS if row.error is not None]


def rows(table):
    return pytest.mark.parametrize("row", table, ids=[row.id for row in table])


def bound(row, index=INDEX):
    """Oracle, variables and data arrays of a row."""
    with warnings.catch_warnings(action="ignore", category=strat.DataWarning):
        program = strat.compile(row.expression, data=row.data, constraints=row.constraints)
    arrays = [RECORDS[p.name()][: len(index)] for p in row.data]
    oracle = program.bind(*arrays, strata=index, strata_order=range(K)) if row.data else program.bind()
    return oracle, program.variables, arrays


def point_of(row, variables):
    return points(variables) | row.at


def kink_points(row, variables, lam=0.7):
    """Points of the prox: random ones, 0, ties, and the ends of the dead zone of λ|·|."""
    v = {name: 2 * value for name, value in points(variables, seed=3).items()}
    for variable in variables:
        signs = np.resize([1.0, -1.0, 1.0, 1.0], variable.shape)
        v[variable.name()][2] = points(variables)[variable.name()][2]
        v[variable.name()][4] = 0.0
        v[variable.name()][1] = 0.5
        ends = np.eye(*variable.shape or (1,))[0, 0] if variable.is_symmetric() else signs
        v[variable.name()][5] = lam * STEPS[5] * ends
        if variable.is_symmetric() and variable.ndim == 2:
            v[variable.name()] = 0.5 * (v[variable.name()] + np.swapaxes(v[variable.name()], 1, 2))
    return v


def test_the_table_is_complete():
    assert len(INDEX) == N
    wanted = [f"L{i:02}" for i in range(1, 48)] + [f"R{i:02}" for i in range(1, 43)]
    assert sorted({row.id.split()[0] for row in IDIOMS}) == sorted(wanted)


@rows(COMPILED)
def test_values_are_those_of_cvxpy(row):
    oracle, variables, arrays = bound(row)
    point = point_of(row, variables)
    wanted = values_at(row.expression, variables, point, row.data, arrays, INDEX)
    np.testing.assert_allclose(oracle.value(point), wanted, rtol=1e-9, atol=1e-9)
    assert np.isfinite(wanted).all()


@rows(COMPILED)
def test_gradients_are_differences(row):
    oracle, variables, _ = bound(row)
    if not row.smooth:
        with pytest.raises(strat.NoOracleError, match="not differentiable"):
            oracle.gradient(point_of(row, variables))
        return
    assert_derivatives(oracle, variables, point_of(row, variables), np.random.default_rng(5))


@rows(COMPILED)
def test_proxes_are_the_minimisers(row):
    oracle, variables, arrays = bound(row)
    assert oracle.flat.has("prox")
    v = kink_points(row, variables)
    z = oracle.prox(v, STEPS)
    reference = prox_by_cvxpy(row.expression, variables, v, STEPS, row.constraints, row.data, arrays, INDEX)
    assert reference is not None
    assert_same_prox(oracle, variables, z, v, STEPS, reference, row.constraints, 1e-6)
    for t in (0.1, 1.0, 10.0):  # one step for all strata is the same as each its own
        for name, part in oracle.prox(v, t).items():
            same = t == STEPS
            np.testing.assert_allclose(part[same], z[name][same], rtol=1e-7, atol=1e-7)
    if row.data:  # no records: the prox is v
        for name, part in z.items():
            np.testing.assert_allclose(part[2], v[name][2], rtol=1e-12, atol=1e-12)


@rows(COMPILED)
def test_proxes_are_computed_as_well_as_they_can_be(row):
    oracle, _, _ = bound(row)
    kind = getattr(oracle.flat.prox, "kind", "none")
    assert ("cone program" in kind) == (row.prox == "solver")
    if row.prox == "closed" and not row.data:
        assert kind == "closed form"


@rows(COMPILED)
def test_warnings_come_at_declaration(row):
    with warnings.catch_warnings(record=True, action="always") as caught:
        program = strat.compile(row.expression, data=row.data, constraints=row.constraints)
        arrays = [RECORDS[p.name()] for p in row.data]
        declared = len(caught)
        program.bind(*arrays, strata=INDEX) if row.data else program.bind()
    assert len(caught) == declared == (1 if row.warns else 0)
    if row.warns:
        assert caught[0].category is strat.DataWarning
        assert row.warns in str(caught[0].message)


@rows(REFUSED)
def test_refusals_name_the_expression_and_the_way_out(row):
    declare = strat.BaseModel if row.data else strat.compile
    with pytest.raises(row.error, match=f"(?s){row.match}"):
        declare(row.expression, data=row.data, constraints=row.constraints)


@pytest.mark.parametrize("margin", [1e4, -1e4, 800.0, 0.0])
def test_margins_and_counts_may_be_extreme(margin):
    w, x, n = cp.Variable(name="w"), cp.Parameter(name="x"), cp.Parameter(name="n")
    softplus = margin if margin > 50 else np.log1p(np.exp(margin))
    logistic = strat.compile(cp.logistic(x * w), data=(x,)).bind([margin])
    value, gradient = logistic.value_and_gradient(np.ones(1))
    np.testing.assert_allclose(value, softplus, rtol=1e-14)
    slope = 0.0 if margin < -700 else 1 / (1 + np.exp(-margin))
    np.testing.assert_allclose(gradient, margin * slope, rtol=1e-12)
    softmax = strat.compile(cp.log_sum_exp(cp.hstack([x * w, 0])), data=(x,)).bind([margin])
    for ours, other in zip(softmax.value_and_gradient(np.ones(1)), (value, gradient), strict=True):
        np.testing.assert_allclose(ours, other, rtol=1e-12)
    rate = strat.compile(cp.kl_div(n, w), data=(n,)).bind([0.0, 1e6])
    np.testing.assert_allclose(rate.gradient(np.array([2.0])), 1 + 1 - 1e6 / 2)
    z = strat.compile(cp.exp(w) - n * w, data=(n,)).bind([0.0]).prox(np.array([margin]), 1.0)
    np.testing.assert_allclose(z, margin - np.exp(z), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("values", "end"), [([0.0] * 3, 1e-5), ([1.0] * 3, 1 - 1e-5), ([], None)])
def test_bernoulli_rates_stand_on_the_ends_of_their_box(values, end):
    p, y = cp.Variable(name="p", bounds=[1e-5, 1 - 1e-5]), cp.Parameter(name="y")
    # A second stratum, of one record, so that there is data where the first has none.
    program = strat.compile(-y * cp.log(p) - (1 - y) * cp.log(1 - p), data=(y,))
    oracle = program.bind([*values, 1.0], strata=[0] * len(values) + [1], strata_order=[0, 1])
    for v in (-3.0, 0.3, 0.5, 4.0):
        z = oracle.prox(np.array([v, v]), np.array([1e8, 1e8]))
        assert z[0] == (end if values else np.clip(v, 1e-5, 1 - 1e-5))
        assert z[1] == 1 - 1e-5


def assert_minimiser(oracle, z, v, t, low=-np.inf):
    """The minimiser of the prox lies next to z."""
    size = 1e-9 * (1 + abs(z))
    slope = [oracle.gradient(np.array([max(at, low)]))[0] + (at - v) / t for at in (z - size, z + size)]
    assert slope[0] <= 0 <= slope[1]


@pytest.mark.parametrize("margin", [1e4, -1e4, 30.0])
@pytest.mark.parametrize("t", [1e-3, 1.0, 1e3])
def test_proxes_are_exact_at_extreme_margins(margin, t):
    w, x = cp.Variable(name="w"), cp.Parameter(name="x")
    for loss in (cp.logistic(x * w), cp.log_sum_exp(cp.hstack([x * w, 0]))):
        oracle = strat.compile(loss, data=(x,)).bind([margin])
        for v in (0.0, 1.0, -1.0):
            (z,) = oracle.prox(np.array([v]), t)
            assert_minimiser(oracle, z, v, t)


@pytest.mark.parametrize("count", [0.0, 1.0, 1e6, 1e12])
def test_proxes_are_exact_at_extreme_counts(count):
    w, n = cp.Variable(name="w"), cp.Parameter(name="n")
    for loss, low in ((cp.kl_div(n, w), 0.0), (cp.exp(w) - n * w, -np.inf), (w - n * cp.log(w), 0.0)):
        oracle = strat.compile(loss, data=(n,)).bind([count])
        for v in (-2.0, 0.5, 100.0):
            for t in (0.1, 1.0, 10.0):
                (z,) = oracle.prox(np.array([v]), t)
                assert z >= low
                if z <= low + 1e-10:
                    assert count == 0
                    assert 1 - v / t >= 0  # the slope at the end of the domain points out of it
                    continue
                assert_minimiser(oracle, z, v, t, low + 1e-300)
