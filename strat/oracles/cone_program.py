"""One cone program for all strata, solved in one call of Clarabel."""

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from strat.errors import NoOracleError
from strat.oracles.centring import COLLINEAR, Centring, deviations, free_parameters, moved, split
from strat.oracles.clock import OutOfTime
from strat.oracles.cones import ACCEPTED, LARGEST_GAP, cones_of, gap_of, solved, usable

#: Accuracies of objective and constraints, relative and absolute, that are asked for in order, the later ones with shorter
#: steps, which second-order cones need where a constraint is active with a zero multiplier.
ACCURACIES = (1e-10, 1e-10), (1e-8, 1e-8, 0.9), (1e-8, 1e-8, 0.5)
#: Settings that come first where only slopes set the objective's scale: curvatures may be below Clarabel's regularization.
STRAIGHT = 1e-10, 1e-10, 0.99, 1e-12
FAR = 1e-6  # constraints further off than 1 / FAR, in units of the solution without them, are scaled as if at that distance
#: Most refinements (each solves for the distance from the solution so far), smallest and largest unit of that distance, and the
#: distance in theta after which refinement ends: the error left is a hundredth of it or less.
REFINEMENTS, UNITS, ENOUGH = 3, (1e-6, 1e-2), 1e-7
#: Roots of curvatures below this share of a coefficient, as of a weak penalty with columns far from 0, set no scale for theta.
FLAT = 1e-4
WIDE = 1e-4  # relative gap above which a centred program is solved again without centring
#: Ratio of degrees to curvatures above which a program has differences of neighbours as unknowns; with more neighbours than
#: the second number, differences from one stratum.
STRONG, MANY = 1e4, 10
FEASIBLE = 3e-9  # accepted violation of the constraints, in units of the solution


@dataclass
class Solution:
    """A minimiser and how exact it is."""

    theta: np.ndarray  # (K, n)
    error: np.ndarray  # residual of the stationarity condition in theta for the dual solution
    gap: float  # between the primal and the dual objective
    share: float  # the gap over 1 + the objective, in the program's own units
    doubt: float  # the gap plus the decrease of the objective, to first order, through violated constraints


class ConeProgram:
    """argmin over theta (K, n): Σ_k ½ theta_kᵀ H_k theta_k + g_kᵀ theta_k + ½ ⟨theta, L theta⟩ + Σ_i f_i(theta of i's stratum).

    `functions` are Cones, and `what` says what is solved, for messages. `flat` is 0 where the curvatures H alone set the scale of
    theta. L is 0 until `set_graph`, which may be called again between solutions.
    """

    def __init__(self, K, n, functions, what="the cone program", flat=FLAT):
        self.K, self.n, self.functions, self.what, self.flat = K, n, functions, what, flat
        self.laplacian = self.hub = None
        self.strata = [np.arange(K) if f.strata is None else f.strata for f in functions]
        unknowns = [len(own) * (f.size - n) for f, own in zip(functions, self.strata, strict=True)]
        self.first = K * n + np.concatenate([[0], np.cumsum(unknowns)]).astype(int)
        self.size = int(self.first[-1])

    def set_graph(self, laplacians):
        """Take the Laplacians of a graph for L: as a sparse matrix, or those of equal weights on all pairs by their `hub`."""
        self.hub = laplacians.hub if laplacians.any else None
        self.laplacian = laplacians.matrix() if laplacians.any and self.hub is None else None

    def solve(self, H=None, g=None, weight=None, refined=False, accuracy=0.0, restricted=True):
        """The Solution; raises NoOracleError where there is none, and OutOfTime where there is no time left.

        H is (K, n, n) or has the diagonals (K, n), g is (K, n), and `weight` (K,) are weights of the functions f_i by stratum.
        With `refined`, the program is solved again for the distance from the solution found, whose numbers are all small: where
        a constraint is active with a zero multiplier, the first error is only the root of the gap. `accuracy`, if not 0,
        suffices for the objective; if `restricted`, constraints are still satisfied to FEASIBLE.
        """
        centring = self.centred(H)
        if centring is not None:
            with suppress(NoOracleError):  # a few programs are harder in centred coordinates
                found = self._solved(H, g, weight, refined, accuracy, restricted, centring)
                if found.share <= WIDE:
                    return found
        return self._solved(H, g, weight, refined, accuracy, restricted)

    def _solved(self, H, g, weight, refined, accuracy, restricted, centring=None):
        shape, theta = (self.K, self.n), slice(self.K * self.n)
        A, b, cones = self.constraints[:3]
        laplacian, differences, free = self.laplacian, None, np.zeros(self.n, dtype=bool)
        moves = []  # matrices M with theta = M s in the program's coordinates s, M⁻¹ = 2 I − M
        if centring is not None:
            free, moves = centring.free, [sp.kron(sp.eye_array(self.K), centring.T)]
        if laplacian is not None:
            # Edges so strong that differences of rounded parameters are meaningless.
            M = self._curvature_of_records / self.K if H is None else H.mean(axis=0)
            degrees = laplacian.diagonal().reshape(shape).mean(axis=0)
            apart = degrees > STRONG * (M.diagonal() if M.ndim == 2 else M)
            dense = apart.any() and laplacian.nnz > MANY * self.K * self.n
            rest, differences = split(laplacian, free if dense else free | apart)
            if dense:
                move, others = deviations(laplacian, apart)
                moves, rest = [*moves, move], others @ rest @ others
        (P, q), C = self.objective(H, g, weight), sp.eye_array(self.size, format="csr")
        for move in moves:
            P, q, A, C = moved(move, P, q, A, C)
        A, b, unit = self._scaled_constraints(A, P.diagonal()[theta].reshape(shape), H is not None)
        if laplacian is not None:  # added after scaling, as it sets no scale for theta
            edges = sp.triu(rest, format="coo")
            P = P + sp.csc_array((edges.data, edges.coords), shape=P.shape)
        P, q = _scaled(P, unit, unit), q * unit
        differences = None if differences is None else differences @ C[theta]
        if self.hub is not None:  # with unknowns m
            root, T = sp.diags_array(np.sqrt(self.hub)), np.eye(self.n) if centring is None else centring.T
            from_m = sp.kron(np.ones((self.K, 1)), -root @ T)
            differences = sp.hstack([sp.kron(sp.eye_array(self.K), root) @ C[theta], from_m])
            P = sp.block_diag([P, sp.csc_array(T.shape)], format="csc")
            A = sp.hstack([A, sp.csc_array((len(b), self.n))], format="csc")
            q, unit = np.append(q, np.zeros(self.n)), np.append(unit, unit[: self.n])
        if differences is not None:
            P, q, A, b, cones, unit = _with_differences(P, q, A, b, cones, unit, differences)
        slope, offset = np.abs(q).max(initial=0.0), np.abs(b).max(initial=0.0)
        size, steep = max(slope, FAR * offset), None
        if not slope or (H is None and offset):  # of most records, not of distant bounds or large weights
            size, steep = (np.median(np.abs(v[v != 0])) if v.any() else 1.0 for v in (b, q))
        rough = (accuracy, FEASIBLE if restricted else accuracy)
        accuracies = ((rough,) if accuracy else (STRAIGHT,) if steep else ()) + ACCURACIES
        found = self._in_units(P, q, A, b, cones, size, steep, False, wanted=accuracies)
        if found is None:  # where constraints keep theta far from 0
            size = max(size, offset)
            found = self._in_units(P, q, A, b, cones, size, steep, wanted=accuracies)
        x, solution, worth = found
        if refined:
            x, solution, worth = self._refined(P, q, A, b, cones, size, x, solution, worth)
        z = np.asarray(solution.z)
        error = (_times(P, x) * size + q + A.T @ z * (worth / size)) / unit
        gap = gap_of(solution) * worth
        broken = worth * float(np.abs(z) @ np.abs(b / size - A @ x - solution.s)) if accuracy else 0.0
        x, error = (size * unit * x)[theta], error[theta]
        for move in reversed(moves):
            x, error = move @ x, 2 * error - move.T @ error
        x, error = x.reshape(shape), error.reshape(shape)
        share = gap_of(solution) / (1 + abs(solution.obj_val))
        return Solution(x, error, gap, share, gap + broken)

    def centred(self, H):
        """The Centring for the mean curvature of the blocks H or else of the records' rows; None where none is needed."""
        free = free_parameters([f for f in self.functions if f.strata is None], self.n)
        if (H is not None and H.ndim != 3) or not free.any():
            return None
        M = self._curvature_of_records if H is None else H.mean(axis=0)
        if free.all():  # the column that is most correlated with the others takes the part of an intercept
            root = np.sqrt(M.diagonal()) + 1e-300
            free = np.arange(self.n) == np.argmax(np.abs(M / root / root[:, None]).sum(axis=0))
        centring = Centring(M, free)
        return centring if centring.left < COLLINEAR else None

    @cached_property
    def _curvature_of_records(self):
        """Σ a aᵀ s / b over the coefficients a (n,) of the records' rows, with their mean slope s and offset b."""
        A, b, _, function, _ = self.constraints
        many = np.array([f.strata is not None for f in self.functions], dtype=bool)
        entries = sp.coo_array(A)
        rows, columns = entries.coords
        some = (columns < self.K * self.n) & many[function[rows]]
        rows, columns = rows[some], columns[some] % self.n
        a = sp.csr_array((entries.data[some], (rows, columns)), shape=(A.shape[0], self.n))
        slopes = np.concatenate([f.c.ravel() for f in self.functions if f.strata is not None] or [[]])
        s, b = (np.abs(part).sum() / max(np.count_nonzero(part), 1) or 1.0 for part in (slopes, b))
        return (a.T @ a).toarray() * (s / b)

    def _in_units(self, P, q, A, b, cones, size, steep, strict=True, accepted=ACCEPTED, wanted=ACCURACIES):
        """(x over `size`, Clarabel's solution, the unit `worth` of the objective), in units where all numbers are near one.

        `steep` is the size of slopes, None where that is `size`, as curvatures are 1. Clarabel measures residuals relative to
        x, which must be near one, as the records' weights are, for the records' residuals to be small.
        """
        worth = size * (steep or size)
        for accuracy in wanted:
            solution = solved(P * (size**2 / worth), q * (size / worth), A, b / size, cones, *accuracy)
            if str(solution.status) == "MaxTime":
                raise OutOfTime
            if usable(solution, accepted):
                return np.asarray(solution.x), solution, worth
        if strict:
            raise NoOracleError(
                f"{self.what} could not be solved: the solver Clarabel reports {solution.status}. "
                f"Check that the constraints can be satisfied and that the objective has a minimum."
            )
        return None

    def _refined(self, P, q, A, b, cones, size, x, solution, worth):
        """A more exact solution: solved again for the distance from x, in units of the error that the gap allows."""
        gap, longer = gap_of(solution), 10.0
        for _ in range(REFINEMENTS):
            unit = float(np.clip(longer * np.sqrt(gap), *UNITS))
            slope, left = q + size * _times(P, x), b - size * (A @ x)
            accepted = max(ACCEPTED, FEASIBLE / unit)
            again = self._in_units(P, slope, A, left, cones, size * unit, None, False, accepted)
            if again is None or gap_of(again[1]) > LARGEST_GAP:
                longer *= 10.0  # rounding may stop progress in one unit and not in another
                continue
            if not gap_of(again[1]) * unit**2 < gap:
                break
            x, gap = x + unit * again[0], gap_of(again[1]) * unit**2
            solution, worth = again[1], again[2] / unit
            if np.abs(again[0][: self.K * self.n]).max(initial=0.0) * unit <= ENOUGH:
                break
        return x, solution, worth

    def objective(self, H=None, g=None, weight=None):
        """(P, q) without the graph: the upper triangle of the quadratic, csc, and the linear part."""
        K, n = self.K, self.n
        index = np.arange(K * n).reshape(K, n)
        q = np.zeros(self.size)
        if g is not None:
            q[: K * n] = g.reshape(-1)
        parts = []
        if H is not None and H.ndim == 2:
            parts.append((index.ravel(), index.ravel(), H.ravel()))
        elif H is not None:
            i, j = np.triu_indices(n)
            parts.append((index[:, i].ravel(), index[:, j].ravel(), H[:, i, j].ravel()))
        for f, strata, first in zip(self.functions, self.strata, self.first, strict=False):
            columns, f = _columns(f, strata, first), f if weight is None else f.scaled(weight[strata])
            if len(f.P.rows):
                ends = columns[:, f.P.rows], columns[:, f.P.columns]
                low, high = np.minimum(*ends), np.maximum(*ends)
                parts.append((low.ravel(), high.ravel(), np.broadcast_to(f.P.values, low.shape).ravel()))
            np.add.at(q, columns, np.broadcast_to(f.c, columns.shape))
        if not parts:
            return sp.csc_array((self.size, self.size)), q
        rows, columns, values = (np.concatenate(part) for part in zip(*parts, strict=True))
        return sp.csc_array((values, (rows, columns)), shape=(self.size, self.size)), q

    def _scaled_constraints(self, A, curvature, bent):
        """(A, b) with rows and unknowns in units of their own, and the unknowns' units (size,).

        A coordinate of theta has one unit in all strata: that in which its mean curvature is 1, or, where it has almost no
        curvature (if losses are `bent`, relative to the others'), one over its largest coefficient. The rows and the other
        unknowns of a function share the size that its affine images of theta then have; half-lines and equations in theta
        alone each have their own. So results do not depend on the units of theta.
        """
        K, n, (_, b, _, function, lines) = self.K, self.n, self.constraints
        curvature = np.maximum(curvature.mean(axis=0), 0.0)
        columns = np.repeat(np.arange(self.size), np.diff(A.indptr))
        size, own = np.abs(A.data), columns < K * n
        alone = lines.copy()
        alone[A.indices[~own]] = False
        scale = np.sqrt(curvature)
        # Bounds set the scale of theta only where nothing else does.
        for some, least in ((own & ~alone[A.indices], self.flat), (own, 0.0)):
            steepest = np.zeros(n)
            np.maximum.at(steepest, columns[some] % n, size[some])
            low = least * (np.minimum(steepest, scale.max()) if bent else steepest)
            scale = np.where(scale > low, scale, steepest)
        scale[~(scale > 0)] = 1.0
        unit, share, images = np.ones(self.size), np.ones(len(b)), np.zeros(len(b))
        unit[: K * n] = np.tile(1.0 / scale, K)
        np.maximum.at(images, A.indices[own], size[own] * unit[columns[own]])
        for f in range(len(self.functions)):
            here = function == f
            some = images[here & ~alone & (images > 0)]
            common = np.exp(np.log(some).mean()) if some.size else 1.0
            share[here] = unit[self.first[f] : self.first[f + 1]] = common
        alone &= images > 0
        share[alone] = images[alone]
        return _scaled(A, 1.0 / share, unit), b / share, unit

    @cached_property
    def constraints(self):
        """(A, b, cones, each row's function, whether its cone is a line), cone by cone, and instance by instance in each."""
        rows, columns, values, b, cones, start = [], [], [], [], [], 0
        lengths, lines = [], []
        for f, strata, first in zip(self.functions, self.strata, self.first, strict=False):
            count, sizes = len(strata), f.rows["sizes"]
            starts = start + count * np.concatenate([[0], np.cumsum(sizes)])
            instance = np.arange(count)[:, None]
            cone = f.rows["cone"]
            places = starts[cone] + f.rows["offset"] + instance * sizes[cone]
            rows.append(places[:, f.A.rows].ravel())
            columns.append(_columns(f, strata, first)[:, f.A.columns].ravel())
            values.append(np.broadcast_to(f.A.values, (count, len(f.A.rows))).ravel())
            right = np.empty(count * len(cone))
            right[places - start] = f.b
            b.append(right)
            straight = np.array([kind in ("zero", "nonnegative") for kind, _ in f.kinds], dtype=bool)
            lines.append(np.repeat(straight, count * sizes))
            for (kind, number), size in zip(f.kinds, sizes, strict=True):
                cones += cones_of(kind, number, size, count)
            lengths.append(int(starts[-1]) - start)
            start = int(starts[-1])
        function = np.repeat(np.arange(len(lengths)), lengths)
        rows, columns, values, b = (np.concatenate(part or [[]]) for part in (rows, columns, values, b))
        lines = np.concatenate(lines) if lines else np.zeros(0, dtype=bool)
        return sp.csc_array((values, (rows, columns)), shape=(start, self.size)), b, cones, function, lines


def _with_differences(P, q, A, b, cones, unit, differences):
    """The program with unknowns y = differences · x, and ½ ‖y‖² in its objective."""
    import clarabel

    E, differences = differences.shape[0], differences @ sp.diags_array(unit)
    A = sp.block_array([[A, None], [differences, -sp.eye_array(E)]], format="csc")
    P = sp.block_diag([P, sp.eye_array(E)], format="csc")
    b, q, unit = np.append(b, np.zeros(E)), np.append(q, np.zeros(E)), np.append(unit, np.ones(E))
    return P, q, A, b, [*cones, clarabel.ZeroConeT(E)], unit


def _columns(f, strata, first):
    """Columns (I, size) of every instance's x: the stratum's theta, then unknowns of its own."""
    unknown = f.size - f.n
    unknowns = first + np.arange(len(strata) * unknown).reshape(len(strata), unknown)
    return np.hstack([strata[:, None] * f.n + np.arange(f.n), unknowns])


def _scaled(M, rows, columns):
    """The csc array M with its rows and columns multiplied by numbers."""
    values = M.data * rows[M.indices] * np.repeat(columns, np.diff(M.indptr))
    return sp.csc_array((values, M.indices, M.indptr), shape=M.shape)


def _times(P, x):
    """The symmetric matrix with the upper triangle P, times x."""
    return P @ x + P.T @ x - P.diagonal() * x
