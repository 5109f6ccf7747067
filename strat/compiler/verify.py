"""Check: a compiled program against CVXPY itself, at random records and points."""

import warnings
from dataclasses import dataclass

import cvxpy as cp
import numpy as np

from strat.compiler.expressions import attribute_constraints, folded, rebuilt, with_sign
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
            (
                short(row.piece, 50),
                row.oracle,
                f"{row.error:.1e}",
                str(row.points),
                "ok" if row.ok else "DIFFERS",
            )
            for row in self.rows
        ]
        return "\n".join([table(head, cells), *(f"note  {note}" for note in self.notes)])

    __repr__ = __str__


def check_program(program, seed=0):
    """Compare a program's oracles with CVXPY.

    The expression is rebuilt on leaves of its own: no Variable or Parameter of the declaration changes its value.
    """
    rng = np.random.default_rng(seed)
    piece = f"{program.what}: {text(program.expression)}"
    given = {p.name(): _drawn(p, rng) for p in program.hyperparameters if p.value is None}
    records, oracle = random_records(program, rng, given)
    if oracle is None:
        return Report([], [f"{piece}: no random records were found for which it is convex"])
    theta = random_points(program, oracle, rng, len(STEPS))
    if theta is None:
        return Report([], [f"{piece}: no random point was found at which it is finite"])
    reference = Reference(program, records, given)
    true = oracle
    if program.smoothing is not None:
        true = program.bind_records(records.arrays, records.strata, records.weight, given, smooth=False)
    known, notes = not approximations(program.expression), []
    if known:
        value, wanted = true.value(theta), reference.values(theta)
        rows = [Row(piece, "value", _error(value - wanted, wanted), len(theta))]
    else:
        rows, notes = (
            [],
            [f"{piece}: its value is exact and was not compared, as CVXPY's is an approximation"],
        )
    function = oracle.value if program.smoothing is not None or not known else reference.values
    directions = [program.layout.pack(_directions(program, rng, len(theta))) for _ in range(3)]
    with np.errstate(all="ignore"):
        if oracle.has("value_and_gradient"):
            rows.append(_gradient(piece, oracle, function, theta, directions))
        if oracle.has("hessian_operator"):
            rows.append(_hessian(piece, oracle, theta, directions))
    if oracle.has("prox") and program.smoothing is None and known:
        row = _prox(piece, program, oracle, reference, rng)
        rows += [row] if isinstance(row, Row) else []
        notes += [] if isinstance(row, Row) else [row]
    return Report(rows, notes)


def check_prediction(program, seed=0):
    """Compare the values of a prediction, of any shape, with CVXPY's."""
    rng = np.random.default_rng(seed)
    piece = f"predict: {text(program.expression)}"
    given = {p.name(): _drawn(p, rng) for p in program.hyperparameters if p.value is None}
    records = Records([rng.uniform(0.2, 2, size=(len(INDEX), *p.shape)) for p in program.data])
    theta = rng.uniform(0.2, 2, size=(records.strata.K, program.layout.n))
    values = program.evaluation(records.arrays, records.strata, given)(theta)
    reference, errors = Reference(program, records, given), []
    for record, k in enumerate(records.strata.index):
        wanted = rebuilt(
            program.expression, reference._leaves(theta, k, record if program.data else None)
        ).value
        wanted = np.asarray(wanted, dtype=float).reshape(values[record].shape)
        errors.append(_error(values[record] - wanted, wanted))
    return Report([Row(piece, "value", max(errors), len(errors))])


def _gradient(piece, oracle, function, theta, directions):
    _, gradient = oracle.value_and_gradient(theta)
    errors = []
    for d in directions:
        slope, size = _difference(function, theta, d)
        ours = (gradient * d).sum(axis=1)
        errors.append(np.where(np.isfinite(slope), np.abs(ours - slope) / size, 0.0))
    return Row(piece, "gradient", float(np.max(errors)), len(theta) * len(directions))


def _hessian(piece, oracle, theta, directions):
    product, errors = oracle.hessian_operator(theta), []
    for d in directions:
        ours = product(d)
        slope, _ = _difference(lambda point: oracle.value_and_gradient(point)[1], theta, d)
        size = 1 + np.abs(slope).max(axis=1, keepdims=True)
        errors.append(np.where(np.isfinite(slope) & np.isfinite(ours), np.abs(ours - slope) / size, 0.0))
    return Row(piece, "Hessian product", float(np.max(errors)), len(theta) * len(directions))


def _difference(function, theta, d, h=1e-5):
    """Derivative along d by five points, and the size that its error is relative to."""
    sides = [function(theta + step * d) for step in (-2 * h, -h, h, 2 * h)]
    slope = (sides[0] - 8 * sides[1] + 8 * sides[2] - sides[3]) / (12 * h)
    return slope, 1 + np.abs(slope) + 1e-9 * np.abs(sides[1]) / h


def _prox(piece, program, oracle, reference, rng):
    """Error of the prox: the distance to CVXPY's solution, or what the objectives of both say if that is less."""
    v = program.layout.pack(_directions(program, rng, len(STEPS)))
    v[1] = 0.0
    try:
        z = oracle.prox(v, STEPS)
        found = reference.prox(v, STEPS)
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

    def _leaves(self, theta, k, record=None):
        """``{id of a leaf: constant}`` for one stratum and record."""
        named = self.program.layout.unpack(theta[k : k + 1])
        own = {id(v): cp.Constant(named[v.name()][0]) for v in self.program.variables}
        return own | self._known(record)

    def _known(self, record):
        values = {p: self.given[p.name()] for p in self.program.hyperparameters if p.name() in self.given}
        if record is not None:
            values |= {p: a[record] for p, a in zip(self.program.data, self.records.arrays, strict=True)}
        return {id(p): cp.Constant(value) for p, value in values.items()}

    def _rows(self, k):
        if not self.program.data:
            return [None]
        return np.flatnonzero(self.records.strata.index == k)

    def values(self, theta):
        """Sum over the records of each stratum, (K,)."""
        out = np.zeros(len(theta))
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CVXPY's about invalid values, at points outside the domain
            for k in range(len(theta)):
                for record in self._rows(k):
                    value = rebuilt(self.program.expression, self._leaves(theta, k, record)).value
                    out[k] += float(np.asarray(value).item())
        return np.where(np.isnan(out), np.inf, out)

    def prox(self, v, steps):
        """The prox of every stratum, from one CVXPY problem."""
        total, limits, parts = 0, [], []
        for k, t in enumerate(steps):
            named, fresh = self.program.layout.unpack(v[k : k + 1]), {}
            for x in self.program.variables:
                fresh[x.name()] = cp.Variable(x.shape)
                total = total + cp.sum_squares(fresh[x.name()] - named[x.name()][0]) / (2 * t)
            for record in self._rows(k):
                total = total + self._signed(self.program.expression, fresh, record)
            limits += self._limits(fresh)
            parts.append(fresh)
        problem = cp.Problem(cp.Minimize(total), limits)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about accuracy, which is judged here
            problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
        if problem.status not in ("optimal", "optimal_inaccurate"):
            raise cp.error.SolverError(f"CVXPY reports {problem.status}")
        return self.program.layout.pack({n: np.stack([part[n].value for part in parts]) for n in parts[0]})

    def _signed(self, e, fresh, record=None):
        """The expression on fresh variables, each part without variables as a number of known sign."""
        own = {id(x): with_sign(x, fresh[x.name()]) for x in self.program.variables} | self._known(record)
        return folded(e, own)

    def _limits(self, fresh):
        limits = [c.copy([self._signed(a, fresh) for a in c.args]) for c in self.program.constraints]
        return limits + [c for x in self.program.variables for c in attribute_constraints(x, fresh[x.name()])]

    def violation(self, theta):
        """Largest violation of constraints and attributes in each stratum."""
        out, named = np.zeros(len(theta)), self.program.layout.unpack(theta)
        fresh = {x.name(): cp.Variable(x.shape) for x in self.program.variables}
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
        out[v.name()] = 0.5 * (d + np.swapaxes(d, 1, 2)) if v.ndim == 2 and v.is_symmetric() else d
    return out


def _drawn(parameter, rng):
    """A value for a hyperparameter that has none."""
    return np.asarray(parameter.project(rng.uniform(0.2, 0.8, size=parameter.shape)), dtype=float)


def _error(difference, size):
    difference = np.where(difference == difference, np.abs(difference), 0.0)
    return float(np.max(difference / (1 + np.where(np.isfinite(size), np.abs(size), 0.0)), initial=0.0))
