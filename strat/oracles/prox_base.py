"""Proximal maps of blocks of coordinates, batched over strata: sums over disjoint blocks, single coordinates, quadratics.

Each block minimises g(z) + qᵀz + ½ Σ Q z² + ‖z − v‖²/(2t) over its coordinates. Linear and diagonal quadratic
parts are folded into the point and the step: v' = (v − tq)/(1 + tQ), t' = t/(1 + tQ) (Parikh and Boyd 2014, §2.2).
"""

from functools import cached_property

import numpy as np

from strat.oracles.base import symmetric


def folded(v, t, q, Q):
    """Point and step with the linear and diagonal quadratic parts folded in; a part that is zero may be None."""
    if q is not None:
        v = v - t * q
    if Q is None:
        return v, t
    shrink = 1.0 / (1.0 + t * Q)
    return v * shrink, t * shrink


def present(part):
    """An array, or None where it is zero."""
    return part if np.any(part) else None


class Grouped:
    """A block of G groups of L coordinates each, all treated alike.

    Blocks with equal ``signature`` are joined, so that a prox of many small groups is one call. ``axes`` maps the
    name of each array with an entry (or row) per group to the axis that counts the groups.
    """

    kind = "closed form"
    axes: dict = {}
    ties = property(lambda self: self.groups.tolist())  # coordinates that take the same step, by group
    columns = property(lambda self: self.groups.reshape(-1))  # coordinates of all groups, one after the other

    def _fold(self, v, t):
        """v by groups and t, with the linear and quadratic parts folded in."""
        return folded(self._by_group(v), self._steps_by_group(t), present(self.q), present(self.Q))

    def _simple(self, z, t):
        """The prox of absolute values and intervals, by groups, where there are any."""
        if self.l1 is not None:
            z = z - np.clip(z, -t * self.l1, t * self.l1)
        return z if self.low is None else np.clip(z, self.low, self.high)

    def _by_group(self, values):
        return values.reshape(len(values), *self.groups.shape)

    def _steps_by_group(self, t):
        """A number as it is, or steps (K, 1 or G L) per stratum or per coordinate, as (K, 1, 1) or (K, G, L)."""
        if not np.ndim(t):
            return t
        return t[:, :, None] if t.shape[1] == 1 else self._by_group(t)

    def join(self, others):
        """Take in the groups of other blocks of the same signature."""
        for name, axis in self.axes.items():
            parts = [getattr(block, name) for block in (self, *others)]
            if parts[0] is None:
                continue
            if axis == 1:
                rows = max(len(p) for p in parts)
                parts = [np.broadcast_to(p, (rows, *p.shape[1:])) for p in parts]
            setattr(self, name, np.concatenate(parts, axis=axis))
        return self


def joined(blocks):
    """Join the blocks with equal signatures."""
    alike = {}
    for block in blocks:
        alike.setdefault(getattr(block, "signature", block), []).append(block)
    return [first.join(rest) if rest else first for first, *rest in alike.values()]


class BlockProx:
    """The prox of weight × a sum over disjoint blocks of coordinates, at unit · z.

    The step t is a number, one for each stratum, or (K or 1, n), the same for the coordinates that `ties` lists together.
    """

    kind = property(lambda self: ", ".join(sorted({block.kind for block in self.blocks})) or "closed form")

    def __init__(self, blocks, transposed=None, weight=1.0, unit=1.0):
        self.blocks, self.transposed, self.weight, self.unit = joined(blocks), transposed, weight, unit
        self.places = [block.columns for block in self.blocks]  # slices where the columns are contiguous
        for k, c in enumerate(self.places):
            if np.array_equal(c, np.arange(c[0], c[-1] + 1)):
                self.places[k] = slice(c[0], c[-1] + 1)

    def rescaled(self, weight, unit):
        """The prox of weight × the function at unit · z, where tied coordinates have equal units."""
        return BlockProx(self.blocks, self.transposed, self.weight * weight, self.unit * unit)

    @cached_property
    def diagonal(self):
        """Diagonal of the Hessian, (1 or K, n), where this is a quadratic of each coordinate; None where it is not."""
        parts = [getattr(block, "diagonal", None) for block in self.blocks]
        if self.transposed is not None or any(part is None for part in parts):
            return None
        out = np.zeros((max(map(len, parts), default=1), sum(len(block.columns) for block in self.blocks)))
        for block, part in zip(self.blocks, parts, strict=True):
            out[:, block.columns] = part
        return self.weight * self.unit**2 * out

    def ties(self, n):
        """Lists of coordinates that take the same step; each of the n coordinates is in one list."""
        groups, p = [group for block in self.blocks for group in block.ties], self.transposed
        if p is not None and any(p[c] not in group for group in groups for c in group):
            return [list(range(n))]
        return groups

    def __call__(self, v, t):
        # This is the prox in y = unit · z with the step weight × unit² × t for every coordinate.
        t = np.asarray(t, dtype=float)
        t = t.reshape(-1, 1) if t.ndim == 1 or np.ndim(self.unit) > t.ndim else t
        t, v = t * (self.weight * self.unit**2), symmetric(self.unit * v, self.transposed)
        z = np.empty_like(v)
        for block, place in zip(self.blocks, self.places, strict=True):
            z[:, place] = block(v[:, place], t[:, place] if t.ndim and t.shape[1] > 1 else t)
        return symmetric(z, self.transposed) / self.unit  # so that z is exactly symmetric


ORDER = np.int64(2**63 - 1)  # mask of the bits that order floating-point numbers of one sign


class SeparableBlock:
    """A convex function of each coordinate, with linear and diagonal quadratic parts q and Q, between bounds.

    Clipping the prox to the bounds is exact for convex functions of one number. `own` are attributes of the function, which
    subclasses describe.
    """

    kind, ties = "closed form", property(lambda self: [[c] for c in self.columns])

    def __init__(self, columns, q, Q, low, high, **own):
        self.columns, self.q, self.Q, self.low, self.high = columns, present(q), present(Q), low, high
        vars(self).update(own)
        self.bounded = bool(np.isfinite(low).any() or np.isfinite(high).any())

    def __call__(self, v, t):
        z = self.prox(*folded(v, t, self.q, self.Q))
        return np.clip(z, self.low, self.high) if self.bounded else z


class ScalarBlock(SeparableBlock):
    """`weight` × an elementwise function of `scale` · z + `offset` and of data, `others`, whose `rule` knows its prox."""

    def prox(self, v, t):
        with np.errstate(all="ignore"):
            step = t * self.weight * self.scale**2
            u = self.rule.prox(v * self.scale + self.offset, step, *self.others)
            return (u - self.offset) / self.scale


class SoftBlock(SeparableBlock):
    """`weight` × |z − `centre`| of each coordinate, the centre None where it is 0: soft thresholding."""

    @property
    def diagonal(self):
        if self.bounded or np.any(self.weight):
            return None
        return np.zeros((1, len(self.columns))) if self.Q is None else self.Q

    def prox(self, v, t):
        threshold = t * self.weight
        far = v if self.centre is None else v - self.centre
        z = far - np.minimum(np.maximum(far, -threshold), threshold)
        return z if self.centre is None else z + self.centre


class NewtonBlock(SeparableBlock):
    """Any sum of smooth functions of one coordinate each, given by a `tape`, by safeguarded Newton steps to rounding.

    `low` and `high`, (1, m), include the bounds of the domain.
    """

    kind = "Newton, to rounding"

    def prox(self, v, t):
        t = np.broadcast_to(t, v.shape)

        def residual(z):
            theta, ones = np.zeros((2, len(z), self.tape.n))
            theta[:, self.columns], ones[:, self.columns] = z, 1.0
            slope = self.tape.value_and_gradient(theta)[1][:, self.columns]
            curvature = self.tape.hessian_operator(theta)(ones)[:, self.columns]
            return slope + (z - v) / t, curvature + 1.0 / t

        low, high = (np.broadcast_to(end, v.shape) for end in (self.low, self.high))
        with np.errstate(all="ignore"):
            return _root(residual, v, t, low, high)


def _root(residual, v, t, low, high):
    """z in [low, high] nearest to the root of an increasing function of each entry that has (z − v)/t as a term.

    ``residual(z)`` gives the values and slopes. A Newton step must be at most half as long as the step before; otherwise the
    bracket is bisected (rtsafe, Press et al. 2007, §9.4), in the order of the floating-point numbers between its ends, as the
    distance of the root from the end of a domain may have any order of magnitude.
    """
    at_low, at_high = residual(low)[0] >= 0, residual(high)[0] <= 0
    z = np.where((v > low) & (v < high), v, _middle(low, high))
    f, slope = residual(z)
    # The residual grows at least by 1/t a unit, so the root lies within t |f| of any point.
    a = np.where(f > 0, np.maximum(low, z - t * f), z)
    b = np.where(f < 0, np.minimum(high, z - t * f), z)
    done, last = at_low | at_high, np.full(v.shape, np.inf)
    for _ in range(200):
        # Done where f or z is exact to rounding. The first point's slope is not used: near a pole, steps are short as well.
        known = np.where(np.isfinite(slope * last), slope, 0.0)
        done |= np.abs(f) <= 4e-16 * np.maximum((np.abs(z) + np.abs(v)) / t, np.abs(z) * known)
        trial = z - f / slope
        inside = (trial > a) & (trial < b) & (np.abs(trial - z) <= 0.5 * last)
        new = np.where(done, z, np.where(inside, trial, _middle(a, b)))
        last, z = np.abs(new - z), new
        done |= last <= 4e-16 * np.abs(z)
        if done.all():
            break
        f, slope = residual(z)
        a, b = np.where(f < 0, z, a), np.where(f > 0, z, b)
    return np.where(at_low, low, np.where(at_high, high, z))


def _middle(a, b):
    """The number halfway between a and b in the order of all floating-point numbers."""
    a, b = (np.where(i < 0, -(i & ORDER), i) for i in (x.astype(float).view(np.int64) for x in (a, b)))
    middle = a // 2 + b // 2
    return np.where(middle < 0, -middle | ~ORDER, middle).view(float)


class QuadraticProx:
    """argmin_z gᵀz + ½ zᵀHz + ‖z − v‖²/(2t) with one g (K, n) and one symmetric H (K or 1, n, n) for each stratum.

    `transposed` (n,) has the coordinates of the transposes of symmetric variables, or is None.
    """

    kind = "closed form"
    _factors = cached_property(lambda self: np.linalg.eigh(symmetric(self.H, self.transposed)))

    def __init__(self, g, H, transposed=None):
        self.g, self.H, self.transposed = g, H, transposed

    @classmethod
    def of(cls, quadratics, transposed):
        """The prox of a sum of quadratics."""
        zero = np.zeros((max(len(part.g) for part in quadratics), quadratics[0].n))
        g = sum(part.value_and_gradient(zero)[1] for part in quadratics)
        return cls(g, sum(part.hessian(zero) for part in quadratics), transposed)

    def rescaled(self, weight, unit):
        H = weight * np.multiply.outer(unit, unit) * self.H
        return QuadraticProx(weight * unit * self.g, H, self.transposed)

    def __call__(self, v, t):
        v = symmetric(v, self.transposed)
        t = np.broadcast_to(np.asarray(t, dtype=float).reshape(-1), len(v))[:, None]
        gradient = symmetric(self.g + np.matmul(self.H, v[..., None])[..., 0], self.transposed)
        values, vectors = self._factors
        rotated = np.matmul(np.swapaxes(vectors, 1, 2), gradient[..., None])[..., 0]
        rotated = rotated * (t / (1.0 + t * np.maximum(values, 0.0)))
        return v - np.matmul(vectors, rotated[..., None])[..., 0]
