"""A model bound to records: the problem that solvers see, for the model's constants or others, and a point in its domain."""

from dataclasses import replace
from functools import cached_property, partial
from weakref import WeakKeyDictionary

import numpy as np

from strat.compiler import coupling, sharded
from strat.compiler.program import Program
from strat.errors import DataWarning, NoOracleError, OptionError, is_nonnegative
from strat.graphs.candidates import candidate_edges
from strat.graphs.prior_graph import PriorGraph, read_graph
from strat.oracles.base import Rescaled, SumOracle
from strat.oracles.central_points import central_points, off_edges
from strat.oracles.cone_program import ConeProgram
from strat.oracles.iterated_prox import ConeProx, NewtonProx
from strat.problem.edges import AllPairs, EdgeList
from strat.problem.graph_regularizers import FixedGraph
from strat.problem.joint_problem import JointProblem
from strat.records.archive import fingerprint
from strat.records.chunks import ChunkedRecords
from strat.records.records import Records
from strat.records.sample import Sample
from strat.rules import atoms, text
from strat.solvers.starts import default_solver, needs_prox, point

#: Records of a stratum in the cone programs for a first point, until the losses of all records are finite there.
RECORDS = 8, 128, np.inf


class BindingCache:
    """``bind(values)`` for a program's hyperparameter values by name, with the results for the last `size` values kept."""

    def __init__(self, program, bind, size=1):
        self.parameters, self.bind, self.size, self.entries = program.hyperparameters, bind, size, {}

    def __call__(self, values):
        key = fingerprint(*(values.get(p.name(), p.value) for p in self.parameters))
        entry = self.entries.pop(key) if key in self.entries else self.bind(values)
        self.entries[key] = entry  # the most recently used entries come last
        if len(self.entries) > self.size:
            del self.entries[next(iter(self.entries))]
        return entry


#: The bound regularizers of each declaration: they hold no records, so that all fits share them.
_REGULARIZERS = WeakKeyDictionary()
KEPT = 32


class BoundModel:
    """A model and records, read once; `problem` takes constants and binds again only what depends on changed ones.

    `data`, `strata` and `sample_weight` are those of ``fit``. Instead, `records` may be those of the model's fit (the fit's
    `values` then hold), or a function that reads records given the strata in order. `nodes` are the strata of a model without
    a graph, by default the labels seen. W may be nonzero on ``edges``, by default those that the model declares.
    """

    def __init__(self, model, data=(), strata=None, sample_weight=None, nodes=None, records=None, edges=None):
        self.model, self.base, self.shared = model, model.base, model.shared
        now = records is None or callable(records)
        self.values = self.base._values_with(model._values if now else model.values)
        # Called only to raise its error, which names the Parameters that data= lacks.
        self.base.loss_program.hyperparameter_values(self.values)
        if now:
            nodes = nodes if model.graph is None else self.prior.labels
            read = partial(Records.read, self.base.data, data, strata, "fit", model.strata)
            records = records(nodes) if records else read(nodes, sample_weight)
        self.records, self.chunked = records, isinstance(records, ChunkedRecords)  # chunks: a sample only
        # The strata of the problem: a single one where all share their parameters.
        self.strata = records.strata.merged() if self.shared else records.strata
        self._losses = BindingCache(self.base.loss_program, self.bind_loss)
        self.edges = self._edges() if edges is None else edges

    @cached_property
    def prior(self):
        """The strata in order, and the graph W0."""
        graph = self.model.graph
        return PriorGraph.without_edges(self.records.strata.labels) if graph is None else read_graph(graph)

    @property
    def regularizer_weight(self):
        """How often the regularizer counts: once for each stratum, or K times for shared parameters unless one is given."""
        weight = getattr(self.model, "regularizer_weight", None)
        if weight is None:
            return float(self.prior.K) if self.shared else 1.0
        if not (is_nonnegative(weight) and weight):
            raise OptionError(f"regularizer_weight must be a positive number, not {weight!r}.")
        return float(weight)

    def problem(self, *, scale=None, values=None, w0=None, graph_regularizer=None):
        """The `JointProblem` for given constants, by default the model's; `w0` replaces the graph and `scale`."""
        h = FixedGraph() if self.shared else graph_regularizer or self.model.graph_regularizer
        values, outside = {**self.values, **(values or {})}, 0.0
        if h.learned:
            h._check_edges(self.edges, self.prior.labels)
        if self.shared:
            w0 = self.edges.zeros()
        elif w0 is None:
            w0, outside = prior_weights(self.prior, self.edges, self.model.scale if scale is None else scale)
        loss, regularizer = self._oracles(values)
        couple = None  # weights of the coordinates in the distance: ones
        if coupling.by_factor(self.base.couple) and self.model.graph is not None and not self.shared:
            couple = coupling.on_edges(self.base, values, self.prior, *self.edges.ends)
        elif self.base.couple:
            couple = self.base.couple_weights(values)
        problem = JointProblem(loss.interior(), regularizer, h, self.edges, w0, couple, outside)
        if not self.chunked:  # chunked records need a given start inside the domain
            records = replace(self.records, strata=self.strata)
            if loss is self._losses(values):  # otherwise the regularizer is part of the loss
                problem.empty = self.strata.counts == 0
            problem.start_point = partial(first_point, self.base, records, values, problem)
        return problem

    def held_out(self, part, weight=None, smooth=False):
        """Records that are not fitted, given as a part of a `Sample`, as a `HeldOut`."""
        options = {"declared": self.model.strata, "columns": self.records.columns, "weight": weight}
        options["nodes"] = None if self.shared else self.records.strata.labels
        records = Records.read(self.base.data, part.data, part.strata, part.where, **options)
        if self.shared:
            records.strata = records.strata.merged()
        return HeldOut(self.base, records, self.values, smooth)

    def validation(self, arguments, smooth=False):
        """The `HeldOut` records of one tuple ``(*data, strata)``."""
        return self.held_out(Sample([self.model], arguments, "validation").part(), smooth=smooth)

    def _edges(self):
        model, prior = self.model, self.prior
        if self.shared:
            return EdgeList(1, [], [])
        if not model.graph_regularizer.learned:
            return EdgeList(prior.K, prior.i, prior.j)
        edges = learned_edges(model.edges, prior, self._rough_parameters)
        if coupling.by_factor(self.base.couple) and edges.all_pairs:
            return EdgeList(prior.K, *edges.ends)  # on an EdgeList, each edge may have weights of its own
        return edges

    def _rough_parameters(self):
        """Parameters (K, n) of a rough fit on the prior graph, scaled so that distances between strata are Euclidean."""
        self.edges = EdgeList(self.prior.K, self.prior.i, self.prior.j)
        problem = self.problem(graph_regularizer=FixedGraph())
        return problem.scaled(point(problem, "lrsm")[0])

    def _oracles(self, values):
        """The loss, and the regularizer with the constraints; a smooth regularizer without a closed prox joins the loss."""
        loss, weight = self._losses(values), self.regularizer_weight
        program = self.base.regularizer_program
        bind = BindingCache(program, partial(_bind_regularizer, program), KEPT)
        regularizer, constraints = _REGULARIZERS.setdefault(self.base, bind)(values)
        if constraints is not None and loss.has("value_and_gradient") and not loss.has("prox"):
            curved = loss.has("hessian_operator") and regularizer.has("hessian_operator")
            loss = SumOracle([loss, Rescaled(regularizer, weight)], loss.n, True, curved, None, loss.why)
            regularizer = constraints
        return loss, regularizer if weight == 1.0 else Rescaled(regularizer, weight)

    def bind_loss(self, values, smooth=True):
        """The loss at the records, with a prox where the solver needs one; the constraints belong to the regularizer."""
        program, solver, records = self.base.loss_program, self.model.solver, self.records
        if self.chunked:
            loss = sharded.in_chunks(program, records, self.shared, values, smooth)
            if not self.shared:
                records.strata.counts = loss.counts()
            return loss
        arguments = records.arrays, self.strata, records.weight, values
        if not smooth:
            return program.bind_records(*arguments, smooth=False)
        if not needs_prox(solver):
            many = sum(array.size for array in records.arrays) >= sharded.MANY
            if many and (loss := sharded.in_pieces(program, *arguments)) is not None:
                return loss
            loss = program.bind_records(*arguments)
            learned = self.model.graph_regularizer.learned and not self.shared
            if not needs_prox(solver or default_solver(loss, learned)):
                return loss
        loss = program.bind_records(*arguments, prox="free")
        if getattr(loss.prox, "costly", False):
            DataWarning.warn(
                f"the prox of the loss is a cone program of all records in every iteration, which is slow, because "
                f"{loss.why['prox']}. Fit with strat.Cone(), the default, which needs no prox of the loss."
            )
        return loss


class HeldOut:
    """Records that are not fitted: their losses as functions of theta (K, n), with the model's `values` or others.

    With `smooth` the declared smoothing applies, which derivatives need.
    """

    def __init__(self, base, records, values, smooth=False):
        self.base, self.records, self.values, program = base, records, values, base.loss_program
        bind = partial(program.bind_records, records.arrays, records.strata, records.weight, smooth=smooth)
        self._oracle = BindingCache(program, bind)

    @cached_property
    def losses(self):
        """Loss of each record, shape (N,), as a function of theta."""
        return self.base.loss_program.evaluation(self.records.arrays, self.records.strata, self.values)

    def mean_loss(self, theta, values=None):
        """Mean of the records' losses, weighted where weights were given; +inf outside the domain."""
        oracle = self._oracle({**self.values, **(values or {})})
        return float(oracle.value(theta).sum()) / self.records.weight.sum()

    def mean_loss_and_gradient(self, theta):
        """The same, and its gradient in theta, shape (K, n); a NoOracleError where the loss has none."""
        oracle = self._oracle(self.values)
        if not oracle.has("value_and_gradient"):
            raise NoOracleError(
                f"the loss has no gradient: {oracle.missing('value_and_gradient')}. Smooth it: smoothing= on the BaseModel."
            )
        value, gradient = oracle.value_and_gradient(theta)
        total = self.records.weight.sum()
        return float(value.sum()) / total, gradient / total


def learned_edges(edges, prior, parameters):
    """Where a learned W may be nonzero: on all pairs, or on the candidate edges that a user's ``edges=`` specifies."""
    if isinstance(edges, str) and edges == "all":
        return AllPairs(prior.K)
    return EdgeList(prior.K, *candidate_edges(edges, prior, parameters))


def prior_weights(prior, edges, scale=1.0):
    """W0 on a set of edges, as an edge array, and the sum of squares of its weights on other pairs."""
    w0 = prior.weights_on(*edges.ends, scale)
    return w0, max(float(np.sum(prior.weights(scale) ** 2) - w0 @ w0), 0.0)


def _bind_regularizer(program, values):
    """The regularizer, and its constraints alone if its other terms may join the loss, else None."""
    regularizer = program.bind_regularizer(values)
    if not isinstance(regularizer.prox, NewtonProx) or not regularizer.has("value_and_gradient"):
        return regularizer, None
    constraints = program.constraints_alone.bind_regularizer(values)
    return regularizer, None if getattr(constraints.prox, "costly", False) else constraints


def first_point(base, records, values, problem, theta, bad):
    """theta (K, n), with a point inside the domain in the `bad` strata, where the loss or its gradient is not finite.

    It is argmin_z loss(z) + ½‖z − theta‖², where that has a closed form, and otherwise the best of some points at which the
    atoms' arguments are at various distances from the ends of their domain. Where these fail, it is
    argmin_z loss(z) + regularizer(z) + ½‖z − theta‖², by one cone program for these strata, with few of their records at first.
    """
    loss, regularizer = problem.loss, problem.regularizer
    near, theta, best = theta, theta.copy(), np.full(len(theta), np.inf)
    arguments = records.arrays, records.strata, records.weight, values
    bound = base.loss_program.bind_records(*arguments, prox="free", smooth=False)
    closed = bound.has("prox") and not isinstance(bound.prox, NewtonProx | ConeProx)
    points = [bound.prox(near, 1.0)] if closed else central_points(loss, near)
    for z in points:
        near = problem.project(z)
        value = np.where(problem.inside(near), loss.value(near) + regularizer.value(near), np.inf)
        better = bad & (value < best)
        theta[better], best[better] = near[better], value[better]
    lost, error, functions = np.flatnonzero(bad & ~(best < np.inf)), None, []
    for most in RECORDS:
        if not lost.size or error:
            break
        try:
            functions = functions or [
                *bound.cones(),
                *base.regularizer_program.bind_regularizer(values).cones(),
            ]
            some = [function.take(lost, most) for function in functions]
            program = ConeProgram(len(lost), problem.n, some, what="the first point")
            theta[lost] = program.solve(np.ones((len(lost), problem.n)), -theta[lost]).theta
            theta = off_edges(loss, problem.project(theta), problem.project)
        except NoOracleError as why:
            error, theta = why, near
        lost = np.flatnonzero(bad & ~problem.inside(theta))
    if not lost.size:
        return theta
    where = f"stratum {records.strata.labels[lost[0]]!r}"
    for piece in base.loss.args if isinstance(base.loss, atoms.AddExpression) else [base.loss]:
        program = Program(piece, base.data, (), base.loss_program.variables, "the loss")
        found = program.evaluation(records.arrays, records.strata, values)(theta)
        outside = ~np.isfinite(found) & np.isin(records.strata.index, lost)
        if outside.any():
            record = int(np.argmax(outside))
            label = records.strata.labels[records.strata.index[record]]
            where = f"{text(piece, 60)} of record {record} (stratum {label!r})"
            break
    way = "give init= values inside the loss's domain"
    if "PrimalInfeasible" in str(error):
        way = "relax the constraints: no parameters satisfy them inside the loss's domain, so that no init= helps"
    raise OptionError(
        f"init: no point was found where the losses of all strata and their gradients are finite. At the last one tried "
        f"the first piece outside its domain is {where}; strata in question: {len(lost)}. Check these records, or {way}."
    ) from error
