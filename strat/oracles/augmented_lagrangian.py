"""The proximal augmented Lagrangian of `RowsProx`: points, multipliers and penalties of all strata.

The alternating direction method brings the strata near their ends in cheap rounds, all with one factorisation. Then
Newton steps on the augmented Lagrangian and new multipliers take turns. Each stratum goes at its own pace, but all that
have the same to do do it together, and what has not changed is not computed again.
"""

import numpy as np

from strat.oracles.line_search import Search
from strat.oracles.prox_active import from_nearby

#: Rounds between looks at how far the first phase has come, the movement at which Newton's method takes over (piecewise
#: linear rows alone are worth more of the cheap rounds), in which part of the strata, and most rounds.
LOOK, NEAR, NEAR_PIECEWISE, ENOUGH, ROUNDS = 5, 1e-5, 1e-6, 0.6, 60
#: Penalties at first and at most, in multiples of 1/t: a larger one means fewer new multipliers, and costs digits.
PENALTY, LARGEST = 1e3, 1e9
#: Largest distance between rows and their proxes at the end, and after so many steps that rounding must be what is left.
EXACT, PATIENT, ALMOST = 2e-12, 30, 1e-10
#: Parts of the strata so large that all are treated.
MOST = 0.8

_OWN = ("gradient", "error", "apart", "size")  # of each stratum, found by a look
_ROWS = ("s", "moves", "target")  # of each term's rows


def _solved(hessian, right):
    """The solutions of the systems (K, n, n), with a ridge of rounding size where curvature dwarfs the distance's."""
    try:
        return np.linalg.solve(hessian, right[..., None])[..., 0]
    except np.linalg.LinAlgError:
        ridge = 1e-15 * np.trace(hessian, axis1=1, axis2=2)
        return np.linalg.solve(hessian + ridge[:, None, None] * np.eye(hessian.shape[1]), right[..., None])[
            ..., 0
        ]


class AugmentedLagrangian:
    """All strata's state.

    Attributes
    ----------
    z : (K, n) ndarray
        The points.
    done : (K,) bool ndarray
    images, y : list of (R, m) ndarray
        Rows A z + offset of each term, and their multipliers.
    s, moves, target : list of ndarray
        The rows' proxes at images + y / penalty, their slopes, and the multipliers that they stand for.
    gradient : (K, n) ndarray
        Of the augmented Lagrangian.
    """

    def __init__(self, v, t, terms, smooth, transposed):
        self.v, self.t, self.terms, self.smooth, self.transposed = v, t, terms, smooth, transposed
        #: Whether some strata can go on without the others.
        self.droppable = all(term.segments is None for term in terms) and (
            smooth is None or hasattr(smooth, "take")
        )
        K = len(v)
        self.z, self.sigma, self.top = v.copy(), PENALTY / t, LARGEST / t
        self.done, self.stale, self.steps = np.zeros(K, dtype=bool), np.ones(K, dtype=bool), 0
        self.images = [term.design.matvec(self.z) + term.offset for term in terms]
        self.y = [np.zeros_like(u) for u in self.images]
        self.s, self.moves, self.target = ([None] * len(terms) for _ in range(3))
        self.gradient, self.error, self.apart = np.zeros_like(v), np.zeros(K), np.zeros(K)
        self.size = 1.0 + np.abs(v).max(axis=1, initial=0.0)
        self.last, self.before = np.full(K, np.inf), np.full(K, np.inf)

    def take(self, strata):
        """The same for some strata."""
        out = object.__new__(AugmentedLagrangian)
        out.__dict__.update(self.__dict__)
        out.terms = [term.take(strata) for term in self.terms]
        for name in ("v", "t", "sigma", "z", "done", "stale", "top", "last", "before", *_OWN):
            setattr(out, name, getattr(self, name)[strata])
        for name in ("images", "y", *_ROWS):
            setattr(out, name, [a if a is None else a[strata] for a in getattr(self, name)])
        if self.smooth is not None:
            out.smooth = self.smooth.take(strata)
        return out

    def _put(self, strata, part, names):
        """Copy what was found for some strata."""
        for name in names:
            mine, found = getattr(self, name), getattr(part, name)
            if not isinstance(mine, list):
                mine[strata] = found
                continue
            for i, values in enumerate(found):
                if mine[i] is None:
                    mine[i] = np.zeros((len(self.v), *values.shape[1:]), dtype=values.dtype)
                mine[i][strata] = values

    def approach(self, models=1):
        """Bring z and the multipliers near the end by the alternating direction method, with one factorisation.

        f stands for its quadratic model at z, which is renewed ``models`` − 1 times on the way.
        """
        penalty, modulus = 5.0 / self.t, 1.0 / self.t
        if self.smooth is not None:
            mean = np.trace(_blocks(self.smooth, self.z), axis1=1, axis2=2) / self.z.shape[1]
            with np.errstate(all="ignore"):  # between the smallest curvature and the largest
                penalty = np.where(np.isfinite(mean), penalty * np.sqrt((modulus + mean) / modulus), penalty)
        sigma = [term.penalties(penalty) for term in self.terms]
        s = [
            term.functions.point(u, 1.0 / r)
            for term, u, r in zip(self.terms, self.images, sigma, strict=True)
        ]
        start = self.z, list(self.y)
        with np.errstate(all="ignore"):
            for _ in range(models):
                self._alternate(ROUNDS // models, sigma, s)
        if np.isfinite(self.z).all():
            self.s = s
        else:
            self.z, self.y = start
        self.images = [term.design.matvec(self.z) + term.offset for term in self.terms]

    def _alternate(self, rounds, sigma, s, relaxation=1.8):
        """Rounds of the method (Boyd and others 2011, Distributed optimization and statistical learning via ADMM)."""
        H = getattr(self.smooth, "H", None)
        same = self.smooth is None or (H is not None and len(H) == 1)
        alike = same and self.droppable and np.ptp(self.t) == 0
        one = self.take(np.array([0])) if alike else self
        hessian = one._curvature(
            [
                term.gram(np.broadcast_to(r[:1] if alike else r, u[:1].shape if alike else u.shape))
                for term, r, u in zip(self.terms, sigma, self.images, strict=True)
            ]
        )
        inverse, fixed = np.linalg.inv(hessian), self.v / self.t[:, None]
        if self.smooth is not None:
            own = _blocks(self.smooth, self.z)
            fixed = (
                fixed - self.smooth.value_and_gradient(self.z)[1] + np.matmul(own, self.z[..., None])[..., 0]
            )
        near = NEAR_PIECEWISE if all(hasattr(term.functions, "locate") for term in self.terms) else NEAR
        for round_ in range(rounds):
            right, moves, apart = fixed, 0.0, 0.0
            for term, r, part, y in zip(self.terms, sigma, s, self.y, strict=True):
                right = right + term.design.rmatvec(r * (part - term.offset) - y)
            right = self._project(right)
            self.z = right @ inverse[0] if len(inverse) == 1 else np.matmul(inverse, right[..., None])[..., 0]
            for i, (term, r) in enumerate(zip(self.terms, sigma, strict=True)):
                # Over-relaxed (§3.4.3 there).
                u, last = term.design.matvec(self.z) + term.offset, s[i]
                moved = relaxation * u + (1.0 - relaxation) * last + self.y[i] / r
                s[i] = term.functions.point(moved, 1.0 / r, last)
                self.y[i] = r * (moved - s[i])
                if round_ % LOOK == LOOK - 1:
                    moves = np.maximum(moves, term.largest(s[i] - last))
                    apart = np.maximum(apart, term.largest(u - s[i]))
            if round_ % LOOK == LOOK - 1 and np.mean(np.maximum(moves, apart) <= near * self.size) >= ENOUGH:
                break

    def _project(self, gradient):
        return gradient if self.transposed is None else 0.5 * (gradient + gradient[:, self.transposed])

    def _curvature(self, parts):
        """Blocks of the Hessian of f, the proximal term and the terms' parts."""
        n = self.v.shape[1]
        hessian = (
            np.zeros((len(self.v), n, n)) if self.smooth is None else np.array(_blocks(self.smooth, self.z))
        )
        for part in parts:
            hessian += part
        if self.transposed is not None:
            p = self.transposed
            hessian = 0.25 * (hessian + hessian[:, p] + hessian[:, :, p] + hessian[:, p][:, :, p])
        hessian.reshape(len(hessian), -1)[:, :: n + 1] += 1.0 / self.t[:, None]
        return hessian

    def _own(self, z):
        """Gradient of f and the proximal term."""
        gradient = (z - self.v) / self.t[:, None]
        return gradient if self.smooth is None else gradient + self.smooth.value_and_gradient(z)[1]

    def _look(self):
        """Proxes of the rows, the gradient, its size, and how far the rows are from their proxes."""
        gradient, apart = self._own(self.z), np.zeros(len(self.v))
        for i, (term, u, y) in enumerate(zip(self.terms, self.images, self.y, strict=True)):
            sigma = term.penalties(self.sigma)
            moved = u + y / sigma
            self.s[i], self.moves[i] = term.functions.prox(moved, 1.0 / sigma, self.s[i])
            self.target[i] = sigma * (moved - self.s[i])
            gradient = gradient + term.design.rmatvec(self.target[i])
            apart = np.maximum(apart, term.largest(u - self.s[i]))
        self.gradient, self.apart = self._project(gradient), apart
        self.error = self.t * np.abs(self.gradient).max(axis=1, initial=0.0)
        self.size = np.maximum(self.size, 1.0 + np.abs(self.z).max(axis=1, initial=0.0))

    def _refresh(self):
        """A look at the strata where something has changed."""
        some = np.flatnonzero(self.stale)
        if self.droppable and 0 < len(some) < MOST * len(self.stale):
            part = self.take(some)
            part._look()
            self._put(some, part, (*_OWN, *_ROWS))
        elif len(some):
            self._look()
        self.stale[:] = False

    def _solved(self):
        """Where z minimises the augmented Lagrangian, as far as it matters or can be told."""
        noise = np.zeros(len(self.v))
        for term, u in zip(self.terms, self.images, strict=True):
            noise = np.maximum(noise, self.sigma * self.t * term.largest(u))
        stuck = (self.error >= 0.5 * self.last) & (self.error <= 1e-10 * self.size + 1e-14 * noise)
        return (self.error <= np.maximum(1e-13 * self.size, 0.1 * self.apart)) | stuck

    def step(self):
        """New multipliers where the augmented Lagrangian is minimised, then a Newton step where it is not."""
        self._refresh()
        solved = self._solved()
        self.done |= solved & (self.apart <= (EXACT if self.steps < PATIENT else ALMOST) * self.size)
        self.steps += 1
        outer = solved & ~self.done
        if outer.any():
            for term, y, target in zip(self.terms, self.y, self.target, strict=True):
                y[...] = np.where(term.on_rows(outer), target, y)
            # A larger penalty costs digits: it grows only where the multipliers do not settle fast enough.
            slow = outer & (self.apart > 0.02 * self.before)
            self.sigma = np.where(slow, np.minimum(10.0 * self.sigma, self.top), self.sigma)
            self.before = np.where(outer, self.apart, self.before)
            self.last[outer] = np.inf
            self.stale |= outer
            self._refresh()
        active = ~self.done & ~self._solved()
        if self.droppable and 0 < active.sum() < MOST * len(active):
            keep = np.flatnonzero(active)
            part = self.take(keep)
            part._newton(active[keep])
            self._put(keep, part, ("z", "last", "stale", "images", *_OWN, *_ROWS))
        elif active.any():
            self._newton(active)
        return self.done

    def _newton(self, active):
        """A Newton step, shortened where it goes too far, and a look at where it leads."""
        self.last = np.where(active, self.error, self.last)
        sigma = np.where(active, self.sigma, 0.0)
        hessian = self._curvature(
            term.curvature(s, moves, sigma)
            for term, s, moves in zip(self.terms, self.s, self.moves, strict=True)
        )
        start = np.where(active[:, None], self.gradient, 0.0)
        d = -_solved(hessian, start)
        along = [term.design.matvec(d) for term in self.terms]
        noise, start = self._noise(along), (start * d).sum(axis=1)
        before = self.z, self.images, list(self.s)
        self._go(1.0, *before, d, along)
        self._look()
        slope = (self.gradient * d).sum(axis=1)
        search = Search(start, np.where(active, 1.0, 0.0), active, noise)
        pending = search.update(slope, 0)
        if not pending.any():
            return
        if not self.droppable:
            length = self._length(search, *before, d, along)
            self._go(length, *before, d, along)
            self._look()
            return
        keep = np.flatnonzero(pending)
        part, own = self.take(keep), [[a[keep] for a in part] for part in (*before[1:], along)]
        own = before[0][keep], own[0], own[1], d[keep], own[2]
        length = part._length(search.take(keep), *own)
        part._go(length, *own)
        part._look()
        self._put(keep, part, ("z", "images", *_OWN, *_ROWS))

    def _go(self, length, z, images, s, d, along):
        """Set the points z + length d and their rows."""
        length = np.broadcast_to(length, len(z))
        self.z, self.s = z + length[:, None] * d, list(s)
        self.images = [
            u + term.on_rows(length) * a for term, u, a in zip(self.terms, images, along, strict=True)
        ]

    def _length(self, search, z, images, s, d, along):
        """Step lengths at which the slope along d is at most 0.3 times as steep as at the start (convex: it rises)."""
        state, own, base = self, np.arange(len(d)), (z, images, s, d, along)
        length = search.trial.copy()
        for round_ in range(1, 40):
            state._go(search.trial, *base)
            pending = search.update(state._slope(base[3], base[4]), round_)
            length[own] = search.trial
            if not pending.any():
                break
            if self.droppable and pending.mean() < 0.6:
                keep = np.flatnonzero(pending)
                state, own, search = state.take(keep), own[keep], search.take(keep)
                base = (
                    base[0][keep],
                    *([a[keep] for a in part] for part in base[1:3]),
                    base[3][keep],
                    [a[keep] for a in base[4]],
                )
        return length

    def _noise(self, along):
        """Rounding errors of the slopes along rows' directions."""
        noise = 0.0
        for term, u, y, a in zip(self.terms, self.images, self.y, along, strict=True):
            noise = noise + term.sums((term.penalties(self.sigma) * np.abs(u) + np.abs(y)) * np.abs(a))
        return 4e-16 * noise

    def _slope(self, d, along):
        """Derivative of the augmented Lagrangian along d."""
        slope = (self._own(self.z) * d).sum(axis=1)
        for term, u, y, a, near in zip(self.terms, self.images, self.y, along, self.s, strict=True):
            sigma = term.penalties(self.sigma)
            moved = u + y / sigma
            slope = slope + term.sums(sigma * (moved - term.functions.point(moved, 1.0 / sigma, near)) * a)
        return slope

    def polish(self):
        """Find the solution in the strata left from the point there, where all is piecewise; return what is done."""
        with np.errstate(all="ignore"):  # a bad guess leads anywhere
            z, found = from_nearby(self.v, self.t, self.z, self.terms, self.smooth, self.transposed)
        found &= ~self.done
        self.z[found], self.done[found] = z[found], True
        return self.done


def _blocks(oracle, z):
    """Blocks of the Hessian."""
    if oracle.has("hessian"):
        return oracle.hessian(z)
    operator, eye = oracle.hessian_operator(z), np.eye(z.shape[1])
    return np.stack([operator(np.broadcast_to(e, z.shape)) for e in eye], axis=2)
