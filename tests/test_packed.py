"""Packed triangles against dense matrices, for even and odd orders."""

import numpy as np
import pytest

from strat.problem.edges import AllPairs, EdgeList
from strat.problem.edges.laplacians import Laplacians
from strat.problem.edges.packed import Packed


@pytest.fixture(params=[1, 2, 3, 6, 7, 20])
def K(request):
    return request.param


def positive_definite(K):
    A = np.random.default_rng(0).standard_normal((K, K))
    return A @ A.T + K * np.eye(K)


def test_every_entry_has_its_own_place(K):
    packed, A, (i, j) = Packed(K), positive_definite(K), np.tril_indices(K)
    a = packed.pack(A)
    assert a.shape == (packed.size,)
    assert sorted(packed.positions(i, j)) == list(range(packed.size))
    assert np.array_equal(a[packed.positions(i, j)], A[i, j])
    assert np.array_equal(a[packed.diagonal], np.diag(A))
    assert np.array_equal(np.tril(packed.square(a)), np.tril(A))


def test_factor_inverse_and_solutions(K):
    packed, A, (i, j) = Packed(K), positive_definite(K), np.tril_indices(K)
    b, a = np.random.default_rng(1).standard_normal((K, 3)), packed.pack(A)
    assert packed.factor(a)
    np.testing.assert_allclose(a[packed.diagonal], np.diag(np.linalg.cholesky(A)))
    np.testing.assert_allclose(packed.solver(a)(b), np.linalg.solve(A, b))
    packed.invert(a)
    np.testing.assert_allclose(a[packed.positions(i, j)], np.linalg.inv(A)[i, j], atol=1e-14)
    assert not packed.factor(packed.pack(-A))


def test_products(K):
    packed, A = Packed(K), positive_definite(K)
    for shape in ((K,), (K, 1), (K, 3)):
        x = np.random.default_rng(1).standard_normal(shape)
        for order in "CF":
            found = packed.operator(packed.pack(A))(np.asarray(x, order=order))
            np.testing.assert_allclose(found, A @ x, atol=1e-12)


def test_products_are_added_in_place(K):
    packed, A = Packed(K), positive_definite(K)
    theta, a = np.random.default_rng(1).standard_normal((K, 3)), packed.pack(A)
    packed.add_products(-2.0, theta, 0.5, a)
    np.testing.assert_allclose(np.tril(packed.square(a)), np.tril(0.5 * A - 2 * theta @ theta.T), atol=1e-12)


def test_both_edge_sets_measure_the_same_energies_and_distances(K):
    rng = np.random.default_rng(2)
    theta, ends = 5 + rng.standard_normal((K, 3)), rng.standard_normal(K) * 10.0 ** rng.integers(-3, 3, K)
    i, j = np.triu_indices(K, 1)
    half = ((theta[i] - theta[j]) ** 2).sum(axis=1) / 2
    v = rng.random(i.size)
    for edges in (AllPairs(K), EdgeList(K, i, j)):
        w = edges.from_vector(v)
        assert Laplacians(edges, w, np.ones(3)).energy(theta) == pytest.approx(half @ v, rel=1e-12)
        g = edges.add_half_distances(theta, edges.from_vector(v), ends)
        np.testing.assert_allclose(edges.vector(g), v + half + ends[i] + ends[j], atol=1e-11)
        g = edges.add_ends(ends, edges.from_vector(v))
        np.testing.assert_allclose(edges.vector(g), v + ends[i] + ends[j], rtol=1e-13, atol=1e-13)
