"""Programs: an expression, checked and compiled without data, printable, to be bound to records."""

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from strat.compiler import check
from strat.compiler.binder import Assembly, Binder, evaluation
from strat.compiler.bound_oracle import BoundOracle
from strat.compiler.device_binder import DeviceBinder
from strat.compiler.pieces import split
from strat.compiler.piecewise import first_kink, smoothed
from strat.compiler.prox import with_prox
from strat.compiler.report import header, piece_rows, prox_line
from strat.compiler.value_checks import Curvature, Origin
from strat.compiler.verify import Reference, check_program
from strat.compiler.walk import Walker
from strat.errors import DataError, DeclarationError
from strat.oracles.base import is_foreign
from strat.oracles.design import Segments
from strat.oracles.device import Blocks, Device
from strat.oracles.layout import Layout
from strat.records.records import read_records, read_weight
from strat.records.strata import Strata
from strat.records.tables import Shown, aligned
from strat.rules import atoms


def compile(expression: cp.Expression | float, data: Sequence = (), constraints: Sequence = ()) -> "Program":
    """Compile a scalar CVXPY expression.

    Parameters
    ----------
    expression : cvxpy.Expression or float
        A convex function of CVXPY variables and of the data of one record.
    data : sequence of cvxpy.Parameter
        The data of one record, in the order of ``bind``'s arguments. Without data the expression is a function of
        one stratum, such as a regularizer.
    constraints : sequence of cvxpy constraints
        On the variables of one stratum; they act in ``prox``.

    Returns
    -------
    Program

    Raises
    ------
    DeclarationError, ShapeError, NotPerRecordError, NotConvexError, NoOracleError
        Where the expression has no meaning as the function of one record, is not convex, or has an atom without a rule.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, strat
    >>> theta = cp.Variable(2, name="theta")
    >>> oracle = strat.compile(cp.norm1(theta)).bind()
    >>> oracle.prox(np.array([[3.0, -0.5]]), 1.0)
    array([[2., 0.]])
    """
    data = check.check_data(data)
    constraints = check.check_constraints(constraints, data)
    program = compiled(expression, data, constraints, "the loss" if data else "the expression")
    unused = [p.name() for p in data if p.id not in {q.id for q in program.expression.parameters()}]
    if unused:
        raise DeclarationError(
            f"the data Parameter {unused[0]} does not occur in the expression; remove it from data, or use it."
        )
    return program


def compiled(expression, data, constraints, what, smoothing=None, variables=()):
    """The program of an expression in a role; data and constraints have been checked, and not all data need occur in it."""
    expression = check.as_expression(expression, what)
    check.check_expression(expression, what)
    found = {v.id: v for source in (*variables, expression, *constraints) for v in source.variables()}
    check.check_variables(found.values())
    check.check_per_record(expression, data)
    Curvature(expression, what).check_declaration()
    check.warn_of_meanings(expression, constraints)
    return Program(expression, data, constraints, tuple(found.values()), what, smoothing)


class Program(Shown):
    """A compiled expression: what it is made of, before any data.

    Made by ``strat.compile``; ``print`` it to see which rule each piece got. ``layout`` says where each variable lies in a
    stratum's flat parameter vector.

    Parameters
    ----------
    expression : cvxpy.Expression
        The function.
    data, constraints, variables : tuple
        One record's Parameters, constraints on one stratum's variables, and these variables in the parameter vector's order.
    what : str
        The role of the expression, for messages.
    smoothing : float, optional
        Width of the envelopes of piecewise linear parts.
    """

    def __init__(
        self,
        expression: cp.Expression,
        data: Any,
        constraints: tuple,
        variables: Any,
        what: str,
        smoothing: float | None = None,
    ) -> None:
        self.expression, self.data, self.constraints = expression, tuple(data), tuple(constraints)
        self.variables, self.what, self.smoothing = tuple(variables), what, smoothing
        self.layout = Layout({v.name(): v.shape for v in variables})
        walker = Walker(self._ids)
        self.symbols, self.form = walker.symbols, walker(expression)
        if not self.hyperparameters:  # whose values would be read as constants
            self._last = ({}, walker)

    _ids = property(lambda self: frozenset(p.id for p in self.data))  # deep copies have new ids
    curvature = cached_property(lambda self: Curvature(self.expression, self.what))

    @cached_property
    def hyperparameters(self):
        """Parameters that are not record data, in order of appearance."""
        sources = (self.expression, *self.constraints)
        return tuple({p.id: p for s in sources for p in s.parameters() if p.id not in self._ids}.values())

    def __str__(self):
        head = ("weight", "piece", "rule", "argument", "oracles")
        pieces = aligned([head, *piece_rows(self)], numbers=False)
        return "\n".join([header(self), pieces, *prox_line(self)])

    def __getstate__(self):
        """All attributes but those that refer to expressions by object id, which a copy does not share."""
        return {k: v for k, v in self.__dict__.items() if k not in ("curvature", "_last")}

    def _read(self, given=None, arrays=(), strata=None, weight=None, part=None):
        """(walker that reads expressions, binder that gives their values at records, if any, origin of the records or None)."""
        values = self.hyperparameter_values(given)
        key = {i: (value.shape, value.tobytes()) for i, value in values.items()}
        last = self.__dict__.get("_last")
        if last is None or last[0] != key:
            walker = Walker(self._ids, values)
            for expression in (self.expression, *self.curvature.factors):
                walker(expression)
            last = self._last = (key, walker)
        walker = last[1].copy()  # so that later reading does not change the symbols of others
        coordinates = {v.id: self.layout.slices[v.name()] for v in self.variables}
        if strata is None:
            return walker, Binder(walker.symbols, {}, coordinates, self.layout.n, None), None
        order = part
        if part is None:
            order = strata.order if weight is None else strata.order[weight[strata.order] > 0]
        blocks = Blocks(strata.index[order]) if any(map(is_foreign, arrays)) else None
        order = order if blocks is None else order[blocks.places.reshape(-1)]
        origin, pairs = Origin(order, strata, self.data, arrays), zip(self.data, arrays, strict=True)
        leaves = {p.id: _rows(array, order) for p, array in pairs}
        illegal, index = None if weight is None else origin.illegal, strata.index[order]
        if part is not None:  # number the strata that occur
            index = np.cumsum(np.diff(index, prepend=index[:1]) > 0)
        segments = Segments(index, strata.K if part is None else index[-1] + 1)
        kind = Binder if blocks is None else partial(DeviceBinder, blocks)
        return walker, kind(walker.symbols, leaves, coordinates, self.layout.n, segments, illegal), origin

    def hyperparameter_values(self, given=None):
        """Values of the hyperparameters by CVXPY id; values `given` by name take precedence over the Parameters' own."""
        found = [(p, (given or {}).get(p.name(), p.value)) for p in self.hyperparameters]
        if missing := [p.name() for p, value in found if value is None]:
            one, names = len(missing) == 1, ", ".join(missing)
            have = "has no value and is" if one else "have no values and are"
            raise DeclarationError(
                f"the Parameter{'' if one else 's'} {names} in {self.what} {have} not among data=(…). "
                f"Set {missing[0]}.value if it is a hyperparameter, or declare record data: data=({names}{',' * one})."
            )
        return {p.id: v.toarray() if sp.issparse(v) else np.asarray(v, dtype=float) for p, v in found}

    def check(self, seed=0):
        """Compare the compiled oracles with CVXPY itself, at random records and points.

        Values are compared with CVXPY's, gradients with differences of CVXPY's values, Hessian products with
        differences of gradients, and the prox with a CVXPY solve. No Variable's or Parameter's value changes.

        Parameters
        ----------
        seed : int
            Seed of the random numbers.

        Returns
        -------
        Report
            It prints as a table; ``ok`` says whether everything agreed.
        """
        return check_program(self, seed)

    def bind(
        self,
        *data: Any,
        strata: Any = None,
        sample_weight: ArrayLike | None = None,
        strata_order: Sequence | None = None,
    ) -> "BoundOracle":
        """Bind the program to records.

        Parameters
        ----------
        *data : array-like
            One argument for each data Parameter; rows are records. A program without data takes none.
        strata : sequence, optional
            Label of each record; None puts all records into one stratum.
        sample_weight : (N,) array-like, optional
            Weights of the records, 1 by default.
        strata_order : sequence, optional
            The strata in order; sorted labels by default.

        Returns
        -------
        BoundOracle

        Raises
        ------
        DataError, ShapeError, NotConvexError, GraphError
            Where the data do not fit the declaration.
        """
        if not self.data and strata is None and not data:
            return BoundOracle(self, self.bind_regularizer(), None)
        arrays = read_records(self.data, data, f"bind of {self.what}")
        N = arrays[0].shape[0] if arrays else len(strata)
        if N == 0:
            raise DataError(f"bind of {self.what} was given no records; there is nothing to bind.")
        grouped = Strata([0], np.zeros(N, dtype=np.intp))
        if strata is not None:
            grouped = Strata.read(strata, data[0] if data else None, N, strata_order)
        oracle = self.bind_records(arrays, grouped, read_weight(sample_weight, N), prox=True)
        return BoundOracle(self, oracle, list(grouped.labels))

    def bind_regularizer(self, given=None):
        """The flat oracle, on (K, n) arrays, of a program without data, with a prox; `given` are hyperparameters by name."""
        walker, binder, _ = self._read(given)
        self.curvature.check_values(walker, binder)
        form = split(walker(self.expression).reshaped(()), walker, binder)
        return with_prox(self, Assembly(form, binder, None), walker)

    @property
    def constraints_alone(self):
        """The program of the constraints and attributes alone, with the expression 0."""
        return Program(atoms.Constant(0.0), (), self.constraints, self.variables, "the constraints")

    def bind_records(
        self, arrays, strata, weight, given=None, prox=False, smooth=True, statistics=True, part=None
    ):
        """The flat oracle, on (K, n) arrays, of a program with data.

        `arrays` are ``(N, *shape)`` or sparse (N, size); records whose `weight` (N,) is 0 are left out. `given` are
        hyperparameters by name. `prox`: whether to look for one, or "free" for one that need not satisfy constraints and
        attributes other than symmetry. `smooth`: whether the declared smoothing applies. `statistics`: whether sums over
        records may replace the records. `part`: positions of the records to bind, sorted by stratum and of positive weight;
        the oracle then has the strata of these records alone, in order, and no cones.
        """
        walker, binder, origin = self._read(given, arrays, strata, weight, part)
        self.curvature.check_values(walker, binder, origin)
        form = walker(self.expression).reshaped(())
        smooth, weight = smooth and self.smoothing is not None, weight[origin.order]
        width = self.smoothing if smooth else None
        if binder.blocks is not None:
            weight = weight * binder.blocks.real.reshape(-1)
            # On devices, nested atoms with kinks are computed only as an envelope, here of width 0.
            width = width if smooth or self.smoothing is None else 0.0

        def assembled(width):
            replaced = form if width is None else smoothed(form, walker, binder, width)
            return Assembly(replaced, binder, weight, statistics)

        assembly = assembled(width)
        apart = None if first_kink(binder, assembly.roots) is None else lambda: assembled(0.0).parts()
        return with_prox(self, assembly, walker, prox, smooth, apart, part is None)

    def evaluation(self, arrays, strata, given=None, weight=None):
        """Values ``(N, *shape)`` of the expression on each record, as a function of theta (K, n).

        Where `weight` is given, the expression must be convex for the records, as in ``bind_records``.
        """
        if weight is not None and not self.curvature.always:
            self.curvature.check_values(*self._read(given, arrays, strata, weight))
        walker, binder, origin = self._read(given, arrays, strata)
        return evaluation(walker(self.expression), binder, origin.order)

    def predictions(self, arrays, strata, given=None):
        """Values (N, *shape) as a function of theta (K, n); where an atom is outside its domain, CVXPY's values."""
        values, reference = self.evaluation(arrays, strata, given), Reference(self, arrays, given or {})

        def predicted(theta):
            out = values(theta)
            for k in np.flatnonzero(~np.isfinite(out).reshape(len(out), -1).all(axis=1)):
                out[k] = reference.value(theta[strata.index[k]], k)
            return out

        return predicted


def _rows(array, order):
    """Data of the records in order, one row each, as floats; a view where they are neighbours."""
    ascending = len(order) and order[-1] - order[0] == len(order) - 1 and bool(np.all(order[1:] > order[:-1]))
    part = slice(order[0], order[-1] + 1) if ascending else order
    if sp.issparse(array):
        return array[part]
    if is_foreign(array):
        device = Device(array)
        rows = device.xp.take(array, device.xp.asarray(order, device=device.device), axis=0)
        return device.xp.reshape(rows, (len(order), -1))
    array = array[part] if ascending else array.take(order, axis=0)
    return np.asarray(array, dtype=float).reshape(len(array), -1)
