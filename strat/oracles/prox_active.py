"""The prox of a quadratic and piecewise linear rows from a point near its solution: which rows stand on knots, guessed.

With the rows on knots held there and the others on their pieces the prox is a linear system. Its solution and
multipliers say which rows should have left their knots and which have crossed one; the guess is corrected until nothing
changes (Hintermüller, Ito and Kunisch 2003, The primal-dual active set strategy as a semismooth Newton method).
"""

import numpy as np

ROUNDS = 8  # corrections of the guess before another method has to help
AT_KNOT = 1e-9  # a row so near to a knot, in multiples of its norm and the size of the point, stands on it
EXACT = 2e-12  # largest distance between a row and its prox at a solution, in the same units


def from_nearby(v, t, z, terms, quadratic, transposed=None):
    """argmin f(z) + Σ φ_i(a_iᵀz + offset_i) + ‖z − v‖²/(2t), z near it, and the strata where it was found.

    Parameters
    ----------
    v, z : (K, n) ndarray
    t : (K,) ndarray
    terms : list of RowTerm
        Of piecewise linear functions.
    quadratic : Quadratic or None
        f.
    transposed : (n,) int ndarray or None
        Coordinates of the transposes of symmetric variables.

    Returns
    -------
    z : (K, n) ndarray
    found : (K,) bool ndarray
    """
    n = v.shape[1]
    curvature = np.eye(n) / t[:, None, None]
    load = v / t[:, None]
    if quadratic is not None:
        load = load - quadratic.value_and_gradient(np.zeros_like(v))[1]
        curvature = curvature + quadratic.hessian(v)
    if transposed is not None:
        p = transposed
        curvature = 0.5 * (curvature + curvature[:, p][:, :, p])
    size = 1.0 + np.abs(v).max(axis=1, initial=0.0)
    found = np.zeros(len(v), dtype=bool)
    sigma = [term.penalties(1.0 / t) for term in terms]
    rows = []
    for term in terms:
        u = term.design.matvec(z) + term.offset
        rows.append(term.functions.locate(u, term.on_rows(AT_KNOT * size) * term.norms))
    for _ in range(ROUNDS):
        left = np.flatnonzero(~found)
        z = z.copy()
        force = np.zeros_like(z)
        z[left], force[left] = _on_pieces(terms, rows, curvature, load, transposed, left)
        apart, corrected = np.zeros(len(v)), []
        for term, s, (_, moves, slope) in zip(terms, sigma, rows, strict=True):
            u = term.design.matvec(z) + term.offset
            y = np.where(moves > 0, slope, (1.0 - moves) / term.norms**2 * term.design.matvec(force))
            moved = u + y / s
            at, moves = term.functions.prox(moved, 1.0 / s)
            apart = np.maximum(apart, term.largest(at - u))
            corrected.append((at, moves, s * (moved - at)))
        rows = corrected
        found[left] = apart[left] <= EXACT * size[left]
        if found.all():
            break
    return z, found


def _on_pieces(terms, rows, curvature, load, transposed, left):
    """Solution in the strata `left` with rows held on their knots and pieces, and what it pulls at the held rows with."""
    gram, target = np.zeros_like(curvature), np.zeros_like(load)
    for term, (at, moves, slope) in zip(terms, rows, strict=True):
        weight = (1.0 - moves) / term.norms**2
        gram = gram + term.gram(weight)
        target = target + term.design.rmatvec(weight * (at - term.offset))
        load = load - term.design.rmatvec(moves * slope)
    if transposed is not None:
        p = transposed
        gram = 0.25 * (gram + gram[:, p] + gram[:, :, p] + gram[:, p][:, :, p])
        target, load = 0.5 * (target + target[:, p]), 0.5 * (load + load[:, p])
    gram, target, load, curvature = gram[left], target[left], load[left], curvature[left]
    values, vectors = np.linalg.eigh(gram)
    held = values > 1e-11 * (1.0 + values[:, -1:])
    inverse = np.where(held, 1.0 / np.where(held, values, 1.0), 0.0)

    def pseudo(b):
        b = np.matmul(np.swapaxes(vectors, 1, 2), b[..., None])[..., 0]
        return np.matmul(vectors, (inverse * b)[..., None])[..., 0]

    free = vectors * ~held[:, None, :]  # directions along which no held row moves
    z = pseudo(target)
    rest = load - np.matmul(curvature, z[..., None])[..., 0]
    basis = np.swapaxes(free, 1, 2)
    system = np.matmul(basis, np.matmul(curvature, free))
    diagonal = np.arange(load.shape[1])
    system[:, diagonal, diagonal] += held
    z = z + np.matmul(free, np.linalg.solve(system, np.matmul(basis, rest[..., None])))[..., 0]
    return z, pseudo(load - np.matmul(curvature, z[..., None])[..., 0])
