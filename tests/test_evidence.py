"""Tuning by evidence: the marginal likelihood is exact, its gradient too, and held-out records have the last word."""

import cvxpy as cp
import networkx as nx
import numpy as np
import pytest
from problems import LOSSES
from scipy.stats import multivariate_normal

import strat
from strat.errors import DataError, GraphError, NoOracleError, OptionError
from strat.graphs.prior_graph import read_graph
from strat.records.sample import Sample
from strat.selection.tuning import by_evidence
from strat.selection.tuning.by_evidence import PRODUCT, TABLE
from strat.selection.tuning.evidence import Evidence

N = 3


def declaration(loss="squares", ridge=0.3, free=True, **options):
    """A linear model with a ridge, and an intercept that is free or not."""
    theta, b = cp.Variable(N, name="theta"), cp.Variable(name="b")
    x, y = cp.Parameter(N, name="x"), cp.Parameter(name="y")
    lam, u = cp.Parameter(nonneg=True, name="lam", value=ridge), x @ theta + b
    penalty = lam * cp.sum_squares(theta) + (0 if free else 0.2 * cp.square(b))
    return strat.BaseModel(LOSSES[loss][1](y, u), penalty, data=(x, y), predict=u, **options)


def grid(rows=3, columns=4):
    return strat.graphs.grid(rows, columns, weight=(1.0, 2.0), name=("row", "column"))


def records(nodes, count=6, seed=0, loss="squares"):
    """Records whose intercept differs from row to row, and whose slopes are all the same."""
    rng = np.random.default_rng(seed)
    z = [node for node in nodes for _ in range(count)]
    X = rng.normal(size=(len(z), N))
    u = X @ [0.6, -0.4, 0.2] + np.array([2.0 * node[0] for node in z])
    if loss == "squares":
        return X, u + 0.7 * rng.normal(size=len(z)), z
    if loss == "logistic":
        return X, np.where(u - 2 + rng.logistic(size=len(z)) > 0, 1.0, -1.0), z
    return X, rng.poisson(np.exp(0.4 * u - 1)).astype(float), z


def evidence(model, data):
    return Evidence(model, read_graph(model.graph), Sample([model], data, "train").part())


def with_other_edges():
    """A grid with an edge of no factor, one of weight 0, and a row that nothing joins to the others."""
    graph = grid()
    graph.remove_edges_from([((1, c), (2, c)) for c in range(4)])
    graph.add_edge((0, 0), (1, 2), weight=0.7)
    graph.edges[(0, 0), (0, 1)]["weight"] = 0.0
    return graph


BY_FACTOR = {"theta": {"row": [1.0, 0.0, 3.0], None: 2.0}, "b": {"column": 0.0}}
SCALES = {"row": 0.3, "column": 2.0}
CASES = {
    "squares": ("squares", {}, grid(), SCALES),
    "squares, couple": ("squares", {"couple": {"theta": np.array([1.0, 0.0, 3.0])}}, grid(), 0.5),
    "logistic, by factor": ("logistic", {"couple": BY_FACTOR, "free": False}, with_other_edges(), SCALES),
    "logistic": ("logistic", {}, grid(), 1.0),
    "logistic, proper": ("logistic", {"free": False}, with_other_edges(), SCALES),
    "logistic, components": ("logistic", {}, with_other_edges(), SCALES),
    "poisson, no ridge": ("poisson", {"ridge": 0.0}, grid(), 1.0),
    "no factors": ("logistic", {}, nx.cycle_graph([(k // 4, k % 4) for k in range(12)]), 0.8),
}


@pytest.mark.parametrize("case", CASES)
def test_the_gradient_equals_differences(case):
    loss, options, graph, scale = CASES[case]
    found = evidence(strat.lrsm(declaration(loss, **options), graph, scale=scale), records(grid(), loss=loss))
    axes = {edge.get("factor") for _, _, edge in graph.edges(data=True)}  # and edges without one
    assert found.shape == (len(axes), N if case == "squares, couple" else N + 1)
    rng, h = np.random.default_rng(1), 1e-3
    x = rng.normal(size=found.shape) * 0.5
    value, gradient = found(x)
    assert np.isfinite(value) and np.linalg.norm(gradient) > 0.1
    units = np.eye(x.size).reshape(-1, *found.shape)
    for d in [*units[rng.permutation(len(units))[:4]], rng.normal(size=found.shape)]:
        a, b, c, e = (found(x + t * h * d)[0] for t in (-2, -1, 1, 2))
        difference = (a - 8 * b + 8 * c - e) / (12 * h)
        assert np.vdot(gradient, d) == pytest.approx(difference, abs=1e-6 * np.abs(gradient).max())


def test_squares_have_the_marginal_likelihood_of_a_gaussian_process():
    graph, data = grid(), records(grid(), count=3)
    found, (X, y, z) = evidence(strat.lrsm(declaration(free=False), graph, scale=0.7), data), data
    prior, K, n = read_graph(graph), len(graph), N + 1
    design = np.zeros((len(y), K, n))
    design[np.arange(len(y)), [list(graph).index(node) for node in z]] = np.column_stack([X, np.ones(len(y))])

    def marginal(x):
        A = np.kron(np.eye(K), np.diag([0.6] * N + [0.4]))
        for c, weights in enumerate((found.terms.T @ found.at(x)).T):
            W = np.zeros((K, K))
            W[prior.i, prior.j] = W[prior.j, prior.i] = weights
            A += np.kron(np.diag(W.sum(axis=1)) - W, np.diag(np.eye(n)[c]))
        Z = design.reshape(len(y), -1)
        S = np.eye(len(y)) / 2 + Z @ np.linalg.solve(A, Z.T)
        phi = y @ np.linalg.solve(S, y) / len(y)  # the noise's size at its optimum
        return multivariate_normal(cov=phi * S).logpdf(y)

    assert found.residuals == len(y)
    x = np.random.default_rng(2).normal(size=found.shape) * 0.7
    start = np.zeros(found.shape)
    assert found(x)[0] - found(start)[0] == pytest.approx(marginal(x) - marginal(start), abs=1e-7)


def test_logistic_evidence_is_near_the_integral():
    b, y = cp.Variable(name="b"), cp.Parameter(name="y")
    base = strat.BaseModel(cp.logistic(-y * b), 0.2 * cp.square(b), data=(y,))
    data = (np.array([1.0] * 20 + [-1.0] * 10 + [1.0] * 8 + [-1.0] * 16), [0] * 30 + [1] * 24)
    found = evidence(strat.lrsm(base, strat.graphs.path(2)), data)
    t = np.linspace(-6, 6, 401)
    u, v = np.meshgrid(t, t, indexing="ij")

    def integral(x):
        ((weight,),) = found.terms.T @ found.at(x)
        A = weight * np.array([[1.0, -1.0], [-1.0, 1.0]]) + 0.4 * np.eye(2)
        prior = -0.5 * (A[0, 0] * u**2 + A[1, 1] * v**2 + 2 * A[0, 1] * u * v) + 0.5 * np.linalg.slogdet(A)[1]
        likelihood = -20 * np.logaddexp(0, -u) - 10 * np.logaddexp(0, u)
        likelihood -= 8 * np.logaddexp(0, -v) + 16 * np.logaddexp(0, v)
        return np.log(np.exp(prior + likelihood + 40).sum())

    far, start = np.array([[3.0]]), np.zeros((1, 1))
    assert found(far)[0] - found(start)[0] == pytest.approx(integral(far) - integral(start), abs=0.01)
    assert found(far)[0] < found(start)[0] - 1  # the strata differ


TRAIN, TEST = records(grid(4, 5), count=5), records(grid(4, 5), count=60, seed=1)


def test_what_varies_is_coupled_less_along_its_axis_and_it_helps():
    base, graph = declaration(), grid(4, 5)
    start = strat.lrsm(base, graph, scale=0.5).fit(*TRAIN[:2], strata=TRAIN[2])
    tuned = strat.tune(start, TRAIN, method="evidence")
    assert tuned.improved and tuned.gain > tuned.gain_se > 0 and tuned.choice == TABLE
    couple, scale = tuned.parameters["couple"], tuned.parameters["scale"]
    assert set(couple) == {"theta", "b"} and set(couple["b"]) == {"row", "column"}
    assert couple["theta"]["row"].min() > 4 * couple["b"]["row"]  # the intercept differs between rows alone
    assert couple["b"]["column"] > 4 * couple["b"]["row"]
    for axis in ("row", "column"):
        assert np.exp(np.log([*couple["theta"][axis], couple["b"][axis]]).mean()) == pytest.approx(1)
    start_, product, table = tuned.log_evidence
    assert table > product + 1 > start_ + 6
    before, after = (model.score(*TEST[:2], strata=TEST[2]) for model in (start, tuned.model))
    assert -after < 0.97 * -before
    assert base.couple == {} and start.base is base and start.scale == 0.5
    text = str(tuned)
    assert "tuned       scale, couple: tuning improved" in text and "evidence    log " in text
    found = evidence(start, TRAIN)
    assert tuned.log_evidence[0] == pytest.approx(found(np.zeros(found.shape))[0])
    again = evidence(tuned.model, TRAIN)
    assert again(np.zeros(again.shape))[0] == pytest.approx(table)
    assert tuned.W0.edges[(0, 0), (1, 0)]["weight"] == pytest.approx(scale["row"])
    assert [fold["records"] for fold in tuned.folds] == [20] * 5
    assert tuned.before > tuned.after and tuned.history[::2] == pytest.approx([tuned.before, tuned.after])
    assert [row["tried"] for row in tuned.table] == ["start", PRODUCT, TABLE]
    assert tuned.table[2]["gain"] == tuned.gain and tuned.table[2]["loss"] == pytest.approx(tuned.after)


def test_a_start_that_held_out_records_prefer_is_kept(monkeypatch):
    start = strat.lrsm(declaration(), grid(4, 5), scale=0.5)

    def astray(evidence, tried, scaled, clock):
        x = np.full(evidence.shape, 6.0)  # so heavy that the intercepts can no longer differ
        return [(x, [0.0, 0.0])] * len(tried)

    monkeypatch.setattr(by_evidence, "maximised", astray)
    tuned = strat.tune(start, TRAIN, method="evidence")
    assert not tuned.improved and tuned.gain < 0 and tuned.choice == "no tuning"
    assert tuned.model.base is start.base and tuned.parameters["scale"] == {"row": 0.5, "column": 0.5}
    fitted = start.fit(*TRAIN[:2], strata=TRAIN[2])
    np.testing.assert_allclose(tuned.model.theta_["theta"], fitted.theta_["theta"], atol=1e-7)
    assert tuned.after == tuned.before and "the start was kept" in str(tuned)


def test_validation_records_judge_in_place_of_folds_and_a_time_limit_returns_the_start():
    start, other = strat.lrsm(declaration(), grid(4, 5), scale=0.5), records(grid(4, 5), count=4, seed=3)
    tuned = strat.tune(start, TRAIN, other, method="evidence")
    assert tuned.improved and len(tuned.folds) == 1 and tuned.folds[0]["records"] == len(other[1])
    assert len(tuned.model._training.arrays[1]) == len(TRAIN[1]) + len(other[1])  # refitted to all
    tuned = strat.tune(start, TRAIN, other, method="evidence", time_limit=1e-9)
    assert tuned.status == "time_limit" and not tuned.improved and tuned.model.theta_["b"].shape == (20,)


def test_without_the_guard_the_evidence_of_all_records_is_raised():
    tuned = strat.tune(strat.lrsm(declaration(), grid(4, 5), scale=0.5), TRAIN, method="evidence", folds=3)
    free = tuned.unguarded
    assert free.improved and free.choice == by_evidence.TABLE and free.folds == [] == free.table
    assert free.log_evidence[0] < free.log_evidence[1] < free.log_evidence[2]
    if tuned.choice == free.choice:
        assert tuned.parameters["scale"] == free.parameters["scale"]


def test_rolling_origins_are_judged_one_by_one(monkeypatch):
    by_fold, table_row = [], by_evidence.table_row

    def spy(*arguments, **options):
        by_fold.append(options.get("by_fold"))
        return table_row(*arguments, **options)

    monkeypatch.setattr(by_evidence, "table_row", spy)
    rng = np.random.default_rng(0)
    z = [(c, t) for t in range(8) for c in "ab" for _ in range(5)]
    X, y = rng.normal(size=(80, N)), rng.normal(size=80) + np.array([t for _, t in z])
    cities, years = strat.graphs.path(["a", "b"], name="city"), strat.graphs.path(range(8), name="year")
    model = strat.lrsm(declaration(), strat.graphs.product(cities, years))
    tuned = strat.tune(model, (X, y, z), folds=strat.RollingOrigin(4, time=1), method="evidence")
    # Standard errors over origins, not records.
    assert len(tuned.folds) == 4 and by_fold == [None, True, True]
    assert not tuned.improved and tuned.gain_se == tuned.table[2]["gain_se"]
    for folds in (strat.RollingOrigin(2, time=1), strat.RollingOrigin(1, time=1)):
        with pytest.raises(DataError, match="ignores time.*three origins at least"):
            strat.tune(model, (X, y, z), folds=folds, method="evidence")


def test_what_has_no_evidence_is_refused_by_name():
    graph, data = grid(), records(grid())
    theta, x, y = cp.Variable(N, name="theta"), cp.Parameter(N, name="x"), cp.Parameter(name="y")
    square, u = cp.square(y - x @ theta), x @ theta
    bounded = cp.Variable(N, name="theta", nonneg=True)

    def refused(error, match, *arguments, scale=1.0, couple=None, graph=graph, **options):
        base = strat.BaseModel(*arguments, data=(x, y), couple=couple, **options)
        with pytest.raises(error, match=match):
            strat.tune(strat.lrsm(base, graph, scale=scale), data, method="evidence")

    refused(NoOracleError, "second derivatives", cp.abs(y - u), cp.sum_squares(theta))
    refused(NoOracleError, "smoothing= rounds off jump", cp.abs(y - u), cp.sum_squares(theta), smoothing=0.1)
    refused(NoOracleError, r"third derivatives, but.*huber\(.*jump", cp.huber(y - u), cp.sum_squares(theta))
    refused(NoOracleError, "second derivatives of .*maximum.* jump", cp.square(cp.pos(1 - y * u)), 0)
    refused(NoOracleError, "sums of squares of single coefficients.*of this one", square, cp.norm1(theta))
    refused(NoOracleError, "curvature is not the same everywhere", square, cp.sum(cp.power(theta, 4)))
    refused(NoOracleError, "ties several coefficients", square, cp.square(cp.sum(theta)))
    refused(NoOracleError, "constraints and attributes", square, 0, [theta <= 1])
    refused(NoOracleError, "constraints and attributes", cp.square(y - x @ bounded))
    refused(GraphError, "all those of the factor 'row' are 0", square, scale={"row": 0.0})
    refused(OptionError, "uncouples every variable", square, couple={theta: 0.0})
    refused(OptionError, "edges without a factor", square, scale=2.0, graph=with_other_edges())
    model = strat.lrsm(strat.BaseModel(square, data=(x, y)), graph)
    options = {"wrt": ["W0"], "edges": "all", "tie": "factor", "penalty": 1.0, "candidates": ["knn"]}
    for name, value in options.items():
        with pytest.raises(OptionError, match=f'{name}= is not an option of method="evidence"'):
            strat.tune(model, data, method="evidence", **{name: value})
    with pytest.raises(OptionError, match='method is \'bayes\'; it is "validation" or "evidence"'):
        strat.tune(model, data, method="bayes")
    few = tuple(part[:2] for part in data)
    with pytest.raises(DataError, match="none at the start: .*a small ridge helps"):
        strat.tune(model, few, few, method="evidence")
