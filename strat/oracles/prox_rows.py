"""The prox of functions of many affine rows, f(z) + Σ φ_i(a_iᵀz), by a dual method with Newton steps.

A proximal augmented Lagrangian over the splitting s = A z: multipliers y of the rows are found by
min_z f(z) + ‖z − v‖²/(2t) + Σ (envelope of φ_i of width 1/σ)(a_iᵀz + y_i/σ), y ← σ(u − prox(u)), with σ growing. The inner
problem is strongly convex with a piecewise smooth gradient, which semismooth Newton solves in a few steps (Li, Sun and
Toh 2018, A highly efficient semismooth Newton augmented Lagrangian method for Lasso problems). Nothing is smoothed: at
the end A z agrees with s, at which y is a subgradient. Each stratum goes at its own pace.
"""

import numpy as np

from strat.errors import NoOracleError
from strat.oracles.augmented_lagrangian import AugmentedLagrangian
from strat.oracles.joined_rows import joined
from strat.oracles.prox_active import from_nearby

#: Newton steps after which the active pieces are guessed outright, where all is piecewise linear, and most steps.
POLISHED, STEPS = (20, 50), 200


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
    rescue : ConeProx or None
        Another prox, slower, for strata where the method does not come to the end.
    """

    kind = "dual method, to 1e-10"

    def __init__(self, columns, terms, smooth=None, transposed=None, box=None, rescue=None):
        self.columns, self.terms, self.smooth, self.transposed = columns, joined(terms), smooth, transposed
        self.box, self.rescue = box, rescue

    def __call__(self, v, t):
        t = np.broadcast_to(np.asarray(t, dtype=float).reshape(-1), len(v))
        if self.transposed is not None:
            v = 0.5 * (v + v[:, self.transposed])
        z, open_ = self._solve(v, t, self.terms, self.smooth)
        if open_.any() and self.rescue is not None:
            z[open_] = self.rescue.some(np.flatnonzero(open_), v[open_], t[open_])
        elif open_.any():
            raise NoOracleError(
                f"the prox was not found in {int(open_.sum())} strata. Check that the constraints can "
                f"be satisfied and that the data have a reasonable scale."
            )
        z = self._inside(z)
        return z if self.box is None else np.clip(z, *self.box)

    def _inside(self, z):
        """z, moved by the rounding that keeps rows of several coordinates on strata out of a domain that ends at 0."""
        for term in self.terms:
            low = getattr(term.functions, "low", None)
            if term.segments is not None or low is None or not np.isfinite(low).any():
                continue
            row = term.design.matvec(z) + term.offset
            lack = np.where(row < low, low - row, 0.0)
            if lack.any() and lack.max() <= 1e-9:
                z = z + term.design.rmatvec(2.0 * lack / term.norms**2)
        return z

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
        out, left, open_ = np.full_like(v, np.nan), np.arange(K), np.ones(K, dtype=bool)
        state = AugmentedLagrangian(v, t, terms, smooth, self.transposed)
        if smooth is None or hasattr(smooth, "H"):
            state.approach()
        elif state.droppable:
            state.approach(models=4)
        for round_ in range(STEPS):
            done = state.step()
            if self._piecewise and round_ in (*POLISHED, STEPS - 1) and not done.all():
                done = state.polish()
            if done.all():
                break
            lost = np.isnan(state.error)  # a prox of rows was not found
            if lost.all():
                break
            if state.droppable and (lost.any() or done.mean() > 0.2):
                out[left[done]], open_[left[done]] = state.z[done], False
                keep = ~(done | lost)
                left, state = left[keep], state.take(np.flatnonzero(keep))
                if not len(left):
                    break
        out[left], open_[left] = state.z, ~state.done
        return out, open_
