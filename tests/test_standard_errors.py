"""Standard errors against dense inverses and exact posteriors; entries of inverses of sparse matrices."""

import warnings

import cvxpy as cp
import networkx as nx
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from problems import mean

import strat
from strat.oracles.sparse_cholesky import inverse_entries

TIGHT = {"solver": strat.MAPG(tol=1e-9)}
RNG = np.random.default_rng(0)


def laplacian(graph):
    return nx.laplacian_matrix(graph).toarray().astype(float)


def blocks(matrix, n):
    K = len(matrix) // n
    return np.stack([matrix[k * n : (k + 1) * n, k * n : (k + 1) * n] for k in range(K)])


def logistic_hessians(X, theta, strata, K):
    margin = np.einsum("rn,rn->r", X, theta[strata])
    curvature = 1 / (2 + np.exp(margin) + np.exp(-margin))
    return np.stack([(X[strata == k].T * curvature[strata == k]) @ X[strata == k] for k in range(K)])


def logistic_records(K, n, N, seed=0):
    rng = np.random.default_rng(seed)
    X, strata = rng.standard_normal((N, n)), rng.integers(0, K, N)
    return X, np.where(X @ np.r_[2.0, -1.0, np.zeros(n - 2)] + rng.logistic(size=N) > 0, 1.0, -1.0), strata


def logistic_base(n, regularizer=lambda theta: 0.3 * cp.sum_squares(theta), **options):
    theta, x, y = cp.Variable(n, name="theta"), cp.Parameter(n, name="x"), cp.Parameter(name="y")
    return strat.BaseModel(cp.logistic(-y * (x @ theta)), regularizer(theta), data=(x, y), **options)


GRAPH = strat.graphs.cycle(5, weight=[1.0, 2.0, 0.5, 4.0, 1.5])


@pytest.mark.parametrize(
    ("graph", "n"),
    [
        (nx.path_graph(30), 3), (nx.grid_2d_graph(8, 9), 2), (nx.star_graph(20), 1),
        (nx.gnm_random_graph(60, 90, seed=1), 2), (nx.complete_graph(12), 3), (nx.empty_graph(7), 3),
        (nx.empty_graph(1), 2),
    ],
)  # fmt: skip
def test_entries_of_the_inverse_are_those_of_the_dense_inverse(graph, n):
    rng, K = np.random.default_rng(5), len(graph)
    B = rng.standard_normal((K, n, n))
    L = sp.csr_array(nx.laplacian_matrix(graph)).astype(float)
    A = sp.csr_array(sp.block_diag(list(B @ B.transpose(0, 2, 1) + np.eye(n))) + sp.kron(L, np.eye(n) + 1))
    kept = np.flatnonzero(rng.random(K * n) < 0.8)  # blocks of different sizes, some empty
    starts = np.searchsorted(kept, n * np.arange(K + 1))
    A = A[kept][:, kept]
    block = np.repeat(np.arange(K), np.diff(starts))
    linked = nx.to_numpy_array(graph) + np.eye(K) > 0
    rows, columns = np.nonzero(linked[block][:, block])
    log_det, entries = inverse_entries(A, rows, columns)
    assert np.allclose(entries, np.linalg.inv(A.toarray())[rows, columns], rtol=1e-12, atol=1e-14)
    assert log_det == pytest.approx(np.linalg.slogdet(A.toarray())[1], rel=1e-12)


def test_a_gaussian_model_has_its_exact_posterior():
    K, n, mu, noise = 6, 3, 0.7, 0.4
    graph = strat.graphs.grid(2, 3, weight=(2.0, 0.5))
    theta, x, y = cp.Variable(n, name="theta"), cp.Parameter(n, name="x"), cp.Parameter(name="y")
    loss = cp.square(y - x @ theta) / (2 * noise)
    base = strat.BaseModel(loss, mu / 2 * cp.sum_squares(theta), data=(x, y))
    X, strata = RNG.standard_normal((40, n)), RNG.integers(0, K - 1, 40)  # the last stratum has no records
    Y = RNG.standard_normal(40)
    model = strat.lrsm(base, graph, **TIGHT).fit(X, Y, strata=[list(graph)[k] for k in strata])

    # theta ~ N(0, (mu I + G)^-1 ⊗ I), y | theta ~ N(D theta, noise): the posterior by conditioning the joint normal.
    prior = np.kron(np.linalg.inv(mu * np.eye(K) + laplacian(graph)), np.eye(n))
    D = np.zeros((40, K * n))
    for r, k in enumerate(strata):
        D[r, k * n : (k + 1) * n] = X[r]
    gain = prior @ D.T @ np.linalg.inv(D @ prior @ D.T + noise * np.eye(40))
    mean, covariance = gain @ Y, prior - gain @ D @ prior
    assert np.allclose(model.theta_["theta"].ravel(), mean, atol=1e-6)
    assert np.allclose(strat.covariances(model), blocks(covariance, n), rtol=1e-9)
    assert np.allclose(strat.standard_errors(model)["theta"].ravel(), np.sqrt(np.diag(covariance)), rtol=1e-9)

    base = strat.BaseModel(loss * noise, noise * mu / 2 * cp.sum_squares(theta), data=(x, y))
    scaled = strat.lrsm(base, graph, scale=noise, **TIGHT).fit(X, Y, strata=[list(graph)[k] for k in strata])
    assert np.allclose(strat.covariances(scaled, dispersion=noise), strat.covariances(model), rtol=1e-7)


def test_a_logistic_model_with_couple_has_the_dense_inverse():
    K, n, couple = 5, 4, np.array([1.0, 0.0, 3.0, 0.5])
    X, Y, strata = logistic_records(K, n, 80)
    model = strat.lrsm(logistic_base(n, couple={"theta": couple}), GRAPH, **TIGHT)
    model.fit(X, Y, strata=strata, sample_weight=np.where(np.arange(80) < 70, 1.0, 0.0))
    H = logistic_hessians(X[:70], model.theta_["theta"], strata[:70], K) + 0.6 * np.eye(n)
    expected = np.linalg.inv(scipy.linalg.block_diag(*H) + np.kron(laplacian(GRAPH), np.diag(couple)))
    assert np.allclose(strat.covariances(model), blocks(expected, n), rtol=1e-9)


@pytest.mark.parametrize("ridge", [0.0, 0.4])
def test_parameters_held_at_a_kink_are_left_out(ridge):
    K, n = 5, 6
    X, Y, strata = logistic_records(K, n, 150)
    base = logistic_base(n, lambda theta: 3.0 * cp.norm1(theta) + ridge * cp.sum_squares(theta))
    model = strat.lrsm(base, GRAPH, **TIGHT).fit(X, Y, strata=strata)
    theta = model.theta_["theta"]
    free = theta != 0
    assert 0 < free.sum() < free.size
    full = scipy.linalg.block_diag(*logistic_hessians(X, theta, strata, K) + 2 * ridge * np.eye(n))
    full += np.kron(laplacian(GRAPH), np.eye(n))
    support = np.flatnonzero(free.ravel())
    variance = np.full(K * n, np.nan)
    variance[support] = np.diag(np.linalg.inv(full[np.ix_(support, support)]))
    errors = strat.standard_errors(model)["theta"]
    assert np.array_equal(np.isnan(errors), ~free)
    assert np.allclose(errors.ravel(), np.sqrt(variance), rtol=1e-5, equal_nan=True)
    assert (strat.covariances(model)[~free] == 0).all()


def test_parameters_at_a_bound_are_left_out():
    p, y = cp.Variable(name="p", bounds=[0.1, 0.9]), cp.Parameter(name="y")
    base = strat.BaseModel(-y * cp.log(p) - (1 - y) * cp.log(1 - p), data=(y,))
    model = strat.separate(base, **TIGHT).fit([1.0] * 5 + [1.0, 0.0, 0.0, 0.0], strata=["a"] * 5 + ["b"] * 4)
    assert model.theta_["p"] == pytest.approx([0.9, 0.25], abs=1e-6)
    # The information of 4 records at p = 1/4 is 4 / (p (1 - p)).
    expected = [np.nan, np.sqrt(0.25 * 0.75 / 4)]
    assert strat.standard_errors(model)["p"] == pytest.approx(expected, rel=1e-5, nan_ok=True)


def test_a_group_norm_has_its_curvature_off_the_kink():
    K, n, weight = 5, 3, 7.0
    X, Y, strata = logistic_records(K, n, 120)
    Y[strata == 3] *= RNG.choice([-1.0, 1.0], np.sum(strata == 3))  # nothing to learn there
    base = logistic_base(n, lambda theta: weight * cp.norm2(theta))
    model = strat.separate(base, **TIGHT).fit(X, Y, strata=strata)
    theta, errors = model.theta_["theta"], strat.standard_errors(model)["theta"]
    zero = np.linalg.norm(theta, axis=1) == 0
    assert 0 < zero.sum() < K
    assert np.isnan(errors[zero]).all()
    H = logistic_hessians(X, theta, strata, K)
    for k in np.flatnonzero(~zero):
        size = np.linalg.norm(theta[k])
        curvature = weight * (np.eye(n) / size - np.outer(theta[k], theta[k]) / size**3)
        assert np.allclose(strat.covariances(model)[k], np.linalg.inv(H[k] + curvature), rtol=1e-4)


def test_constraints_take_their_directions_away():
    p, y = cp.Variable(3, name="p"), cp.Parameter(3, name="y")
    base = strat.BaseModel(cp.sum_squares(y - p) / 2, constraints=[cp.sum(p) == 1], data=(y,))
    model = strat.lrsm(base, strat.graphs.path(2, weight=0.5), **TIGHT)
    model.fit(RNG.standard_normal((7, 3)), strata=[0, 0, 0, 0, 1, 1, 1])
    C = strat.covariances(model)
    full = np.kron(np.diag([4.0, 3.0]) + 0.5 * np.array([[1, -1], [-1, 1]]), np.eye(3))
    basis = np.kron(np.eye(2), np.linalg.svd(np.ones((1, 3)))[2][1:].T)
    assert np.allclose(C, blocks(basis @ np.linalg.inv(basis.T @ full @ basis) @ basis.T, 3), atol=1e-6)
    assert np.allclose(C @ np.ones(3), 0, atol=1e-6)


def test_a_symmetric_matrix_varies_along_symmetric_directions():
    S, y = cp.Variable((2, 2), name="S", PSD=True), cp.Parameter(2, name="y")
    base = strat.BaseModel(cp.quad_form(y, S) / 2 - cp.log_det(S) / 2, data=(y,))
    rows = RNG.standard_normal((30, 2)) @ [[1.0, 0.5], [0.0, 1.0]]
    model = strat.separate(base, **TIGHT).fit(rows, strata=[0] * 30)
    inverse = np.linalg.inv(model.theta_["S"][0])
    basis = np.array([[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]]).T / [1, np.sqrt(2), 1]
    expected = basis @ np.linalg.inv(30 / 2 * basis.T @ np.kron(inverse, inverse) @ basis) @ basis.T
    assert np.allclose(strat.covariances(model)[0], expected, rtol=1e-5)
    assert strat.standard_errors(model)["S"].shape == (1, 2, 2)


def test_a_prox_without_closed_form_is_differentiated_with_care():
    A = np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0], [1.0, 1.0, 1.0]])
    theta, y = cp.Variable(3, name="theta"), cp.Parameter(3, name="y")
    base = strat.BaseModel(cp.sum_squares(y - theta) / 2, 0.1 * cp.norm1(A @ theta), data=(y,))
    model = strat.separate(base, **TIGHT).fit([[1.0, 1.01, 3.0]] * 4, strata=[0] * 4)
    fitted = model.theta_["theta"][0]
    assert fitted[0] == pytest.approx(fitted[1], abs=1e-6)  # fused: they move together
    C = strat.covariances(model)[0]
    assert np.allclose(C, [[0.125, 0.125, 0], [0.125, 0.125, 0], [0, 0, 0.25]], atol=1e-4)


def test_the_common_model_pools_all_records():
    X, Y, strata = logistic_records(4, 3, 60)
    model = strat.common(logistic_base(3), **TIGHT).fit(X, Y, strata=strata)
    H = logistic_hessians(X, model.theta_["theta"][:1], np.zeros(60, dtype=int), 1)[0] + 4 * 0.6 * np.eye(3)
    assert np.allclose(strat.covariances(model), np.linalg.inv(H)[None].repeat(4, axis=0), rtol=1e-9)


def test_more_strata_than_a_dense_inverse_could_hold():
    K, n = 4000, 8  # 32,000 numbers on a path
    theta, y = cp.Variable(n, name="theta"), cp.Parameter(n, name="y")
    base = strat.BaseModel(cp.sum_squares(y - theta) / 2, data=(y,))
    model = strat.lrsm(base, strat.graphs.path(K, weight=2.0)).fit(np.zeros((K, n)), strata=np.arange(K))
    errors = strat.standard_errors(model)["theta"]
    middle = np.sqrt(1 / np.sqrt(1 + 4 * 2.0))  # Green's function of 1 + 2 (2 - shift - shift^-1)
    assert np.allclose(errors[K // 2], middle, rtol=1e-12)


def test_what_nothing_determines_is_infinite():
    theta, x, y = cp.Variable(2, name="theta"), cp.Parameter(2, name="x"), cp.Parameter(name="y")
    base = strat.BaseModel(cp.square(y - x @ theta) / 2, data=(x, y))
    graph, X = nx.Graph([("a", "b")]), [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 2.0]]
    graph.add_nodes_from(["c", "d"])
    with warnings.catch_warnings(action="ignore"):
        model = strat.lrsm(base, graph).fit(X, [1.0, 1.0, 2.0, 4.0], strata=["a", "a", "c", "c"])
    with pytest.warns(strat.DataWarning, match=r"4 parameters in 2 strata \('c', 'd'\) have infinite"):
        errors = strat.standard_errors(model)["theta"]
    # Stratum b knows what a knows, through an edge of 1.
    assert np.allclose(errors[:2], np.sqrt([[1.0], [2.0]]), rtol=1e-9)
    assert np.isinf(errors[2:]).all()


@pytest.mark.parametrize("dispersion", [0.0, -1.0, np.inf, True, "1"])
def test_dispersion_is_checked(dispersion):
    model = strat.separate(mean()).fit([1.0], strata=[0])
    with pytest.raises(strat.OptionError, match="dispersion is"):
        strat.standard_errors(model, dispersion=dispersion)


def test_a_loss_with_kinks_is_refused(tmp_path):
    y, theta = cp.Parameter(name="y"), cp.Variable(name="theta")
    smooth = strat.BaseModel(cp.abs(y - theta), cp.square(theta), data=(y,), smoothing=0.5)
    model = strat.lrsm(smooth, strat.graphs.path(2)).fit([1.0, 0.2], strata=[0, 1])
    assert np.isfinite(strat.standard_errors(model)["theta"]).all()
    # As a solver that needs no gradient would have left it.
    model.base = strat.BaseModel(cp.abs(y - theta), cp.square(theta), data=(y,))
    with pytest.raises(strat.NoOracleError, match="no gradient.*not differentiable.*smoothing="):
        strat.hypergradient(model, ([1.5, 1.5], [0, 1]))
    with pytest.raises(strat.NoOracleError, match="second derivatives of the loss, but abs"):
        strat.standard_errors(model)
    model.base = smooth
    model.save(tmp_path / "model.npz")
    with pytest.raises(strat.OptionError, match="standard_errors needs the records of the fit"):
        strat.standard_errors(strat.load(tmp_path / "model.npz", smooth))


@pytest.mark.parametrize("f", [cp.square, cp.exp])
def test_at_a_curved_constraint_derivatives_are_those_of_the_lagrangian(f):
    v, y, Y = cp.Variable(2, name="v"), cp.Parameter(2, name="y"), np.array([[1.0, -1], [0.5, 1]])
    base = strat.BaseModel(cp.sum_squares(y - v), 0, [f(v[0]) + v[1] <= -0.9], data=(y,))
    model = strat.lrsm(base, strat.graphs.path(2)).fit(Y, strata=[0, 1])
    theta, G = model.theta_["v"].ravel(), np.kron([[1, -1], [-1, 1]], np.eye(2))
    u = theta[::2]
    slope, bend = (2 * u, [2, 2]) if f is cp.square else (np.exp(u), np.exp(u))
    normals = scipy.linalg.block_diag([slope[0], 1], [slope[1], 1])
    force = -np.linalg.lstsq(normals.T, 2 * (theta - Y.ravel()) + G @ theta)[0]
    Z = scipy.linalg.null_space(normals)
    H = 2 * np.eye(4) + G + np.kron(np.diag(force * bend), np.diag([1, 0]))
    C = Z @ np.linalg.solve(Z.T @ H @ Z, Z.T)
    assert force.min() > 0.1
    assert np.allclose(strat.covariances(model), [C[:2, :2], C[2:, 2:]], atol=1e-5)
    assert np.allclose(strat.sensitivity(model)[0, 1]["v"].ravel(), -C @ G @ theta, atol=1e-5)


def test_a_bound_that_exerts_no_force_is_named():
    w, x, y = cp.Variable(2, name="w", nonneg=True), cp.Parameter(2, name="x"), cp.Parameter(name="y")
    base = strat.BaseModel(cp.square(y - x @ w), 0.1 * cp.sum_squares(w), data=(x, y))
    X = np.c_[RNG.uniform(1, 2, 30), np.zeros(30)]  # a column that never occurs
    model = strat.separate(base).fit(X, X[:, 0], strata=np.zeros(30))
    with pytest.warns(strat.DataWarning, match="mean nothing in 1 of 1 strata, where the fit touches"):
        strat.standard_errors(model)


@pytest.mark.parametrize("weight", [1e7, 1e12])
def test_strong_edges_in_raw_columns_leave_those_of_a_common_model(weight):
    t, b, x, y = cp.Variable(name="t"), cp.Variable(name="b"), cp.Parameter(name="x"), cp.Parameter(name="y")
    base, z = strat.BaseModel(cp.square(y - t * x - b) / 2, data=(x, y)), np.arange(60) % 6
    X, Y = RNG.normal(2000, 10, 60), RNG.standard_normal(60)
    models = strat.lrsm(base, strat.graphs.path(6, weight=weight)), strat.common(base)
    found, expected = (strat.standard_errors(model.fit(X, Y, strata=z)) for model in models)
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=0.05 if weight < 1e8 else 1e-5)
