"""Programs: a compiled expression without data, printable, to be bound to records."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from strat.compiler.bind import Assembly
from strat.compiler.binder import Binder
from strat.compiler.bound_oracle import BoundOracle
from strat.compiler.convexity import Curvature
from strat.compiler.data_checks import Origin, check_convexity, check_data_arguments
from strat.compiler.evaluate import Evaluator, leaves
from strat.compiler.evaluation import Evaluation
from strat.compiler.find_prox import loss_oracle, regularizer_oracle
from strat.compiler.report import describe
from strat.compiler.smoothing import smoothed
from strat.compiler.symbols import Symbols
from strat.compiler.verify import check_program
from strat.compiler.walk import Walker
from strat.errors import DataError, DeclarationError
from strat.oracles.layout import Layout
from strat.oracles.segments import Segments
from strat.records.records import read_records, read_weight
from strat.records.strata import Strata
from strat.rules import atoms, rule_of


class Program:
    """A compiled expression: what it is made of, before any data.

    Made by ``strat.compile``; ``print`` it to see which rule each piece got.

    Parameters
    ----------
    expression : cvxpy.Expression
        The function.
    data : tuple of cvxpy.Parameter
        One record's data.
    constraints : tuple
        Constraints on one stratum's variables.
    variables : tuple of cvxpy.Variable
        All variables, in the order of the parameter vector.
    what : str
        The role of the expression, for messages.
    smoothing : float, optional
        Width of the envelopes of piecewise linear parts.
    curvature : Curvature, optional
        What is known of the expression's convexity.

    Attributes
    ----------
    layout : Layout
        Where each variable lies in a stratum's flat parameter vector.
    """

    def __init__(
        self,
        expression: cp.Expression,
        data: Any,
        constraints: tuple,
        variables: Any,
        what: str,
        smoothing: float | None = None,
        curvature: "Curvature | None" = None,
    ) -> None:
        self.expression, self.data, self.constraints = expression, tuple(data), tuple(constraints)
        self.variables, self.what, self.smoothing = tuple(variables), what, smoothing
        self.layout = Layout({v.name(): v.shape for v in variables})
        self.symbols = Symbols()
        walker = self._walker(self.symbols, {})
        self.form = walker(expression)
        if self.form.size == 1:
            self.form = self.form.reshaped(())
        if curvature is not None:
            self._curvature = curvature
        if not self.hyperparameters:  # whose values would be read as constants
            self._last = ({}, walker)

    @cached_property
    def hyperparameters(self):
        """Parameters that are no record data, in order of appearance."""
        ids = {p.id for p in self.data}
        found = {}
        for source in (self.expression, *self.constraints):
            found.update((p.id, p) for p in source.parameters() if p.id not in ids)
        return tuple(found.values())

    def __str__(self):
        return describe(self)

    __repr__ = __str__

    def __getstate__(self):
        """All but what goes by identities of expressions, which a copy has not."""
        return {k: v for k, v in self.__dict__.items() if k not in ("_curvature", "_last")}

    def _walker(self, symbols, values):
        return Walker(symbols, {p.id for p in self.data}, rule_of, values)

    @cached_property
    def _curvature(self):
        return Curvature(self.expression, self.what)

    def _walked(self, values):
        """A walker that has read the expression and its factors, for values of hyperparameters by CVXPY id.

        The last one is kept, and copied, so that one that goes on reading changes no other's symbols.
        """
        key = {i: (value.shape, value.tobytes()) for i, value in values.items()}
        last = self.__dict__.get("_last")
        if last is None or last[0] != key:
            walker = self._walker(Symbols(), values)
            for expression in (self.expression, *self._curvature.factors):
                walker(expression)
            last = self._last = (key, walker)
        return last[1].copy()

    def values(self, given=None):
        """Values of the hyperparameters.

        Parameters
        ----------
        given : dict, optional
            Values by name, which go before the Parameters' own.

        Returns
        -------
        dict
            Values by CVXPY id.

        Raises
        ------
        DeclarationError
            If one has no value.
        """
        found = [(p, (given or {}).get(p.name(), p.value)) for p in self.hyperparameters]
        missing = [p.name() for p, value in found if value is None]
        if missing:
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
            For the random numbers.

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
            One argument for each data Parameter; rows are records. None at all for a program without data.
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
        arrays = read_records(self.data, data, what_for(self.what))
        N = arrays[0].shape[0] if arrays else len(strata)
        if N == 0:
            raise DataError(f"{what_for(self.what)} was given no records; there is nothing to bind.")
        grouped = Strata([0], np.zeros(N, dtype=np.intp)) if strata is None else None
        if grouped is None:
            grouped = Strata.read(strata, data[0] if data else None, N, strata_order)
        weight = read_weight(sample_weight, N)
        oracle = self.bind_records(arrays, grouped, weight, prox=True)
        return BoundOracle(self, oracle, list(grouped.labels))

    def bind_regularizer(self, given=None):
        """Flat oracle of a program without data.

        Parameters
        ----------
        given : dict, optional
            Values of hyperparameters by name.

        Returns
        -------
        SumOracle
            The oracle of (K, n) arrays.
        """
        values = self.values(given)
        walker = self._walked(values)
        symbols, form = walker.symbols, walker(self.expression).reshaped(())
        evaluator = Evaluator(symbols, {})
        check_convexity(self._curvature, walker, evaluator, None)
        binder = Binder(symbols, evaluator, self._coordinates(), self.layout.n, None)
        return regularizer_oracle(self, Assembly(form, binder, None), walker, values)

    def bind_constraints(self, given=None):
        """Flat oracle of the constraints and attributes alone: value 0, prox a projection.

        Parameters
        ----------
        given : dict, optional
            Values of hyperparameters by name.

        Returns
        -------
        SumOracle
            The oracle of (K, n) arrays.
        """
        return self.without_expression().bind_regularizer(given)

    def without_expression(self):
        """The program of the constraints and attributes alone.

        Returns
        -------
        Program
            Of the expression 0.
        """
        return Program(atoms.Constant(0.0), (), self.constraints, self.variables, "the constraints")

    def bind_records(self, arrays, strata, weight, given=None, prox=False, smooth=True, constrained=True):
        """Flat oracle of a program with data.

        Parameters
        ----------
        arrays : list of ``(N, *shape)`` ndarray or (N, size) csr_array
            The records' data.
        strata : Strata
            The grouping of records.
        weight : (N,) ndarray
            The records' weights; those of weight 0 are left out.
        given : dict, optional
            Values of hyperparameters by name.
        prox : bool
            Whether to look for a prox.
        smooth : bool
            Whether the declared smoothing applies.
        constrained : bool
            Whether the prox must hold constraints and attributes; symmetry it always holds.

        Returns
        -------
        SumOracle
            The oracle of (K, n) arrays.
        """
        values = self.values(given)
        order = strata.order[weight[strata.order] > 0]
        segments = Segments(strata.index[order], strata.K)
        origin = Origin(order, strata, self.data, arrays)
        walker = self._walked(values)
        symbols, form = walker.symbols, walker(self.expression).reshaped(())
        evaluator = Evaluator(symbols, leaves(self.data, arrays, order), origin.illegal)
        check_convexity(self._curvature, walker, evaluator, origin)
        binder = Binder(symbols, evaluator, self._coordinates(), self.layout.n, segments)
        check_data_arguments(binder, form, origin)
        smooth = smooth and self.smoothing is not None
        if smooth:
            form = smoothed(form, walker, binder, self.smoothing)
        assembly = Assembly(form, binder, weight[order])
        return loss_oracle(self, assembly, walker, values, prox, constrained, smooth)

    def evaluation(self, arrays, strata, given=None):
        """Values of the expression on each record, as a function of theta.

        Parameters
        ----------
        arrays : list of arrays
            The records' data.
        strata : Strata
            The grouping of records.
        given : dict, optional
            Values of hyperparameters by name.

        Returns
        -------
        Evaluation
            ``evaluation(theta)`` gives ``(N, *shape)`` for theta (K, n).
        """
        return Evaluation(self, arrays, strata, self.values(given))

    def _coordinates(self):
        return {v.id: self.layout.slices[v.name()] for v in self.variables}


def what_for(what):
    """Who asks for data, for messages."""
    return f"bind of {what}"
