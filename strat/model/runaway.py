"""Directions in which a fit runs away: the objective keeps falling along them, so that it has no minimum.

A sum of convex functions f that are bounded below keeps falling from theta along d where none of them grows along d, however
far, and one of them falls at theta:

    ⟨∇f(z), d⟩ ≤ 0 for all f and z,    ⟨∇f(theta), d⟩ < 0 for some f

Here f are the losses of records, the regularizer and constraints of strata, and the Laplacian term, which is flat where d is
the same in strata that edges join. The inequalities are linear in d. A linear program holds the few that matter: it starts with
those of the regularizer along each single parameter, and adds those that its solution violates far out, until there are none.
"""

from contextlib import suppress

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from strat.oracles.base import hessian_blocks
from strat.oracles.clock import seconds_left
from strat.records.strata import Strata

#: Most numbers in the gradients of single records that are held at once.
MOST_NUMBERS = 2**25
#: A fit is suspect where some curvature of the loss is less than FLAT times the solver's tolerance (or LEAST) times that at
#: theta = 0: slopes and curvatures vanish together where a fit runs away.
FLAT, LEAST = 1000.0, 1e-6
#: Distances at which gradients are taken, in units in which mean gradients or curvatures of records are 1; the gradient at the
#: farthest distance where it is finite counts.
FAR = 10.0 ** np.array([6.0, 3.0, 1.5, 0.0, -3.0, -6.0, -9.0, -12.0])
#: Points at which slopes along a direction are compared: near a minimum, at most one in a row is below a TENTH and not 0.
ALONG, TENTH = 1.5 ** np.arange(-5, 24), 0.1
#: Sizes, relative to the usual ones, below which gradients of records are rounding error, and slopes along a direction are 0.
NOISE, STILL = 1e-13, 1e-11
#: Most products from which a Hessian that is not cheap is assembled.
MOST_PRODUCTS = 32
#: Moves by a prox, relative to the point, that count as rounding error: in general, and for the inequalities at the start.
ROUNDING, EXACT = 1e-12, 1e-6
#: Slopes along a direction, both of length 1, that are 0 up to the accuracy of the linear program.
ZERO = 1e-7
#: Options of the linear program.
ACCURATE = {f"{kind}_feasibility_tolerance": 1e-9 for kind in ("primal", "dual")}
#: Price of moving a parameter, so that only those move that must; most rows added per round for each unknown; most rounds.
PRICE, ROWS, ROUNDS = 1e-6, 20, 60
#: The objective is flat to first order at a minimum, so that doubling the parameters cannot lower it by this share.
FALL = 1e-3


def suspect_strata(problem, theta, w, tol):
    """Strata, a mask (K,), in which the curvature at theta has almost vanished; None where curvatures are not known."""
    loss, (K, n) = problem.loss, theta.shape
    if loss.quadratic:
        return np.zeros(K, dtype=bool)
    if not loss.has("hessian") and not (loss.has("hessian_operator") and n <= MOST_PRODUCTS):
        return None
    share, usual = FLAT * max(tol, LEAST), hessian_blocks(loss, np.zeros_like(theta))
    margin = hessian_blocks(loss, theta) - share * usual
    if not np.isfinite(margin).all():
        return None
    if _definite(margin, usual):  # as in most fits
        return np.zeros(K, dtype=bool)
    # Strata that edges join in all parameters are taken together, as the direction is the same in all of them.
    cell = np.unique(problem.laplacians(w).components, axis=0, return_inverse=True)[1].ravel()
    sums = sp.csr_array((np.ones(K), (cell, np.arange(K))))
    margin, usual = ((sums @ blocks.reshape(K, n * n)).reshape(-1, n, n) for blocks in (margin, usual))
    return np.array([not _definite(*block) for block in zip(margin, usual, strict=True)])[cell]


def _definite(matrices, usual):
    """Whether matrices are positive definite, apart from parameters with curvature 0 in the usual ones."""
    diagonal = np.einsum("...aa->...a", usual)
    ridge = np.where(diagonal > 0, 1e-9 * diagonal, 1.0)
    with suppress(np.linalg.LinAlgError):
        np.linalg.cholesky(matrices + ridge[..., None] * np.eye(diagonal.shape[-1]))
        return True
    return False


def runaway_direction(bound_model, problem, theta, w, suspects):
    """The direction (K, n) in which the parameters theta of suspect strata, a mask (K,), run away; 0 where they do not."""
    component, loss = problem.laplacians(w).components, problem.loss
    joined = np.isin(component, component[suspects]).any(axis=1)
    records, index = bound_model.records, bound_model.strata.index
    (some,) = np.nonzero(joined if bound_model.chunked else joined[index] & (records.weight > 0))
    # Losses without a gradient are piecewise linear or quadratic as a rule: these have a minimum wherever they are bounded
    # below (Frank and Wolfe 1956).
    costly = getattr(problem.regularizer.prox, "costly", False)
    few = seconds_left() > 0 and 0 < len(some) * problem.n <= MOST_NUMBERS
    if costly or not loss.has("value_and_gradient") or not few:
        return np.zeros_like(theta)
    if bound_model.chunked:  # a stratum's sum says as much as its records, but takes more rounds
        return _direction(problem, loss, np.arange(problem.K), theta, component)
    each, bind = Strata(range(len(some)), np.arange(len(some))), bound_model.base.loss_program.bind_records
    arrays = [array[some] for array in records.arrays]
    losses = bind(arrays, each, records.weight[some], bound_model.values)
    return _direction(problem, losses, index[some], theta, component)


@np.errstate(all="ignore")
def _direction(problem, losses, index, theta, component):
    """The direction, from `losses` of N records, each with parameters of its own, and the records' strata `index` (N,)."""
    (K, n), N = theta.shape, len(index)
    stratum = np.concatenate([index, np.arange(K), np.arange(K)])

    def gradients(z):
        """Gradients of records, and of strata's losses, regularizer and constraints, at z (K, n); NaN outside the domain."""
        parts = [losses.value_and_gradient(z[index]), problem.loss.value_and_gradient(z)]
        inside = [np.where(np.isfinite(value)[:, None], gradient, np.nan) for value, gradient in parts]
        return np.concatenate([*inside, pull(z)])

    def pull(z, share=ROUNDING):  # subgradients (K, n) of the regularizer and constraints, at the prox of z
        moved = z - problem.prox(z, 1.0)
        return np.where(np.abs(moved) <= share * np.abs(z), 0.0, moved)

    here, before = gradients(theta), gradients(np.zeros_like(theta))
    inside, before = np.isfinite(before).all(), np.nan_to_num(before, posinf=0.0, neginf=0.0)
    size = np.mean(here[:N] ** 2 + before[:N] ** 2, axis=0)
    if problem.loss.has("hessian_operator"):
        curvature = np.einsum("kaa->a", hessian_blocks(problem.loss, np.zeros_like(theta))) / N
        size += np.where(np.isfinite(curvature), np.maximum(curvature, 0.0), 0.0)
    unit = np.where(size > 0, np.sqrt(size), 1.0)
    usual = np.maximum(np.linalg.norm(here / unit, axis=1), np.linalg.norm(before / unit, axis=1))

    def rows(gradient, usual=usual):
        """Inequalities row · step <= 0 for steps d * unit, with rows of length 1 or 0."""
        largest = np.abs(gradient / unit).max(axis=1)
        row = gradient / unit / np.where(largest > 0, largest, 1.0)[:, None]
        length = np.linalg.norm(row, axis=1)
        keep = (largest * length > NOISE * usual)[:, None]
        return np.where(keep, row / np.where(length > 0, length, 1.0)[:, None], 0.0)

    falling, taken = (rows(here) + rows(before))[:N], [(np.zeros((0, n)), index[:0])]
    price = np.bincount(component[index].ravel(), falling.ravel(), component.max() + 1)
    # Otherwise each round would add only one inequality of a regularizer. Joined strata share its inequalities.
    some = index[np.unique(component[index], axis=0, return_index=True)[1]]
    axes = np.concatenate([length * np.eye(n) for length in (1.0, -1.0, FAR[0], -FAR[0])])
    for axis in axes if axes.size * K <= MOST_NUMBERS else ():
        found = rows(pull(axis / unit + np.zeros((K, 1)), EXACT)[some], usual[N + K + some])
        taken.append((found[found @ axis > 0], some[found @ axis > 0]))
    for _ in range(ROUNDS):
        # Minimise price · y + PRICE |y| over y in [-1, 1], subject to rows · y <= 0.
        row, strata = (np.concatenate(parts) for parts in zip(*taken, strict=True))
        i, a = np.nonzero(row)
        A = sp.csr_array((row[i, a], (i, component[strata[i], a])), shape=(len(row), len(price)))
        costs, limits = np.concatenate([PRICE + price, PRICE - price]), np.zeros(len(row))
        options = ACCURATE | {"time_limit": max(seconds_left(), 0.0)}
        found = linprog(costs, sp.hstack([A, -A]), limits, bounds=(0, 1), method="highs", options=options)
        if found.status or found.x.max() < ZERO:  # the status is 1 where time is up
            break
        y = np.subtract(*np.split(found.x, 2))
        step = np.where(np.abs(y) < ZERO, 0.0, y)[component]
        far = gradients(theta + FAR[0] * step / unit)
        missing = outside = ~np.isfinite(far).all(axis=1)
        for length in FAR[1:] if outside.any() else ():
            far[missing] = gradients(theta + length * step / unit)[missing]
            missing = ~np.isfinite(far).all(axis=1)
        found = rows(np.nan_to_num(far, posinf=0.0, neginf=0.0))
        slope = np.vecdot(found, step[stratum])
        violated = np.argsort(-slope, kind="stable")[: min((slope > ZERO).sum(), ROWS * len(price))]
        if not len(violated) and outside.any():
            break
        if not len(violated):
            start, move = 0.0 if inside else theta[index], (step / unit)[index]
            points = (start + length * move for length in ALONG)
            slopes = np.stack([np.vecdot(losses.value_and_gradient(z)[1], move) for z in points])
            most = -slopes.min(axis=0)
            slow = (-slopes > NOISE * most) & (-slopes < TENTH * most)
            falls = (slow[:-1] & slow[1:]).any(axis=0) & (most > STILL * usual[:N])  # without end
            return np.where(np.isin(component, component[index[falls]]), step / unit, 0.0)
        taken.append((found[violated], stratum[violated]))
    return np.zeros_like(theta)


def unbounded_strata(problem, theta, w):
    """Strata, a mask (K,), each of which clearly lowers F if its parameters are doubled and projected onto the constraints (z).

    Then theta is not a minimum. If F falls only when all strata are doubled, all are marked. f is loss plus regularizer:

        F(z) − F(theta) < −FALL (1 + |Σ f(theta)| + |⟨L theta, theta⟩|)
    """
    K = len(theta)
    if getattr(problem.regularizer.prox, "costly", False):
        return np.zeros(K, dtype=bool)
    with np.errstate(over="ignore", invalid="ignore"):
        doubled = problem.project(2 * theta)
        move = doubled - theta
        before, after = (problem.loss.value(t) + problem.regularizer.value(t) for t in (theta, doubled))
        laplacians = problem.laplacians(w)
        pull = laplacians.times(theta)
        across = np.vecdot(pull, move)
        change = after - before + across + 0.5 * np.vecdot(laplacians.degrees * move, move)
        together = np.sum(after - before) + across.sum() + laplacians.energy(move)
        clear = -FALL * (1 + abs(before.sum()) + abs(np.vdot(pull, theta)))
    single = change < clear
    return single if single.any() else np.full(K, together < clear)
