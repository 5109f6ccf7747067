"""Graph regularizers: parameters, CVXPY expression, and the numbers of their oracles."""

import cvxpy as cp
import numpy as np
import pytest
from sklearn.base import clone

import strat
from strat.errors import OptionError
from strat.problem import graph_regularizers
from strat.problem.edges import AllPairs, EdgeList
from strat.problem.graph_regularizers import Entropy, FixedGraph, LogDet, LogDiagonal, TraceConstraint

K = 6
EDGES = [AllPairs(K), EdgeList(K, [0, 0, 1, 2, 4], [1, 5, 3, 4, 5])]
CASES = [
    LogDet(2.0, 0.5, 0.3, 0.1),
    LogDet(2.0, 0.5, 1.0, 0.1),
    LogDet(0.0, 0.5, 0.0, 1.0),
    LogDet(1.0, 0.0, 0.5, 2.0),
    LogDiagonal(2.0, 0.5),
    LogDiagonal(0.0, 0.5),
    TraceConstraint(4.0, 0.3),
    TraceConstraint(4.0, 0.0),
    Entropy(0.7),
]


def test_every_graph_regularizer_is_public_and_tested():
    names = set(graph_regularizers.__all__) - {"FixedGraph", "GraphRegularizer"}
    assert names == {type(h).__name__ for h in CASES} == names & set(strat.__all__)


def point(edges, seed=0):
    rng = np.random.default_rng(seed)
    return edges.from_vector(rng.random(edges.count)), edges.from_vector(rng.random(edges.count))


@pytest.mark.parametrize("edges", EDGES)
@pytest.mark.parametrize("h", CASES)
def test_value_is_the_expression(h, edges):
    w, w0 = point(edges)
    W, W0 = edges.to_matrix(w), edges.to_matrix(w0)
    for prior, expression in ((w0, h.expression(W, W0)), (edges.zeros(), h.expression(W))):
        oracle = h.oracle(edges, prior)
        assert oracle.set(w) + oracle.rest() == pytest.approx(expression.value, rel=1e-9)


@pytest.mark.parametrize("h", CASES)
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_value_without_edges_is_the_expression(h):
    edges = AllPairs(K)
    oracle = h.oracle(edges, edges.zeros())
    value = oracle.set(edges.zeros()) + oracle.rest()
    assert value == pytest.approx(np.nan_to_num(h.expression(np.zeros((K, K))).value, posinf=np.inf))


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
    factorizations = int(isinstance(h, LogDet) and h.lambda1 > 0)
    assert graph_oracle.factorizations == factorizations


@pytest.mark.parametrize("edges", EDGES)
@pytest.mark.parametrize("h", [h for h in CASES if not isinstance(h, LogDet)])
def test_the_metric_bounds_the_hessian(h, edges):
    w, w0 = point(edges)
    graph_oracle = h.oracle(edges, w0)

    def gradient(w):
        graph_oracle.set(w)
        return edges.vector(graph_oracle.gradient(edges.zeros()))

    steps = [edges.from_vector(1e-6 * e) for e in np.eye(edges.count)]
    hessian = np.stack([(gradient(w + s) - gradient(w - s)) / 2e-6 for s in steps])
    graph_oracle.set(w)
    bound = np.diag(edges.vector(graph_oracle.curvature(edges.zeros())))
    assert np.linalg.eigvalsh(bound - (hessian + hessian.T) / 2).min() > -1e-6


def test_the_metric_of_log_det_bounds_a_third_of_the_hessian():
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
    assert clone(TraceConstraint(lambda1=1, lambda2="x")).get_params() == {"lambda1": 1, "lambda2": "x"}
    assert Entropy(2.0).set_params(sigma=3.0).sigma == 3.0
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


def test_lambda2_may_be_zero_unless_the_objective_would_fall_for_ever():
    LogDet(1.0, 0, 0.1, 0.1).validate()
    LogDiagonal(1.0, 0.0).validate()
    for h in (LogDet(0, 0, 0.1, 0.1), LogDiagonal(0.0, 0.0), TraceConstraint(1.0, 0.0)):
        h.validate(joint=True)
    with pytest.raises(OptionError, match="lambda2 = 0.0 is out of range: it must be a number above 0 where"):
        LogDiagonal(1.0, 0.0).validate(joint=True)


def test_the_bayesian_constants_give_the_posterior():
    """The objective differs from minus the log posterior by a constant, over random parameters and graphs."""
    K, n, mu, c1, c2 = 6, 3, 0.7, 0.8, 0.3
    h = LogDet.from_bayes(n=n, c1=c1, c2=c2, mu=mu)
    assert (h.lambda1, h.lambda2, h.eta, h.mu) == (n / 2, c1 + c2, c2 / (c1 + c2), mu)
    differences = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        W = AllPairs(K).to_matrix(AllPairs(K).from_vector(2 * rng.random(15)))
        theta = rng.standard_normal((K, n))
        G = np.diag(W.sum(axis=1)) - W
        precision = mu * np.eye(K) + G
        # Each of the n columns of theta is N(0, precision^-1); W has density ∝ exp(-c1/2 ||W||_F^2 - c2 ||W||_1).
        log_prior = n / 2 * np.linalg.slogdet(precision)[1] - 0.5 * np.trace(theta.T @ precision @ theta)
        log_prior += -c1 / 2 * np.sum(W**2) - c2 * np.abs(W).sum()
        ridge, laplacian = mu / 2 * np.sum(theta**2), 0.5 * np.trace(theta.T @ G @ theta)
        differences.append(laplacian + ridge + h.expression(W).value + log_prior)
    assert np.allclose(differences, 0.0, atol=1e-9)


@pytest.mark.parametrize(("c1", "c2"), [(0.0, 0.0), (-1.0, 2.0), (1.0, np.nan)])
def test_improper_priors_are_refused(c1, c2):
    with pytest.raises(OptionError, match="c1|c2"):
        LogDet.from_bayes(n=3, c1=c1, c2=c2, mu=1.0)
