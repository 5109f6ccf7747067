"""Packed triangles against dense matrices, for even and odd orders."""

import numpy as np
import pytest

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


def test_products_are_added_in_place(K):
    packed, A = Packed(K), positive_definite(K)
    theta, a = np.random.default_rng(1).standard_normal((K, 3)), packed.pack(A)
    packed.add_products(-2.0, theta, 0.5, a)
    np.testing.assert_allclose(np.tril(packed.square(a)), np.tril(0.5 * A - 2 * theta @ theta.T), atol=1e-12)
