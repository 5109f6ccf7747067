"""Which prox a bound program gets: a closed form, Newton's method, or a cone program of all strata."""

from contextlib import suppress

from strat.compiler.cone_form import RecordCones, stratum_cones
from strat.compiler.data_checks import check_fixed
from strat.compiler.piecewise_rows import NoProx
from strat.compiler.prox import ProxBuilder
from strat.compiler.sets import Sets
from strat.errors import NoOracleError
from strat.oracles.cone_prox import ConeProx
from strat.oracles.prox_newton import NewtonProx
from strat.oracles.prox_quadratic import QuadraticProx
from strat.oracles.quadratic import summed_quadratics


def regularizer_oracle(program, assembly, walker, values):
    """The oracle of a program without data, with the prox of the expression and the constraints.

    Parameters
    ----------
    program : Program
    assembly : Assembly
        Its expression, bound.
    walker : Walker
    values : dict
        Hyperparameters by CVXPY id.

    Returns
    -------
    SumOracle
        ``why["prox"]`` says why the prox has no closed form, where it has none.
    """
    binder, layout = assembly.binder, program.layout
    check_fixed(program.constraints, values)
    sets = _sets(program, walker, binder)
    builder = ProxBuilder(binder, assembly.roots, assembly.linear, sets, layout, assembly.active)
    cones = _Once(lambda: [stratum_cones(program, values, *builder.domain(), sets.transposed)])
    try:
        return assembly.oracle(builder.build(), "", cones)
    except NoProx as error:
        reason = str(error)
    oracle = assembly.oracle(None, reason, cones)
    oracle.prox = ConeProx(cones, program.what, restricted=sets.restrict)
    if not sets.restrict and oracle.has("hessian_operator"):
        oracle.prox = NewtonProx(oracle, sets.transposed, oracle.prox)
    return oracle


def loss_oracle(program, assembly, walker, values, prox, constrained, smoothed):
    """The oracle of a program with data.

    Parameters
    ----------
    program : Program
    assembly : Assembly
        Its expression, bound to records, smoothed where that is declared.
    walker : Walker
    values : dict
        Hyperparameters by CVXPY id.
    prox : bool
        Whether to look for a prox.
    constrained : bool
        Whether the prox holds constraints and attributes; symmetry it always holds.
    smoothed : bool
        Whether the form is smoothed, so that the records' cones are another function.

    Returns
    -------
    SumOracle
    """
    binder, layout = assembly.binder, program.layout

    def of_records():
        return [RecordCones(program, values, walker, binder).cones(assembly.weight, binder.segments)]

    records = None if smoothed else _Once(of_records, binder.segments.N * binder.n)
    if not prox:
        return assembly.oracle(cones=records)
    check_fixed(program.constraints, values)
    # Attributes that need not be held are held where they are free, in closed forms: a loss is steep outside.
    sets = _sets(program, walker, binder) if constrained else Sets(binder.n)
    if not constrained:
        sets.symmetries(program.variables, layout)

    def whole():
        if not constrained:
            return records()
        return [
            *records(),
            stratum_cones(program.without_expression(), values, sets.low, sets.high, sets.transposed),
        ]

    builder = ProxBuilder(binder, assembly.roots, assembly.linear, sets, layout, assembly.active)
    cone_prox = None if smoothed else ConeProx(_Once(whole), program.what, builder.domain())
    oracle = assembly.oracle(None, "", records)
    if not assembly.quadratics and not any(binder.node_has_data(node) for node in assembly.roots):
        # The loss of all records of a stratum is one function of the stratum, as a regularizer is.
        try:
            oracle.prox = builder.build()
            return oracle
        except NoProx as error:
            oracle.why["prox"] = str(error)
    if not sets.restrict and not assembly.roots:
        oracle.prox = QuadraticProx(summed_quadratics(assembly.parts()), sets.transposed)
    elif not sets.restrict and oracle.has("hessian_operator"):
        oracle.prox = NewtonProx(oracle, sets.transposed, cone_prox)
    else:
        oracle.prox = cone_prox
        oracle.why.setdefault("prox", "losses of records with kinks or a domain have no prox in closed form")
    return oracle


def _sets(program, walker, binder):
    sets = Sets(binder.n)
    sets.attributes(program.variables, program.layout)
    for constraint in program.constraints:
        if constraint.variables():
            sets.constraint(constraint, walker, binder, program.layout)
    return sets


class _Once:
    """A function without arguments that is called once, when its result is first needed.

    Attributes
    ----------
    size : int
        How many numbers of records the result will hold, known before it is made.
    """

    def __init__(self, make, size=0):
        self._make, self._made, self._error, self.size = make, None, None, size

    def __call__(self):
        if self._made is None and self._error is None:
            try:
                self._made = self._make()
            except NoOracleError as error:
                self._error = str(error)
        if self._error is not None:
            raise NoOracleError(self._error)
        return self._made

    def __getstate__(self):
        with suppress(NoOracleError):
            self()  # functions inside functions are not pickled, their result is
        return {**self.__dict__, "_make": None}
