"""BaseModel: the declaration of one record's loss and one stratum's regularizer."""

from collections.abc import Sequence
from typing import Any

import cvxpy as cp
import numpy as np

from strat.compiler import coupling
from strat.compiler.binder import dense
from strat.compiler.check import as_expression, check_constraints, check_data, check_no_data
from strat.compiler.program import Program, compiled
from strat.compiler.report import header, piece_rows, prox_line
from strat.compiler.verify import check_prediction
from strat.errors import DeclarationError, OptionError, is_nonnegative
from strat.records.tables import Shown, aligned
from strat.rules import short, text


class BaseModel(Shown):
    """The model of one stratum: loss of one record, regularizer, constraints, prediction.

    The declaration is compiled at once and never changes; print it to see which rule each piece got.

    Parameters
    ----------
    loss : cvxpy.Expression
        Loss of ONE record: a convex scalar of the variables, with the record's data as Parameters. It is summed
        over the records of each stratum.
    regularizer : cvxpy.Expression or float
        A convex scalar of the variables, added once for each stratum.
    constraints : sequence of cvxpy constraints
        On the variables of one stratum.
    data : sequence of cvxpy.Parameter
        The data of one record, in the order of ``fit``'s arguments.
    predict : cvxpy.Expression, optional
        The prediction: any expression of the variables and the data.
    smoothing : float, optional
        Width of the Moreau envelope that replaces piecewise linear parts of the loss (pinball, hinge, absolute value) and
        Euclidean norms, in units of their argument. The true objective is reported beside the smoothed one.
    couple : dict or sequence, optional
        Weight of each variable in the Laplacian's distance between strata: a number, an array of the variable's
        shape, or a Parameter; 0 uncouples. A sequence of variables couples just these. 1 for all by default. On a graph
        with factors, a weight may be a dict of such weights by factor: ``{theta: {"year": 0.1, "place": 2.0}}``; factors
        left out keep 1, and the key None is for edges without a factor, which, where W is learned, include all pairs of
        strata that are not edges of the prior graph.

    Raises
    ------
    DeclarationError, ShapeError, NotPerRecordError, NotConvexError, NoOracleError, OptionError
        Where the declaration has no meaning; the message says what to write instead.

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> theta = cp.Variable(3, name="theta")
    >>> x, y = cp.Parameter(3, name="x"), cp.Parameter(name="y")
    >>> base = strat.BaseModel(
    ...     cp.logistic(-y * (x @ theta)), 0.1 * cp.norm1(theta), data=(x, y), predict=x @ theta
    ... )
    >>> base.variables
    ('theta',)
    """

    def __init__(
        self,
        loss: cp.Expression,
        regularizer: cp.Expression | float = 0,
        constraints: Sequence = (),
        data: Sequence = (),
        predict: cp.Expression | None = None,
        smoothing: float | None = None,
        couple: dict | Sequence | None = None,
    ) -> None:
        self.data = check_data(data)
        self.loss = as_expression(loss, "the loss")
        self.regularizer = as_expression(0 if regularizer is None else regularizer, "the regularizer")
        check_no_data(self.regularizer, self.data, "the regularizer")
        self.constraints = check_constraints(constraints, self.data)
        if not (smoothing is None or (is_nonnegative(smoothing) and smoothing)):
            raise OptionError(
                f"smoothing is the width of the smoothed kink, a positive number in units of its argument, not {smoothing!r}."
            )
        self.smoothing = smoothing and float(smoothing)
        if not self.loss.variables():
            raise DeclarationError(
                f"the loss has no variable in it: {text(self.loss)}. It must depend on the cp.Variable objects to be fitted."
            )
        sources = (self.loss, self.regularizer, *self.constraints)
        variables = {v.id: v for source in sources for v in source.variables()}
        every = tuple(variables.values())
        self.loss_program = compiled(self.loss, self.data, (), "the loss", self.smoothing, every)
        parts = self.regularizer, (), self.constraints
        self.regularizer_program = compiled(*parts, "the regularizer", variables=every)
        self.layout = self.loss_program.layout
        self.predict = None if predict is None else as_expression(predict, "predict")
        self.predict_program = None
        if self.predict is not None:
            if foreign := [v.name() for v in self.predict.variables() if v.id not in variables]:
                raise DeclarationError(
                    f"predict uses the variable {foreign[0]}, which the loss and regularizer do not have."
                )
            used = {p.id for p in self.predict.parameters()}
            own = [p for p in self.data if p.id in used]
            self.predict_program = Program(self.predict, own, (), self.loss_program.variables, "predict")
        self.couple = coupling.declared(couple, variables)
        _check_parameters(self)

    @property
    def variables(self) -> tuple:
        """Names of the variables, in the order of a stratum's parameter vector."""
        return tuple(self.layout.shapes)

    @property
    def hyperparameters(self) -> dict:
        """Parameters that are not record data, by name."""
        programs = filter(None, (self.loss_program, self.regularizer_program, self.predict_program))
        found = [p for program in programs for p in program.hyperparameters]
        return {p.name(): p for p in found + coupling.parameters(self.couple)}

    def _values_with(self, given):
        """Copies of the hyperparameters' values, by name; values `given` take precedence over the Parameters' own."""
        found = [(name, given.get(name, p.value)) for name, p in self.hyperparameters.items()]
        return {name: np.array(dense(v), dtype=float)[()] for name, v in found if v is not None}

    def check(self, seed: int = 0) -> Any:
        """Compare every compiled oracle with CVXPY itself, at random records and points.

        Parameters
        ----------
        seed : int
            Seed of the random numbers.

        Returns
        -------
        Report
            On the loss, the regularizer with its constraints, and the prediction. It prints as a table; ``ok`` says
            whether everything agreed. The method itself prints nothing, and no Variable or Parameter changes its value.
        """
        report, predict = self.loss_program.check(seed), self.predict_program
        report += self.regularizer_program.check(seed)
        return report if predict is None else report + check_prediction(predict, seed)

    def couple_weights(self, given: dict | None = None, factor: str | None = None) -> np.ndarray:
        """Weights (n,) of the coordinates in the distance between strata, on edges of one factor or, for None, of no factor."""
        return coupling.weights(self.couple, self.layout, given or {}, factor)

    def __sklearn_clone__(self):
        """The declaration never changes, so clones share it."""
        return self

    def __str__(self):
        loss, regularizer = self.loss_program, self.regularizer_program
        head = ("role", "weight", "piece", "rule", "argument", "oracles")
        rows = [("loss", *row) for row in piece_rows(loss)]
        rows += [("regularizer", *row) for row in piece_rows(regularizer)]
        rows += [("constraint", "", text(c, 46), "set", "", "prox") for c in self.constraints]
        for v in regularizer.variables:
            names = [k for k, a in v.attributes.items() if a is True or (k == "bounds" and a is not None)]
            rows += [("attribute", "", f"{v.name()} {name}", "set", "", "prox") for name in names]
        lines = [header(loss).replace("the loss", "BaseModel", 1), aligned([head, *rows], numbers=False)]
        lines += [f"loss's {line}" for line in prox_line(loss, prox="free")]
        lines += [f"regularizer's {line}" for line in prox_line(regularizer)]
        if self.predict is not None:
            lines.append(f"predict  {text(self.predict, 80)}")
        if self.couple:
            weights = (f"{name} {short(str(weight), 40)}" for name, weight in self.couple.items())
            lines.append(f"couple  {', '.join(weights)}")
        if self.smoothing is not None:
            what = "piecewise linear parts and norms in the loss become Moreau envelopes"
            lines.append(f"smoothing  {what} of width {self.smoothing:g}")
        return "\n".join(lines)

    def __repr__(self):
        data = ", ".join(p.name() for p in self.data)
        return f"BaseModel({text(self.loss, 40)}, {text(self.regularizer, 30)}, data=({data}))"


def _check_parameters(base):
    """Raise for data that occur nowhere, and for hyperparameters that share a name with data or with one another."""
    predict = [] if base.predict is None else [base.predict]
    found = [p for e in (base.loss, base.regularizer, *base.constraints, *predict) for p in e.parameters()]
    for p in base.data:
        if all(p.id != other.id for other in found):
            raise DeclarationError(
                f"the data Parameter {p.name()} is used neither in the loss nor in predict; remove it from data."
            )
    data, first = {p.name(): p.id for p in base.data}, {}
    for p in found + coupling.parameters(base.couple):
        if data.get(p.name(), p.id) != p.id:
            raise DeclarationError(
                f"a hyperparameter has the name {p.name()!r} of a data Parameter, but it is another object. Use the same "
                f'object everywhere, or give it its own name: cp.Parameter(…, name="…").'
            )
        if first.setdefault(p.name(), p.id) != p.id:
            raise DeclarationError(
                f"two hyperparameters have the name {p.name()!r}; their values are set by name, so give each its own: "
                f'cp.Parameter(…, name="…").'
            )
