"""Points well inside the domain of a sum of atoms, by least squares."""

import numpy as np

#: Distances from the ends of the domain that are tried, and how often the arguments that miss them are fitted again.
DISTANCES, ROUNDS = 10.0 ** np.arange(-4, 5, 2), 20
HAIRS = 10.0 ** np.arange(-12, -5)  # distances, relative to theta, by which rounding is mended
RIDGE = 1e-8  # relative; it keeps the equations definite where records say nothing
LARGEST = 2**24  # numbers up to which the equations are formed


def central_points(loss, theta, distances=DISTANCES):
    """For each distance s, parameters (K, n) at which arguments are at least s off the ends of their domain, as far as possible.

    They minimise Σ ‖A z + b − c‖² over the affine arguments A z + b of atoms with a domain, where c = max(A z + b, end + s) is
    taken from the z before, and from z = theta at first. For a positive definite argument c is s times the identity.

    Parameters
    ----------
    loss : Oracle
    theta : (K, n) ndarray
    distances : sequence of float

    Yields
    ------
    (K, n) ndarray
    """
    K, n = theta.shape
    arguments = loss.limited()
    if not arguments or K * n**2 > LARGEST:
        return
    grams = [form.design.gram(np.ones((_rows(form, K), form.m))) for form, *_ in arguments]
    system = sum(grams[1:], grams[0])
    diagonal = np.einsum("kaa->ka", system)
    diagonal += RIDGE * diagonal + 1e-12 * (1 + diagonal.max(axis=1, keepdims=True))
    for distance in distances:
        z = theta.copy()
        for _ in range(ROUNDS):
            left = np.zeros_like(z)
            for form, end, definite in arguments:
                u = form.value(z, {})
                target = (
                    np.broadcast_to(distance * end, u.shape) if definite else np.maximum(u, end + distance)
                )
                left += form.design.rmatvec((target - u).reshape(len(u), -1))
            move = np.linalg.solve(system, left[..., None])[..., 0]
            z += move
            if np.abs(move).max(initial=0.0) <= 1e-3 * distance:
                break
        yield z


def off_edges(loss, theta, project=None):
    """theta (K, n), moved by a hair in the strata where rounding has left it outside the loss's domain; `project` follows."""
    for distance in HAIRS * (1 + np.abs(theta).max(initial=0.0)):
        outside = ~np.isfinite(loss.value(theta))
        if not outside.any():
            break
        for near in central_points(loss, theta, [distance]):
            near = near if project is None else project(near)
            theta = np.where(outside[:, None], near, theta)
    return theta


def _rows(form, K):
    return form.segments.N if form.on_records else K
