"""Points well inside the domain of a sum of atoms, by least squares."""

import numpy as np

#: Distances from the ends of the domain that are tried, and most rounds in which arguments outside it are fitted again.
DISTANCES, ROUNDS = 10.0 ** np.arange(-4, 5, 2), 20
HAIRS = 10.0 ** np.arange(-12, -5)  # distances, relative to theta, that make up for rounding
RIDGE = 1e-8  # relative; it keeps the equations definite where records do not determine theta
LARGEST = 2**24  # count of numbers in the equations up to which they are formed


def central_points(loss, theta, distances=DISTANCES):
    """For each distance s, parameters (K, n) with arguments, if possible, in their domain and about s or more from its end.

    A round takes argmin_z Σ ‖A z + b − c‖² over the arguments, where c is the current argument u, raised to end + s if below.
    For a matrix that must be positive definite, c is u with the eigenvalues below s raised to s. The first z is theta.
    """
    (K, n), arguments = theta.shape, loss.limited()
    if not arguments or K * n**2 > LARGEST:
        return
    forms = [form for form, _ in arguments]
    grams = [form.design.gram(np.ones((form.segments.N if form.on_records else K, form.m))) for form in forms]
    system = sum(grams[1:], grams[0])
    diagonal = np.einsum("kaa->ka", system)
    diagonal += RIDGE * diagonal + 1e-12 * (1 + diagonal.max(axis=1, keepdims=True))
    for distance in distances:
        z = theta
        for _ in range(ROUNDS):
            found = [_missing(form.value(z, {}), end, distance) for form, end in arguments]
            missing, legal = zip(*found, strict=True)
            if all(legal):
                break
            pairs = zip(forms, missing, strict=True)
            left = sum(form.design.rmatvec(miss.reshape(-1, form.m)) for form, miss in pairs)
            z = z + np.linalg.solve(system, left[..., None])[..., 0]
        yield z


def _missing(u, end, distance):
    """What to add to arguments so that they keep the distance from the end, and whether all are in the domain."""
    if end is not None:
        return np.maximum(end + distance - u, 0.0), np.all(u > end)
    values, vectors = np.linalg.eigh(0.5 * (u + u.swapaxes(1, 2)))
    lift = np.maximum(distance - values, 0.0)[:, None, :]
    return (vectors * lift) @ vectors.swapaxes(1, 2), np.all(values > 0)


def off_edges(loss, theta, project=None):
    """theta (K, n), moved slightly, then projected by `project`, in strata where rounding left it outside the loss's domain."""
    for distance in HAIRS * (1 + np.abs(theta).max(initial=0.0)):
        outside = ~np.isfinite(loss.value(theta))
        if not outside.any():
            break
        for near in central_points(loss, theta, [distance]):
            near = near if project is None else project(near)
            theta = np.where(outside[:, None], near, theta)
    return theta
