"""LogDet and FixedGraph: parameters, CVXPY expression, and the numbers behind it."""

import cvxpy as cp
import numpy as np
import pytest
from sklearn.base import clone

from strat.errors import OptionError
from strat.problem.edges import AllPairs, EdgeList
from strat.problem.graph_regularizers import FixedGraph, LogDet

K = 6
EDGES = [AllPairs(K), EdgeList(K, [0, 0, 1, 2, 4], [1, 5, 3, 4, 5])]
CASES = [
    LogDet(2.0, 0.5, 0.3, 0.1),
    LogDet(2.0, 0.5, 1.0, 0.1),
    LogDet(0.0, 0.5, 0.0, 1.0),
    LogDet(1.0, 0.0, 0.5, 2.0),
]


def point(edges, seed=0):
    rng = np.random.default_rng(seed)
    return edges.from_vector(rng.random(edges.count)), edges.from_vector(rng.random(edges.count))


@pytest.mark.parametrize("edges", EDGES)
@pytest.mark.parametrize("h", CASES)
def test_value_is_the_expression(h, edges):
    w, w0 = point(edges)
    W, W0 = edges.to_matrix(w), edges.to_matrix(w0)
    assert h.oracle(edges, w0).set(w) == pytest.approx(h.expression(W, W0).value, rel=1e-9)
    assert h.oracle(edges, edges.zeros()).set(w) == pytest.approx(h.expression(W).value, rel=1e-9)


@pytest.mark.parametrize("edges", EDGES)
@pytest.mark.parametrize("h", CASES)
def test_derivatives_are_finite_differences(h, edges):
    w, w0 = point(edges)
    graph_oracle, other = h.oracle(edges, w0), h.oracle(edges, w0)
    graph_oracle.set(w)
    gradient = edges.vector(graph_oracle.gradient(edges.zeros()))
    for e in range(edges.count):
        step = edges.from_vector(1e-5 * np.eye(edges.count)[e])
        assert gradient[e] == pytest.approx(
            (other.set(w + step) - other.set(w - step)) / 2e-5, rel=1e-6, abs=1e-6
        )
    assert graph_oracle.factorizations == (1 if h.lambda1 else 0)
    assert graph_oracle.inversions == graph_oracle.factorizations


def test_the_metric_bounds_the_curvature():
    h, edges = LogDet(2.0, 0.5, 0.3, 0.1), AllPairs(K)
    w, w0 = point(edges)
    graph_oracle = h.oracle(edges, w0)
    graph_oracle.set(w)
    bound = np.diag(edges.vector(graph_oracle.curvature(edges.zeros())))
    M = edges.dense_laplacian(w) + 0.1 * np.eye(K)
    i, j = edges.ends
    B = np.eye(K)[i] - np.eye(K)[j]
    hessian = 2.0 * (B @ np.linalg.inv(M) @ B.T) ** 2 + 2 * 0.5 * 0.7 * np.eye(edges.count)
    assert np.linalg.eigvalsh(3 * bound - hessian).min() > 0
    assert graph_oracle.scale() == pytest.approx(2.0 * np.linalg.norm(np.diag(B @ np.linalg.inv(M) @ B.T)))


def test_outside_the_domain_is_infinite():
    edges = AllPairs(3)
    assert LogDet(1.0, 1.0, 0.1, 0.5).oracle(edges, edges.zeros()).set(-edges.mask) == np.inf


def test_constraints_and_the_convex_program():
    h, edges = LogDet(1.0, 0.4, 0.2, 0.3), AllPairs(4)
    _, w0 = point(edges)
    W = cp.Variable((4, 4), symmetric=True)
    cp.Problem(cp.Minimize(h.expression(W, edges.to_matrix(w0))), h.constraints(W)).solve(solver=cp.CLARABEL)
    assert W.value.min() > -1e-6
    assert np.abs(np.diag(W.value)).max() < 1e-6
    assert FixedGraph().expression(W).value == 0


def test_sklearn_parameters():
    h = LogDet(lambda1=1, lambda2="x", eta=0.1, mu=2)
    assert clone(h).get_params() == {"lambda1": 1, "lambda2": "x", "eta": 0.1, "mu": 2}
    assert h.set_params(lambda2=3).lambda2 == 3
    assert h.learned
    assert not FixedGraph().learned


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"lambda1": -1}, "lambda1 = -1 is out of range: it must be a number of at least 0"),
        ({"lambda2": np.nan}, "lambda2 = nan"),
        ({"eta": 1.5}, "eta = 1.5 is out of range: it must be a number between 0 and 1"),
        ({"mu": 0}, "mu = 0 is out of range: it must be a number above 0"),
        ({"mu": "big"}, "mu = 'big'"),
        ({"lambda2": 0}, "lambda2 = 0 is out of range: it must be a number above 0 where lambda1 > 0"),
    ],
)
def test_parameters_out_of_range(options, text):
    h = LogDet(**{"lambda1": 1.0, "lambda2": 1.0, "eta": 0.1, "mu": 0.1, **options})
    with pytest.raises(OptionError, match=text):
        h.validate(joint=True)


def test_lambda2_may_be_zero_for_given_parameters_and_with_lambda1():
    LogDet(1.0, 0, 0.1, 0.1).validate()
    LogDet(0, 0, 0.1, 0.1).validate(joint=True)


def test_from_bayes():
    assert LogDet.from_bayes(n=10, c1=3.0, c2=1.0, mu=0.5).get_params() == {
        "lambda1": 5.0,
        "lambda2": 4.0,
        "eta": 0.25,
        "mu": 0.5,
    }
    with pytest.raises(OptionError, match=r"c1 \+ c2 = 0"):
        LogDet.from_bayes(10, 0, 0, 1.0)
