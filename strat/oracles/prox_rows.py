"""The prox of functions of many affine rows, f(z) + Σ φ_i(a_iᵀz), by a dual method with Newton steps.

A proximal augmented Lagrangian over the splitting s = A z: multipliers y of the rows are found by
min_z f(z) + ‖z − v‖²/(2t) + Σ (envelope of φ_i of width 1/σ)(a_iᵀz + y_i/σ), y ← σ(u − prox(u)), with σ growing. The inner
problem is strongly convex with a piecewise smooth gradient, which semismooth Newton solves in a few steps (Li, Sun and
Toh 2018, A highly efficient semismooth Newton augmented Lagrangian method for Lasso problems). Nothing is smoothed: at
the end A z agrees with s, at which y is a subgradient. Each stratum goes at its own pace.
"""

import numpy as np

from strat.errors import NoOracleError
from strat.oracles.line_search import Search
from strat.oracles.prox_active import from_nearby

#: Rounds between looks at how far the first phase has come, the movement at which Newton's method takes over (piecewise
#: linear rows alone are worth more of the cheap rounds), and in which part of the strata.
LOOK, NEAR, NEAR_PIECEWISE, ENOUGH = 5, 1e-3, 1e-4, 0.9
#: Largest distance between rows and their proxes at the end, and after so many steps that rounding must be what is left.
EXACT, PATIENT, ALMOST = 2e-12, 30, 1e-10
#: Newton steps after which what is left is guessed outright, where all is piecewise linear.
POLISHED = (25, 100)


class RowsProx:
    """argmin_z f(z) + Σ φ_i(a_iᵀz + offset_i) + ‖z − v‖²/(2t), all strata at once.

    Parameters
    ----------
    columns : (n,) int ndarray
        The coordinates that it acts on, where it is a block.
    terms : list of RowTerm
    smooth : Oracle or None
        f, with gradients and Hessian blocks (or products), finite everywhere.
    transposed : (n,) int ndarray or None
        Coordinates of the transposes of symmetric variables.
    box : (low, high) or None
        Bounds, which are among the terms too: here they hold exactly.
    rescue : callable or None
        Another prox, slower, for strata where the method does not come to the end.
    """

    kind = "dual method, to 1e-10"

    def __init__(self, columns, terms, smooth=None, transposed=None, box=None, rescue=None):
        self.columns, self.terms, self.smooth, self.transposed = columns, terms, smooth, transposed
        self.box, self.rescue = box, rescue

    def __call__(self, v, t):
        t = np.broadcast_to(np.asarray(t, dtype=float).reshape(-1), len(v))
        if self.transposed is not None:
            v = 0.5 * (v + v[:, self.transposed])
        z, open_ = self._solve(v, t, self.terms, self.smooth)
        if open_.any() and self.rescue is not None:
            z[open_] = self.rescue(v[open_], t[open_])
        elif open_.any():
            raise NoOracleError(
                f"the prox was not found in {int(open_.sum())} strata. Check that the constraints can "
                f"be satisfied and that the data have a reasonable scale."
            )
        return z if self.box is None else np.clip(z, *self.box)

    @property
    def _piecewise(self):
        """Whether all is quadratic or piecewise linear."""
        quadratic = self.smooth is None or hasattr(self.smooth, "H")
        return quadratic and all(hasattr(term.functions, "locate") for term in self.terms)

    def near(self, v, t, z):
        """The same where a point z near the solution is known."""
        if not self._piecewise:
            return self(v, t)
        t = np.broadcast_to(np.asarray(t, dtype=float).reshape(-1), len(v))
        v = v if self.transposed is None else 0.5 * (v + v[:, self.transposed])
        z, found = from_nearby(v, t, z, self.terms, self.smooth, self.transposed)
        z = z if found.all() else np.where(found[:, None], z, self(v, t))
        return z if self.box is None else np.clip(z, *self.box)

    def _solve(self, v, t, terms, smooth):
        """Solution, and the strata without one; where rows are strata, solved ones drop out on the way."""
        K = len(v)
        out, left = np.empty_like(v), np.arange(K)
        state = _State(v, t, terms, smooth, 100.0 / t, self.transposed)
        if smooth is None or hasattr(smooth, "H"):
            state.approach()
        elif state.droppable:
            state.approach(models=4)
        rounds = 400 if self.rescue is None else 120
        for round_ in range(rounds):
            done = state.step()
            if self._piecewise and round_ in (*POLISHED, rounds - 1) and not done.all():
                done = state.polish()
            if done.all():
                break
            if state.droppable and done.mean() > 0.2:
                out[left[done]] = state.z[done]
                left = left[~done]
                state = state.take(np.flatnonzero(~done))
        out[left] = state.z
        open_ = np.zeros(K, dtype=bool)
        open_[left] = ~state.done
        return out, open_


class _State:
    """One stratum after the other in numbers, all at once in arrays: z, multipliers and penalties."""

    def __init__(self, v, t, terms, smooth, sigma, transposed):
        self.v, self.t, self.terms, self.smooth, self.sigma, self.transposed = (
            v,
            t,
            terms,
            smooth,
            sigma,
            transposed,
        )
        #: Whether some strata can go on without the others.
        self.droppable = all(term.segments is None for term in terms) and (
            smooth is None or hasattr(smooth, "take")
        )
        self.z, self.done = v.copy(), np.zeros(len(v), dtype=bool)
        self.top = sigma * 1e7
        self.images = [term.design.matvec(self.z) + term.offset for term in terms]
        self.y = [np.zeros_like(u) for u in self.images]
        self.steps = 0
        self.s = [None] * len(terms)  # proxes of the rows: near to what they are next
        self.size = 1.0 + np.abs(v).max(axis=1, initial=0.0)
        self.last, self.before = np.full(len(v), np.inf), np.full(len(v), np.inf)

    def take(self, strata):
        """The same for some strata."""
        out = object.__new__(_State)
        out.__dict__.update(self.__dict__)
        out.terms = [term.take(strata) for term in self.terms]
        for name in ("v", "t", "sigma", "z", "done", "top", "size", "last", "before"):
            setattr(out, name, getattr(self, name)[strata])
        out.images, out.y = [u[strata] for u in self.images], [y[strata] for y in self.y]
        out.s = [None if s is None else s[strata] for s in self.s]
        if self.smooth is not None:
            out.smooth = self.smooth.take(strata)
        return out

    def polish(self):
        """Find the solution in the strata left from the point there, where all is piecewise; return what is done."""
        z, found = from_nearby(self.v, self.t, self.z, self.terms, self.smooth, self.transposed)
        found &= ~self.done
        self.z[found], self.done[found] = z[found], True
        return self.done

    def approach(self, rounds=80, models=1):
        """Bring z and the multipliers near the end by the alternating direction method, with one factorisation.

        f stands for its quadratic model at z, which is renewed ``models`` − 1 times on the way.
        """
        penalty = 5.0 / self.t
        sigma = [term.penalties(penalty) for term in self.terms]
        s = [
            term.functions.point(u, 1.0 / r)
            for term, u, r in zip(self.terms, self.images, sigma, strict=True)
        ]
        start = self.z, list(self.y)
        with np.errstate(all="ignore"):
            for _ in range(models):
                self._alternate(rounds // models, sigma, s)
        if not np.isfinite(self.z).all():
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

    def _curvature(self, parts):
        """Blocks of the Hessian of f, the proximal term and the terms' parts."""
        n = self.v.shape[1]
        hessian = np.zeros((len(self.v), n, n)) if self.smooth is None else _blocks(self.smooth, self.z)
        for part in parts:
            hessian = hessian + part
        if self.transposed is not None:
            p = self.transposed
            hessian = 0.25 * (hessian + hessian[:, p] + hessian[:, :, p] + hessian[:, p][:, :, p])
        return hessian + np.eye(n) / self.t[:, None, None]

    def _rows(self, images):
        """Of each term: prox, its slope, and the new multipliers."""
        found = []
        for i, (term, u, y) in enumerate(zip(self.terms, images, self.y, strict=True)):
            sigma = term.penalties(self.sigma)
            moved = u + y / sigma
            self.s[i], moves = term.functions.prox(moved, 1.0 / sigma, self.s[i])
            found.append((self.s[i], moves, sigma * (moved - self.s[i])))
        return found

    def _own(self, z):
        """Gradient of f and the proximal term."""
        gradient = (z - self.v) / self.t[:, None]
        return gradient if self.smooth is None else gradient + self.smooth.value_and_gradient(z)[1]

    def _project(self, gradient):
        return gradient if self.transposed is None else 0.5 * (gradient + gradient[:, self.transposed])

    def step(self):
        """A Newton step where the inner problem is open, new multipliers where it is solved."""
        rows = self._rows(self.images)
        gradient = self._own(self.z)
        for term, (_, _, y) in zip(self.terms, rows, strict=True):
            gradient = gradient + term.design.rmatvec(y)
        gradient = self._project(gradient)
        error = self.t * np.abs(gradient).max(axis=1, initial=0.0)
        apart, noise = np.zeros(len(error)), np.zeros(len(error))
        for term, u, (s, _, _) in zip(self.terms, self.images, rows, strict=True):
            apart = np.maximum(apart, term.largest(u - s))
            noise = np.maximum(noise, self.sigma * self.t * term.largest(u))
        stuck = (error >= 0.5 * self.last) & (error <= 1e-10 * self.size + 1e-14 * noise)
        solved = (error <= np.maximum(1e-13 * self.size, 0.1 * apart)) | stuck
        self.last = error
        self.done |= solved & (apart <= (EXACT if self.steps < PATIENT else ALMOST) * self.size)
        self.steps += 1
        if self.done.all():
            return self.done
        outer = solved & ~self.done
        if outer.any():
            for term, old, (_, _, y) in zip(self.terms, self.y, rows, strict=True):
                changed = term.on_rows(outer)
                old[...] = np.where(changed, y, old)
            # A larger penalty costs digits: it grows only where the multipliers do not settle fast enough.
            slow = outer & (apart > 0.02 * self.before)
            self.sigma = np.where(slow, np.minimum(10.0 * self.sigma, self.top), self.sigma)
            self.before = np.where(outer, apart, self.before)
            self.last[outer] = np.inf
        if (~solved & ~self.done).any():
            self._newton(~solved & ~self.done, rows, gradient)
        return self.done

    def _newton(self, active, rows, gradient):
        if self.droppable and active.mean() < 0.8:
            keep = np.flatnonzero(active)
            part = self.take(keep)
            part._newton(active[keep], [tuple(a[keep] for a in row) for row in rows], gradient[keep])
            self.z[keep] = part.z
        else:
            self._move(active, rows, np.where(active[:, None], gradient, 0.0))
        self.images = [term.design.matvec(self.z) + term.offset for term in self.terms]

    def _move(self, active, rows, gradient):
        sigma = np.where(active, self.sigma, 0.0)
        hessian = self._curvature(
            term.curvature(s, moves, sigma) for term, (s, moves, _) in zip(self.terms, rows, strict=True)
        )
        d = -np.linalg.solve(hessian, gradient[..., None])[..., 0]
        along = [term.design.matvec(d) for term in self.terms]
        length = self._length(d, along, (gradient * d).sum(axis=1), active)
        self.z = self.z + length[:, None] * d

    def _length(self, d, along, start, active):
        """Step lengths at which the slope along d is at most 0.3 times as steep as at the start (convex: it rises)."""
        length, state, own = np.where(active, 1.0, 0.0), self, np.arange(len(d))
        search = Search(start, length.copy(), active, self._noise(along))
        for round_ in range(40):
            slope = state._slope(search.trial, d[own], [a[own] for a in along] if self.droppable else along)
            pending = search.update(slope, round_)
            length[own] = search.trial
            if not pending.any():
                break
            if self.droppable and pending.mean() < 0.6:
                keep = np.flatnonzero(pending)
                state, own, search = state.take(keep), own[keep], search.take(keep)
        return length

    def _noise(self, along):
        """Rounding errors of the slopes along rows' directions."""
        noise = 0.0
        for term, u, y, a in zip(self.terms, self.images, self.y, along, strict=True):
            noise = noise + term.sums((term.penalties(self.sigma) * np.abs(u) + np.abs(y)) * np.abs(a))
        return 4e-16 * noise

    def _slope(self, length, d, along):
        """Derivative of the inner objective along d."""
        images = [
            u + term.on_rows(length) * a for term, u, a in zip(self.terms, self.images, along, strict=True)
        ]
        slope = (self._own(self.z + length[:, None] * d) * d).sum(axis=1)
        for term, u, y, a, near in zip(self.terms, images, self.y, along, self.s, strict=True):
            sigma = term.penalties(self.sigma)
            moved = u + y / sigma
            slope = slope + term.sums(sigma * (moved - term.functions.point(moved, 1.0 / sigma, near)) * a)
        return slope


def _blocks(oracle, z):
    """Blocks of the Hessian."""
    if oracle.has("hessian"):
        return oracle.hessian(z)
    operator, eye = oracle.hessian_operator(z), np.eye(z.shape[1])
    return np.stack([operator(np.broadcast_to(e, z.shape)) for e in eye], axis=2)
