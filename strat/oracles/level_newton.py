"""Newton's method for a point and its multiplier at once: the projection on {Σ F_i(z_i) + s <= radius} from nearby.

z + λF'(z) = u and Σ F(z) + s − λ = radius, F a sum of functions of one number each, so that a step costs a few passes
over the rows. It is meant for points near the solution, and says where it came to the end.
"""

import numpy as np

ROUNDS = 12
CLOSE = 1e-8  # a step so short leads to the solution but for rounding, as errors are squared


def level_newton(functions, u, s, radius, z, level):
    """The projection on the set's boundary.

    Parameters
    ----------
    functions : list of (slice, ScalarRows)
        Rows of u, and F on them.
    u, z : (K, m) ndarray
        The point to project, and one near the projection.
    s : (K,) ndarray or None
        The row that enters as it is, None where there is none.
    radius : float
    level : (K,) ndarray
        The multiplier, nearly.

    Returns
    -------
    z : (K, m) ndarray
    level : (K,) ndarray
    found : (K,) bool ndarray
    """
    low = np.concatenate([np.broadcast_to(f.low, (len(u), f.low.shape[1])) for _, f in functions], axis=1)
    bounded, sloped = np.isfinite(low).any(), s is not None
    found, slope, curvature = np.zeros(len(u), dtype=bool), np.empty_like(u), np.empty_like(u)
    with np.errstate(all="ignore"):
        for _ in range(ROUNDS):
            excess = s - level - radius if sloped else -radius
            for here, f in functions:
                value, slope[:, here], curvature[:, here] = f.expansion(z[:, here])
                excess = excess + value
            curvature *= level[:, None]
            curvature += 1.0
            soft = slope / curvature
            wrong = level[:, None] * slope
            wrong += z
            wrong -= u
            fall = np.einsum("ij,ij->i", soft, slope) + sloped
            change = (excess - np.einsum("ij,ij->i", soft, wrong)) / fall
            wrong /= curvature
            soft *= change[:, None]
            soft += wrong
            new, level = z - soft, level + change
            if bounded:
                new = np.where(new > low, new, low + 0.1 * (z - low))
                soft = z - new
            move, size = np.einsum("ij,ij->i", soft, soft), np.einsum("ij,ij->i", new, new)
            found |= (move <= CLOSE**2 * (1.0 + size)) & (np.abs(change) <= CLOSE * (1.0 + level))
            z = new
            if found.all() or not np.isfinite(level).any():
                break
        found &= (level > 0) & np.isfinite(z).all(axis=1)
    return z, level, found
