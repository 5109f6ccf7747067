"""Check: a compiled program against CVXPY itself, at random records and points."""

import warnings
from dataclasses import dataclass

import cvxpy as cp
import numpy as np

from strat.compiler.expressions import folded, symmetric, with_sign
from strat.compiler.pieces import attribute_constraints
from strat.compiler.random_records import INDEX, Records, random_points, random_records
from strat.compiler.report import table
from strat.errors import StratError
from strat.rules.approximated import approximations
from strat.rules.text import short, text

#: Largest error (relative to 1 + size) of what CVXPY itself knows to rounding, by differences, or from a solver.
TOLERANCE = {"value": 1e-9, "gradient": 1e-6, "Hessian product": 1e-5, "prox": 1e-5}
STEPS = np.array([0.1, 1.0, 10.0])


@dataclass
class Row:
    """One comparison: the piece, the oracle, its largest error, and at how many points."""

    piece: str
    oracle: str
    error: float
    points: int

    @property
    def ok(self):
        """Whether the error is what rounding, differences and a solver explain."""
        return self.error <= TOLERANCE.get(self.oracle, 1e-6)


class Report:
    """What was compared with CVXPY, and how well it agreed; it prints as a table.

    Parameters
    ----------
    rows : list of Row
        The comparisons.
    notes : list of str
        What could not be compared, and why.

    Attributes
    ----------
    ok : bool
        Whether every comparison agreed.
    """

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
        return "\n".join([table(head, cells), *(f"note  {note}" for note in self.notes)])

    __repr__ = __str__


def check_program(program, seed=0):
    """Compare a program's oracles with CVXPY.

    The expression is rebuilt on leaves of its own: no Variable or Parameter of the declaration changes its value.
    """
    rng = np.random.default_rng(seed)
    piece, given = f"{program.what}: {text(program.expression)}", _missing_values(program, rng)
    records, oracle = random_records(program, rng, given)
    if oracle is None:
        return Report([], [f"{piece}: no random records were found for which it is convex"])
    theta = random_points(program, oracle, rng, len(STEPS))
    if theta is None:
        return Report([], [f"{piece}: no random point was found at which it is finite"])
    reference, true, rows, notes = Reference(program, records, given), oracle, [], []
    if program.smoothing is not None:
        true = program.bind_records(records.arrays, records.strata, records.weight, given, smooth=False)
    known = not approximations(program.expression)
    if known:
        wanted = reference.values(theta)
        rows.append(Row(piece, "value", _error(true.value(theta) - wanted, wanted), len(theta)))
    else:
        notes.append(f"{piece}: its value is exact and was not compared, as CVXPY's is an approximation")
    function = oracle.value if program.smoothing is not None or not known else reference.values
    directions = [program.layout.pack(_directions(program, rng, len(theta))) for _ in range(3)]
    with np.errstate(all="ignore"):
        if oracle.has("value_and_gradient"):
            gradient = oracle.value_and_gradient(theta)[1]
            error = _slope_error(function, lambda d: (gradient * d).sum(axis=1), theta, directions)
            rows.append(Row(piece, "gradient", error, len(theta) * len(directions)))
        if oracle.has("hessian_operator"):
            slopes = lambda point: oracle.value_and_gradient(point)[1]  # noqa: E731
            error = _slope_error(slopes, oracle.hessian_operator(theta), theta, directions)
            rows.append(Row(piece, "Hessian product", error, len(theta) * len(directions)))
    if oracle.has("prox") and program.smoothing is None and known:
        found = _prox(piece, program, oracle, reference, rng)
        (rows if isinstance(found, Row) else notes).append(found)
    return Report(rows, notes)


def check_prediction(program, seed=0):
    """Compare the values of a prediction, of any shape, with CVXPY's."""
    rng = np.random.default_rng(seed)
    given = _missing_values(program, rng)
    records = Records([rng.uniform(0.2, 2, size=(len(INDEX), *p.shape)) for p in program.data])
    theta = rng.uniform(0.2, 2, size=(records.strata.K, program.layout.n))
    values = program.evaluation(records.arrays, records.strata, given)(theta)
    reference, errors = Reference(program, records, given), []
    for record, k in enumerate(INDEX):
        wanted = reference.value(theta, k, record if program.data else None).reshape(values[record].shape)
        errors.append(_error(values[record] - wanted, wanted))
    return Report([Row(f"predict: {text(program.expression)}", "value", max(errors), len(errors))])


def _slope_error(function, product, theta, directions, h=1e-5):
    """Largest error of derivatives along directions, product(d), relative to differences of a function at five points."""
    errors = []
    for d in directions:
        sides = [np.reshape(function(theta + step * d), (len(d), -1)) for step in (-2 * h, -h, h, 2 * h)]
        slope = (sides[0] - 8 * sides[1] + 8 * sides[2] - sides[3]) / (12 * h)
        ours = np.reshape(product(d), slope.shape)
        size = 1 + (np.abs(slope) + 1e-9 * np.abs(sides[1]) / h).max(axis=1, keepdims=True)
        errors.append(np.where(np.isfinite(slope) & np.isfinite(ours), np.abs(ours - slope) / size, 0.0))
    return float(np.max(errors))


def _prox(piece, program, oracle, reference, rng):
    """Error of the prox: the distance to CVXPY's solution, or what the objectives of both say if that is less."""
    v = program.layout.pack(_directions(program, rng, len(STEPS)))
    v[1] = 0.0
    try:
        z, found = oracle.prox(v, STEPS), reference.prox(v, STEPS)
    except (StratError, cp.error.SolverError, cp.error.DCPError) as error:
        return f"{piece}: the prox was not compared: {short(str(error).splitlines()[0], 120)}"

    def objective(point):
        return oracle.value(point) + ((point - v) ** 2).sum(axis=1) / (2 * STEPS)

    distance = np.abs(z - found).max(axis=1) / (1 + np.abs(found).max(axis=1))
    # f + ‖· − v‖²/(2t) grows at least like the square of the distance to its minimiser, over 2t.
    with np.errstate(invalid="ignore"):
        gap = np.sqrt(2 * STEPS * np.maximum(objective(z) - objective(found), 0.0))
    error = np.fmin(distance, np.where(np.isnan(gap), np.inf, gap)) + reference.violation(z)
    return Row(piece, "prox", float(np.where(np.isfinite(objective(z)), error, np.inf).max()), len(STEPS))


class Reference:
    """CVXPY's own answers, on copies of the declaration's leaves."""

    def __init__(self, program, records, given):
        self.program, self.records, self.given = program, records, given

    def _on(self, e, variables, record=None):
        """The expression of one record on other variables, by name, each part without them as a number of known sign."""
        program, own = (
            self.program,
            {id(x): with_sign(x, variables[x.name()]) for x in self.program.variables},
        )
        values = {p: self.given[p.name()] for p in program.hyperparameters if p.name() in self.given}
        if record is not None:
            values |= {p: a[record] for p, a in zip(program.data, self.records.arrays, strict=True)}
        return folded(e, own | {id(p): cp.Constant(value) for p, value in values.items()})

    def _rows(self, k):
        return np.flatnonzero(k == INDEX) if self.program.data else [None]

    def value(self, theta, k, record):
        """The expression's value in stratum k."""
        named = self.program.layout.unpack(theta[k : k + 1])
        constants = {name: cp.Constant(value[0]) for name, value in named.items()}
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CVXPY's about invalid values, at points outside the domain
            return np.asarray(self._on(self.program.expression, constants, record).value, dtype=float)

    def values(self, theta):
        """Sum over the records of each stratum, (K,)."""
        out = [sum(self.value(theta, k, row).item() for row in self._rows(k)) for k in range(len(theta))]
        return np.where(np.isnan(out), np.inf, out)

    def prox(self, v, steps):
        """The prox of every stratum, from one CVXPY problem."""
        total, limits, parts, layout = 0, [], [], self.program.layout
        for k, t in enumerate(steps):
            named, fresh = layout.unpack(v[k : k + 1]), self._fresh()
            total = total + sum(cp.sum_squares(x - named[name][0]) for name, x in fresh.items()) / (2 * t)
            total = total + sum(self._on(self.program.expression, fresh, record) for record in self._rows(k))
            limits += self._limits(fresh)
            parts.append(fresh)
        problem = cp.Problem(cp.Minimize(total), limits)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about accuracy, which is judged here
            problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
        if problem.status not in ("optimal", "optimal_inaccurate"):
            raise cp.error.SolverError(f"CVXPY reports {problem.status}")
        return layout.pack({name: np.stack([part[name].value for part in parts]) for name in parts[0]})

    def _fresh(self):
        return {x.name(): cp.Variable(x.shape) for x in self.program.variables}

    def _limits(self, fresh):
        limits = [c.copy([self._on(a, fresh) for a in c.args]) for c in self.program.constraints]
        return limits + [c for x in self.program.variables for c in attribute_constraints(x, fresh[x.name()])]

    def violation(self, theta):
        """Largest violation of constraints and attributes in each stratum."""
        out, named, fresh = np.zeros(len(theta)), self.program.layout.unpack(theta), self._fresh()
        limits = self._limits(fresh)
        for k in range(len(theta)):
            for name, x in fresh.items():
                x.save_value(named[name][k])
            out[k] = max((float(np.max(c.violation())) for c in limits), default=0.0)
        return out


def _directions(program, rng, count):
    out = {}
    for v in program.variables:
        d = rng.normal(size=(count, *v.shape))
        out[v.name()] = 0.5 * (d + np.swapaxes(d, 1, 2)) if symmetric(v) else d
    return out


def _missing_values(program, rng):
    """Values by name for the hyperparameters that have none."""
    return {
        p.name(): np.asarray(p.project(rng.uniform(0.2, 0.8, size=p.shape)), dtype=float)
        for p in program.hyperparameters
        if p.value is None
    }


def _error(difference, size):
    difference = np.where(difference == difference, np.abs(difference), 0.0)
    return float(np.max(difference / (1 + np.where(np.isfinite(size), np.abs(size), 0.0)), initial=0.0))
