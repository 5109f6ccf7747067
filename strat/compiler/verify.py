"""Comparison of a compiled program with CVXPY itself, at random records and points where it is convex and finite."""

import warnings
from dataclasses import dataclass

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from strat.compiler.binder import dense
from strat.compiler.expressions import folded, with_sign
from strat.compiler.pieces import Sets, attribute_constraints
from strat.errors import StratError
from strat.oracles.base import host, symmetric
from strat.records.strata import Strata
from strat.records.tables import Shown, aligned
from strat.rules import short, text
from strat.rules.approximated import approximations

#: The strata of the records, which all have weight 1.
INDEX = np.array([0, 0, 0, 1, 1, 1, 1, 2])
GROUPED = Strata([0, 1, 2], INDEX), np.ones(len(INDEX))
#: Normal, positive and negative numbers, numbers between 0 and 1, and semidefinite matrices.
KINDS = (
    lambda rng, shape: rng.normal(size=shape),
    lambda rng, shape: rng.uniform(0.2, 2, size=shape),
    lambda rng, shape: rng.uniform(0.1, 0.9, size=shape),
    lambda rng, shape: -rng.uniform(0.2, 2, size=shape),
    lambda rng, shape: _semidefinite(rng, shape),
)
TRIES = 600


def random_records(program, rng, given, prox=True):
    """(arrays, flat oracle, points) for the first random data that the program accepts, else Nones; hyperparameters `given`."""
    for arrays in _draws(program.data, rng, len(INDEX)):
        try:
            if program.data:
                oracle = program.bind_records(arrays, *GROUPED, given, prox)
            else:
                oracle = program.bind_regularizer(given)
        except StratError:
            continue
        theta = _random_points(program, oracle, rng)
        if theta is not None or not program.data:
            return arrays, oracle, theta
    return None, None, None


def _random_points(program, oracle, rng):
    """Points (K, n) at which the oracle is finite, or None."""
    K = len(STEPS)
    theta, found = np.zeros((K, program.layout.n)), np.zeros(K, dtype=bool)
    names = [v.name() for v in program.variables]
    for drawn in _draws(program.variables, rng, K):
        packed = program.layout.pack(dict(zip(names, drawn, strict=True)))
        # Points keep away from the boundary of the domain, where finite differences have no meaning.
        near = [np.isfinite(oracle.value(packed + shift)) for shift in (0.0, -1e-3, 1e-3)]
        fine = ~found & np.all(near, axis=0)
        theta[fine] = packed[fine]
        found |= fine
        if found.all():
            return theta
    return None


def _draws(leaves, rng, count):
    """Values (count, *shape) of each leaf: first of one kind for all leaves, then of random kinds."""
    for i in range(len(KINDS) + TRIES * (len(leaves) > 1)):
        kinds = rng.choice(KINDS, len(leaves)) if i >= len(KINDS) else [KINDS[i]] * len(leaves)
        values = [draw(rng, (count, *leaf.shape)) for leaf, draw in zip(leaves, kinds, strict=True)]
        yield [np.stack([_inside(x, v) for v in value]) for x, value in zip(leaves, values, strict=True)]


def _inside(leaf, value):
    """The value projected onto the leaf's attributes."""
    # CVXPY warns about sparse values, which it makes itself.
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        value = leaf.project(value)
    value = value.toarray() if sp.issparse(value) else value  # as it is for diagonal matrices
    return np.asarray(value, dtype=float).reshape(leaf.shape)


def _semidefinite(rng, shape):
    """Semidefinite matrices where the shape is that of square matrices, else positive numbers."""
    if len(shape) < 3 or shape[-1] != shape[-2]:
        return rng.uniform(0.2, 2, size=shape)
    root = rng.normal(size=shape)
    return root @ np.swapaxes(root, -1, -2) + 0.5 * np.eye(shape[-1])


#: Largest error allowed, relative to 1 + size: CVXPY's own figure is exact to rounding, a difference, or from a solver.
TOLERANCE = {"value": 1e-9, "gradient": 1e-6, "Hessian product": 1e-5, "prox": 1e-5}
STEPS = np.array([0.1, 1.0, 10.0])


@dataclass
class Row:
    """One comparison: the piece, the oracle, its largest error, and at how many points."""

    piece: str
    oracle: str
    error: float
    points: int
    #: Whether rounding, finite differences or the solver's accuracy explain the error.
    ok = property(lambda self: self.error <= TOLERANCE[self.oracle])


class Report(Shown):
    """The comparisons with CVXPY (`rows`); `notes` say what could not be compared. It prints as a table."""

    def __init__(self, rows, notes=()):
        self.rows, self.notes = list(rows), list(notes)

    @property
    def ok(self):
        """Whether something was compared and everything agreed."""
        return bool(self.rows) and all(row.ok for row in self.rows)

    def __add__(self, other):
        return Report(self.rows + other.rows, self.notes + other.notes)

    def __str__(self):
        head = ("piece", "oracle", "largest error", "points", "")
        cells = [
            (short(r.piece, 50), r.oracle, f"{r.error:.1e}", str(r.points), "ok" if r.ok else "DIFFERS")
            for r in self.rows
        ]
        return "\n".join([aligned([head, *cells], numbers=False), *(f"note  {note}" for note in self.notes)])


def check_program(program, seed=0):
    """Compare a program's oracles with CVXPY on copies of its leaves, so that no Variable or Parameter changes its value."""
    rng, rows, notes = np.random.default_rng(seed), [], []
    piece, given = f"{program.what}: {text(program.expression)}", _missing_values(program, rng)
    arrays, oracle, theta = random_records(program, rng, given)
    if theta is None:
        return Report([], [f"{piece}: no random numbers were found at which it is convex and finite"])
    reference, smoothed = Reference(program, arrays, given), program.smoothing is not None
    known = not approximations(program.expression)
    if not known:
        notes.append(f"{piece}: its value is exact and was not compared, as CVXPY's is an approximation")
    else:
        true = program.bind_records(arrays, *GROUPED, given, smooth=False) if smoothed else oracle
        wanted = reference.values(theta)
        rows.append(Row(piece, "value", _error(true.value(theta) - wanted, wanted), len(theta)))
    function = oracle.value if smoothed or not known else reference.values
    directions = [_directions(program, rng, len(theta)) for _ in range(3)]
    with np.errstate(all="ignore"):
        if oracle.has("value_and_gradient"):
            gradient = oracle.value_and_gradient(theta)[1]
            error = _slope_error(function, lambda d: (gradient * d).sum(axis=1), theta, directions)
            rows.append(Row(piece, "gradient", error, len(theta) * len(directions)))
        if oracle.has("hessian_operator"):
            slopes = lambda point: oracle.value_and_gradient(point)[1]  # noqa: E731
            error = _slope_error(slopes, oracle.hessian_operator(theta), theta, directions)
            rows.append(Row(piece, "Hessian product", error, len(theta) * len(directions)))
    if oracle.has("prox") and not smoothed and known:
        try:
            error = _prox_error(oracle, reference, _directions(program, rng, len(STEPS)))
            rows.append(Row(piece, "prox", error, len(STEPS)))
        except (StratError, cp.error.SolverError, cp.error.DCPError) as error:
            why = short(str(error).splitlines()[0], 120)
            notes.append(f"{piece}: the prox was not compared: {why}")
    return Report(rows, notes)


def check_prediction(program, seed=0):
    """Compare the values of a prediction, of any shape, with CVXPY's."""
    rng = np.random.default_rng(seed)
    given = _missing_values(program, rng)
    arrays = [rng.uniform(0.2, 2, size=(len(INDEX), *p.shape)) for p in program.data]
    theta = rng.uniform(0.2, 2, size=(len(STEPS), program.layout.n))
    values = program.evaluation(arrays, GROUPED[0], given)(theta)
    wanted = [Reference(program, arrays, given).value(theta[k], row) for row, k in enumerate(INDEX)]
    wanted = np.reshape(wanted, values.shape)
    error = _error(values - wanted, wanted)
    return Report([Row(f"predict: {text(program.expression)}", "value", error, len(INDEX))])


def _slope_error(function, product, theta, directions, h=1e-5):
    """Largest error of directional derivatives, product(d), against five-point differences of a function."""
    errors = []
    for d in directions:
        sides = [np.reshape(function(theta + step * d), (len(d), -1)) for step in (-2 * h, -h, h, 2 * h)]
        slope = (sides[0] - 8 * sides[1] + 8 * sides[2] - sides[3]) / (12 * h)
        ours = np.reshape(product(d), slope.shape)
        size = 1 + (np.abs(slope) + 1e-9 * np.abs(sides[1]) / h).max(axis=1, keepdims=True)
        errors.append(np.where(np.isfinite(slope) & np.isfinite(ours), np.abs(ours - slope) / size, 0.0))
    return float(np.max(errors))


def _prox_error(oracle, reference, v):
    """Error of the prox: its distance to CVXPY's solution, or the bound from the two objectives if that is smaller."""
    v[1] = 0.0
    z, found = oracle.prox(v, STEPS), reference.prox(v)

    def objective(point):
        return oracle.value(point) + ((point - v) ** 2).sum(axis=1) / (2 * STEPS)

    distance = np.abs(z - found).max(axis=1) / (1 + np.abs(found).max(axis=1))
    # f + ‖· − v‖²/(2t) exceeds its minimum by at least the squared distance to the minimiser over 2t.
    with np.errstate(invalid="ignore"):
        gap = np.sqrt(2 * STEPS * np.maximum(objective(z) - objective(found), 0.0))
    error = np.fmin(distance, np.where(np.isnan(gap), np.inf, gap)) + reference.violation(z)
    return float(np.where(np.isfinite(objective(z)), error, np.inf).max())


class Reference:
    """CVXPY's own answers, on copies of the declaration's leaves."""

    def __init__(self, program, arrays, given):
        self.program, self.arrays, self.given = program, arrays, given

    def _on(self, e, variables, record=None):
        """The expression of one record on other `variables`, by name; parts without variables become numbers of known sign."""
        program = self.program
        values = {p: self.given[p.name()] for p in program.hyperparameters if p.name() in self.given}
        if record is not None:
            values |= {p: a[record] for p, a in zip(program.data, self.arrays, strict=True)}
        own = {id(x): with_sign(x, variables[x.name()]) for x in program.variables}
        own |= {id(p): cp.Constant(np.reshape(dense(host(v)), p.shape)) for p, v in values.items()}
        return folded(e, own)

    def _sum(self, variables, k):
        rows = np.flatnonzero(k == INDEX) if self.program.data else [None]
        return sum(self._on(self.program.expression, variables, row) for row in rows)

    def _named(self, theta, make=cp.Constant):
        return {name: make(value[0]) for name, value in self.program.layout.unpack(theta[None]).items()}

    def value(self, theta, record):
        """The expression's value for one record of a stratum."""
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            return self._on(self.program.expression, self._named(theta), record).value

    def values(self, theta):
        """Sum over the records of each stratum, (K,)."""
        # CVXPY warns about invalid values, at points outside the domain.
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            out = [float(self._sum(self._named(at), k).value) for k, at in enumerate(theta)]
        return np.where(np.isnan(out), np.inf, out)

    def prox(self, v):
        """The prox of every stratum, from one CVXPY problem."""
        total, limits, parts = 0, [], []
        for k, t in enumerate(STEPS):
            fresh, at = self._named(v[k], lambda value: cp.Variable(value.shape)), self._named(v[k])
            total += self._sum(fresh, k) + sum(cp.sum_squares(fresh[x] - at[x]) for x in at) / (2 * t)
            limits += self._limits(fresh)
            parts.append(fresh)
        problem = cp.Problem(cp.Minimize(total), limits)
        with warnings.catch_warnings(action="ignore"):  # about accuracy, which is judged here
            problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
        if problem.status not in ("optimal", "optimal_inaccurate"):
            raise cp.error.SolverError(f"CVXPY reports {problem.status}")
        found = {name: np.stack([part[name].value for part in parts]) for name in parts[0]}
        return self.program.layout.pack(found)

    def _limits(self, variables):
        limits = [c.copy([self._on(a, variables) for a in c.args]) for c in self.program.constraints]
        return sum((attribute_constraints(x, variables[x.name()]) for x in self.program.variables), limits)

    def violation(self, theta):
        """Largest violation of constraints and attributes in each stratum."""
        limits = [self._limits(self._named(at)) for at in theta]
        return np.array([max((float(np.max(c.violation())) for c in own), default=0.0) for own in limits])


def _directions(program, rng, count):
    """Random directions (count, n), symmetric where variables are."""
    transposed = Sets(program.variables, program.layout).transposed
    return symmetric(rng.normal(size=(count, program.layout.n)), transposed)


def _missing_values(program, rng):
    """Random values, by name, for the hyperparameters that have none."""
    missing = [p for p in program.hyperparameters if p.value is None]
    return {p.name(): np.asarray(p.project(rng.uniform(0.2, 0.8, size=p.shape)), float) for p in missing}


def _error(difference, size):
    """Largest absolute difference, relative to 1 + absolute size; an entry that is infinite in both counts as 0."""
    difference = np.where(difference == difference, np.abs(difference), 0.0)
    return float(np.max(difference / (1 + np.where(np.isfinite(size), np.abs(size), 0.0)), initial=0.0))
