"""Prior graphs from features and from separately fitted parameters."""

import warnings

import cvxpy as cp
import networkx as nx
import numpy as np
import pandas as pd
import pytest
from networkx import to_numpy_array as weights
from scipy.spatial.distance import pdist, squareform

import strat
from strat import graphs

RNG = np.random.default_rng(0)
POINTS = RNG.standard_normal((7, 3))


def off_diagonal(W):
    return W * (1 - np.eye(len(W)))


@pytest.fixture(scope="module")
def separate():
    """Two variables of one declaration; stratum 'c' has two records, 'd' none."""
    slope, level = cp.Variable(2, name="slope"), cp.Variable(name="level")
    x, y = cp.Parameter(2, name="x"), cp.Parameter(name="y")
    base = strat.BaseModel(cp.square(y - x @ slope - level), 0.1 * cp.sum_squares(slope), data=(x, y))
    rng, strata = np.random.default_rng(1), ["a"] * 20 + ["b"] * 30 + ["c"] * 2 + ["e"] * 10
    X = rng.standard_normal((len(strata), 2))
    Y = X @ [1.0, -1.0] + rng.standard_normal(len(strata))
    with warnings.catch_warnings(action="ignore", category=strat.DataWarning):
        return strat.separate(base, (["a", "b", "c", "d", "e"], np.zeros((5, 5)))).fit(X, Y, strata=strata)


@pytest.mark.parametrize("metric", ["euclidean", "cityblock", "chebyshev", lambda a, b: abs(a - b).max()])
def test_any_metric_and_its_distances_give_one_graph(metric):
    distances = squareform(pdist(POINTS, metric))
    frame = pd.DataFrame(distances, index=list("abcdefg"))
    for build, number in ((graphs.knn, 2), (graphs.exponential_kernel, 0.7)):
        near = build(distances, number, metric="precomputed")
        assert np.allclose(weights(build(POINTS, number, metric=metric)), weights(near))
        assert list(build(frame, number, metric="precomputed")) == list("abcdefg")
    kernel = graphs.exponential_kernel(distances, 0.7, metric="precomputed")
    assert np.allclose(weights(kernel), off_diagonal(np.exp(-0.7 * distances)))


def test_knn_joins_the_nearest():
    W, distances = weights(graphs.knn(POINTS, 2)), squareform(pdist(POINTS))
    near = np.argsort(distances + 99 * np.eye(7), axis=1)[:, :2]
    expected = np.zeros((7, 7))
    np.put_along_axis(expected, near, 1.0, axis=1)
    assert np.array_equal(W, np.maximum(expected, expected.T))


def test_the_median_distance_gets_weight_one_half():
    distances = pdist(POINTS)
    kernel = weights(graphs.exponential_kernel(POINTS))
    assert np.median(kernel[np.triu_indices(7, 1)]) == pytest.approx(0.5)
    assert np.allclose(kernel, weights(graphs.exponential_kernel(POINTS, np.log(2) / np.median(distances))))
    assert np.array_equal(weights(graphs.exponential_kernel(np.ones((3, 2)))), off_diagonal(np.ones((3, 3))))


def test_what_is_no_distance_is_refused():
    for distances, message in (
        (np.ones((3, 2)), r"have shape \(3, 2\)"),
        (np.array([[0.0, 1.0], [2.0, 0.0]]), "are 1 at row 0, column 1, and 2 at row 1"),
        (np.array([[0.0, -1.0], [-1.0, 0.0]]), "are -1 at row 0"),
        (np.ones((2, 2)), "are 1 at row 0, column 0"),
    ):
        for build in (graphs.knn, graphs.exponential_kernel):
            with pytest.raises(strat.DataError, match=message):
                build(distances, 1, metric="precomputed")


def test_the_kernels_are_those_of_the_paper():
    d = squareform(pdist(POINTS))
    build = graphs.from_parameters
    assert np.allclose(weights(build(POINTS, "exponential", tau=0.3)), off_diagonal(np.exp(-0.3 * d)))
    assert np.allclose(weights(build(POINTS, "entropy", sigma=0.8)), off_diagonal(np.exp(-(d**2) / 1.28)))
    assert nx.utils.graphs_equal(build(POINTS, "knn", k=2), graphs.knn(POINTS, 2))
    # 2^3 is the first power above 7.
    assert len(build(POINTS, "knn").edges) == len(graphs.knn(POINTS, 3).edges)
    for kernel in ("exponential", "entropy"):
        assert np.median(weights(build(POINTS, kernel))[np.triu_indices(7, 1)]) == pytest.approx(0.5)


def test_labels_are_nodes(separate):
    assert list(graphs.from_parameters(separate)) == ["a", "b", "c", "d", "e"]
    assert list(graphs.from_parameters(POINTS, labels=list("tuvwxyz"), name="fit")) == list("tuvwxyz")
    frame = pd.DataFrame(POINTS, index=range(10, 17))
    assert list(graphs.from_parameters(frame, "knn")) == list(range(10, 17))
    graph = graphs.from_parameters(POINTS, "knn", name="fit")
    assert {factor for *_, factor in graph.edges(data="factor")} == {"fit"}
    assert graphs.from_parameters(POINTS[:1], "knn").number_of_edges() == 0


def test_strata_with_few_records_are_drawn_to_the_mean(separate):
    counts = np.array([20.0, 30.0, 2.0, 0.0, 10.0])
    theta = np.column_stack([separate.theta_["slope"], separate.theta_["level"]])
    mean = counts @ theta / 62
    expected = mean + (counts / (counts + 3))[:, None] * (theta - mean)  # three parameters per stratum
    W = weights(graphs.from_parameters(separate, "exponential", tau=1.0))
    assert np.allclose(W, off_diagonal(np.exp(-squareform(pdist(expected)))))
    plain = weights(graphs.from_parameters(separate, "exponential", tau=1.0, shrink=0))
    assert np.allclose(plain, off_diagonal(np.exp(-squareform(pdist(theta)))))
    given = graphs.from_parameters(theta, "exponential", tau=1.0, counts=counts, shrink=3)
    assert np.allclose(W, weights(given))


def test_records_of_weight_zero_do_not_count(separate):
    X, Y = np.eye(2)[[0, 1, 0, 1]], np.array([1.0, 2.0, 3.0, 9.0])
    fit = strat.separate(separate.base).fit(X, Y, strata=["a", "a", "b", "b"], sample_weight=[1, 1, 1, 0])
    counted = graphs.from_parameters(fit.theta_, tau=1.0, counts=[2, 1], shrink=3, labels=["a", "b"])
    assert np.allclose(weights(graphs.from_parameters(fit, tau=1.0)), weights(counted))


def test_strata_below_min_records_stay_without_edges(separate):
    text = "2 of 5 strata have fewer than 5 records and get no edges: 'c', 'd'"
    with pytest.warns(strat.DataWarning, match=text):
        graph = graphs.from_parameters(separate, min_records=5)
    assert list(graph) == ["a", "b", "c", "d", "e"]
    assert set(graph.edges) == {("a", "b"), ("a", "e"), ("b", "e")}


def test_a_model_fitted_with_a_graph_is_taken_as_it_is(separate):
    records = separate._training
    model = strat.lrsm(separate.base, graphs.complete(["a", "b", "c", "d", "e"]))
    model.fit(*records.arrays, strata=[records.strata.labels[k] for k in records.strata.index])
    theta = np.column_stack([model.theta_["slope"], model.theta_["level"]])
    W = weights(graphs.from_parameters(model, tau=1.0))
    assert np.allclose(W, off_diagonal(np.exp(-squareform(pdist(theta)))))


def test_variables_are_put_on_one_scale_unless_the_rate_has_a_unit():
    theta = {"small": POINTS, "large": 1e4 * RNG.standard_normal((7, 2, 2))}
    flat = [theta["small"], theta["large"].reshape(7, 4)]
    scaled = np.concatenate([block / np.sqrt(block.var(axis=0).sum()) for block in flat], axis=1)
    W = weights(graphs.from_parameters(theta))
    assert np.allclose(W, weights(graphs.exponential_kernel(scaled)))
    assert np.allclose(W, weights(graphs.from_parameters({"small": POINTS, "large": theta["large"] / 1e4})))
    d = squareform(pdist(np.concatenate(flat, axis=1)))
    assert np.allclose(weights(graphs.from_parameters(theta, tau=1e-4)), off_diagonal(np.exp(-1e-4 * d)))
    each = graphs.from_parameters(theta, scaling="coordinate")
    standard = np.concatenate(flat, axis=1)
    assert np.allclose(weights(each), weights(graphs.exponential_kernel(standard / standard.std(axis=0))))


def test_what_the_model_does_not_couple_does_not_count():
    a, b, y = cp.Variable(name="a"), cp.Variable(name="b"), cp.Parameter(2, name="y")
    base = strat.BaseModel(cp.square(y[0] - a) + cp.square(y[1] - b), data=(y,), couple={"a": 4.0, "b": 0.0})
    fit = strat.separate(base).fit([[0.0, 9.0], [1.0, -3.0]], strata=[0, 1])
    W = weights(graphs.from_parameters(fit, "exponential", tau=1.0, shrink=0))
    assert W[0, 1] == pytest.approx(np.exp(-2.0))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"kernel": "gauss"}, strat.OptionError, "kernel is 'gauss'"),
        ({"sigma": 1.0}, strat.OptionError, "kernel='exponential' takes tau, not sigma"),
        ({"tau": -1.0}, strat.OptionError, "tau is -1.0"),
        ({"kernel": "entropy", "sigma": 0.0}, strat.OptionError, "sigma is 0.0"),
        ({"kernel": "knn", "k": 7}, strat.OptionError, "k is 7"),
        ({"shrink": 1.0}, strat.OptionError, "shrink needs the records"),
        ({"shrink": -1.0, "counts": np.ones(7)}, strat.OptionError, "shrink is -1.0"),
        ({"min_records": 3}, strat.OptionError, "min_records needs the records"),
        ({"min_records": -3}, strat.OptionError, "min_records is -3"),
        ({"scaling": "max"}, strat.OptionError, "scaling is 'max'"),
        ({"counts": [1, 2]}, strat.DataError, "counts must hold 7"),
        ({"labels": ["a"]}, strat.DataError, "1 labels for 7 strata"),
        ({"theta": {}}, strat.DataError, "no variable"),
        ({"theta": 3.0}, strat.DataError, r"theta has the shape \(\)"),
        ({"theta": {"a": np.ones(3), "b": np.ones(4)}}, strat.DataError, r"\(3,\), \(4,\)"),
        ({"theta": [[np.nan]]}, strat.DataError, "theta holds nan in row 0, column 0"),
        ({"theta": strat.MAPG}, strat.DataError, "other than numbers"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        graphs.from_parameters(**{"theta": POINTS, **arguments})
