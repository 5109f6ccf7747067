"""Proximal maps of blocks of coordinates, batched over strata.

Each block minimises g(z) + qᵀz + ½ Σ Q z² + ‖z − v‖²/(2t) over its coordinates. Linear and diagonal quadratic
parts are folded into the point and the step: v' = (v − tq)/(1 + tQ), t' = t/(1 + tQ) (Parikh and Boyd 2014, §2.2).
"""

import numpy as np


def folded(v, t, q, Q):
    """Point and steps with the linear and diagonal quadratic parts folded in."""
    if not np.any(Q):
        return (v - t * q if np.any(q) else v), t
    shrink = 1.0 / (1.0 + t * Q)
    return (v - t * q) * shrink, t * shrink


class SoftBlock:
    """λ|z − c| on each coordinate, between bounds: soft thresholding, then clipping.

    Clipping after the prox is exact for convex functions of one number.
    """

    kind = "closed form"

    def __init__(self, columns, q, Q, weight, centre, low, high):
        self.columns, self.q, self.Q = columns, q, Q
        self.weight, self.centre, self.low, self.high = weight, centre, low, high
        self._centred, self._bounded = bool(np.any(centre)), bool(np.isfinite(low).any() or np.isfinite(high).any())

    def __call__(self, v, t):
        v, t = folded(v, t, self.q, self.Q)
        threshold = t * self.weight
        if self._centred:
            v = v - self.centre
        z = v - np.minimum(np.maximum(v, -threshold), threshold)
        if self._centred:
            z += self.centre
        return np.clip(z, self.low, self.high) if self._bounded else z


class NewtonBlock:
    """Any sum of functions of one coordinate each, between bounds: safeguarded Newton to rounding.

    Parameters
    ----------
    columns : (m,) int ndarray
    n : int
        Scalars in a stratum.
    tape : Tape
        The functions; they touch only these columns.
    q, Q : ndarray
        Linear and diagonal quadratic parts.
    low, high : (m,) ndarray
        Bounds, the domain's included.
    """

    kind = "Newton, to rounding"

    def __init__(self, columns, n, tape, q, Q, low, high):
        self.columns, self.n, self.tape, self.q, self.Q = columns, n, tape, q, Q
        self.low, self.high = low, high

    def _slopes(self, z):
        theta = np.zeros((len(z), self.n))
        theta[:, self.columns] = z
        _, gradient = self.tape.value_and_gradient(theta)
        ones = np.zeros_like(theta)
        ones[:, self.columns] = 1.0
        curvature = self.tape.hessian_operator(theta)(ones)
        return gradient[:, self.columns], curvature[:, self.columns]

    def __call__(self, v, t):
        with np.errstate(all="ignore"):
            return self._solve(v, np.broadcast_to(t, v.shape))

    def _solve(self, v, t):
        low, high = np.broadcast_to(self.low, v.shape), np.broadcast_to(self.high, v.shape)

        def residual(z):
            slope, curvature = self._slopes(z)
            value = slope + self.q + self.Q * z + (z - v) / t
            return np.where(np.isnan(value), 0.0, value), curvature + self.Q + 1.0 / t

        width = np.where(np.isfinite(high - low), high - low, 2.0 * np.maximum(1.0, np.sqrt(t)))
        inner = np.where(np.isfinite(low), low + 0.5 * width, np.where(np.isfinite(high), high - 0.5 * width, v))
        z = np.where((v > low) & (v < high), v, inner)
        f, slope = residual(z)
        # The residual grows at least by 1/t a unit, so the root lies within t |f| of any point.
        a = np.where(f > 0, np.maximum(low, z - t * f), z)
        b = np.where(f < 0, np.minimum(high, z - t * f), z)
        low_end, high_end = (a == low) & np.isfinite(low), (b == high) & np.isfinite(high)
        at_low = (f > 0) & low_end & (residual(np.where(low_end, low, z))[0] >= 0)
        at_high = (f < 0) & high_end & (residual(np.where(high_end, high, z))[0] <= 0)
        done = at_low | at_high | (f == 0)
        z = np.where(at_low, low, np.where(at_high, high, z))
        last = np.full(v.shape, np.inf)
        for iteration in range(200):
            trial = z - f / slope
            # Newton steps must at least halve, or the bracket is halved instead (rtsafe, Press et al. 2007, §9.4).
            inside = (trial > a) & (trial < b) & (np.abs(trial - z) <= 0.5 * last)
            # Where a slope overflowed, one end of the bracket is still infinite: go there in doubling steps.
            far = np.where(np.isinf(a), b, a) + np.where(np.isinf(a), -1.0, 1.0) * 2.0 ** min(iteration, 1000)
            middle = np.where(np.isfinite(b - a), 0.5 * a + 0.5 * b, far)
            new = np.where(done, z, np.where(inside, trial, middle))
            last = np.abs(new - z)
            done |= last <= 4e-16 * np.abs(new)
            z = new
            if done.all():
                break
            f, slope = residual(z)
            a, b = np.where(f < 0, z, a), np.where(f > 0, z, b)
            done |= (f == 0) | (np.isfinite(b - a) & (b - a <= 2e-16 * np.maximum(np.abs(a), np.abs(b))))
        return z


class GroupBlock:
    """weight · ‖z + shift‖₂ of groups of coordinates, with an l1 part or z >= 0: shrink the group as a whole.

    With l1: soft thresholding first, then shrinking (exact; sparse-group lasso). With z >= 0: clipping first.
    """

    kind = "closed form"

    def __init__(self, groups, q, Q, weight, shift, l1, nonneg):
        self.columns = groups.reshape(-1)
        self.shape, self.q, self.Q = groups.shape, q, Q
        self.weight, self.shift, self.l1, self.nonneg = weight, shift, l1, nonneg

    def __call__(self, v, t):
        v, t = folded(v, t, self.q, self.Q)
        v = v + self.shift
        if self.l1 is not None:
            v = np.sign(v) * np.maximum(np.abs(v) - t * self.l1, 0.0)
        if self.nonneg:
            v = np.maximum(v, 0.0)
        v = v.reshape(len(v), *self.shape)
        step = np.broadcast_to(t, (len(v), v.shape[1] * v.shape[2])).reshape(v.shape)[:, :, 0]
        norm = np.sqrt((v * v).sum(axis=2))
        scale = np.maximum(1.0 - step * self.weight / np.where(norm > 0, norm, np.inf), 0.0)
        return (v * scale[..., None]).reshape(len(v), -1) - self.shift


class SpectralBlock:
    """−weight · log det Z of a symmetric matrix, with Z in a semidefinite cone: acts on the eigenvalues."""

    kind = "closed form"

    def __init__(self, columns, d, q, Q, weight, cone):
        self.columns, self.d, self.q, self.Q, self.weight, self.cone = columns, d, q, Q, weight, cone

    def __call__(self, v, t):
        v, t = folded(v, t, self.q, self.Q)
        matrix = v.reshape(len(v), self.d, self.d)
        values, vectors = np.linalg.eigh(0.5 * (matrix + np.swapaxes(matrix, 1, 2)))
        step = np.broadcast_to(t, v.shape)[:, :1]
        if self.weight is not None:
            # The smaller root of a quadratic, written without cancellation for negative eigenvalues.
            root = np.sqrt(values**2 + 4.0 * step * self.weight)
            values = np.where(values > 0, 0.5 * (values + root), 2.0 * step * self.weight / (root - values + 1e-300))
        if self.cone == "PSD":
            values = np.maximum(values, 0.0)
        if self.cone == "NSD":
            values = np.minimum(values, 0.0)
        return np.matmul(vectors * values[:, None, :], np.swapaxes(vectors, 1, 2)).reshape(v.shape)


class QuadraticBlock:
    """½ zᵀHz with one matrix for all strata: solved in its eigenvectors, whatever the step."""

    kind = "closed form"

    def __init__(self, columns, q, H):
        self.columns, self.q = columns, q
        self.values, self.vectors = np.linalg.eigh(H)

    def __call__(self, v, t):
        rotated = (v - t * self.q) @ self.vectors
        return (rotated / (1.0 + t * self.values)) @ self.vectors.T


class AffineBlock:
    """Projection on {z : A z = b}."""

    kind = "closed form"

    def __init__(self, columns, q, A, b):
        self.columns, self.q = columns, q
        self.pseudoinverse = np.linalg.pinv(A)
        self.A, self.b = A, b

    def __call__(self, v, t):
        v = v - t * self.q
        return v - (v @ self.A.T - self.b) @ self.pseudoinverse.T


class BlockProx:
    """The prox of a sum over disjoint blocks of coordinates."""

    def __init__(self, blocks, transposed=None):
        self.blocks, self.transposed = blocks, transposed

    @property
    def kind(self):
        """How it is computed."""
        return ", ".join(sorted({block.kind for block in self.blocks})) or "closed form"

    def __call__(self, v, t):
        t = np.asarray(t, dtype=float)
        t = t.reshape(-1, 1) if t.ndim else t
        if self.transposed is not None:  # symmetric variables: the prox sees the symmetric part
            v = 0.5 * (v + v[:, self.transposed])
        if len(self.blocks) == 1 and np.array_equal(self.blocks[0].columns, np.arange(v.shape[1])):
            return self.blocks[0](v, t)
        z = np.empty_like(v)
        for block in self.blocks:
            z[:, block.columns] = block(v[:, block.columns], t)
        return z
