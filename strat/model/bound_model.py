"""A model bound to records: the problem that solvers see, for the model's constants or any others."""

import copy
import warnings
from collections import OrderedDict
from dataclasses import replace
from functools import partial
from weakref import WeakKeyDictionary

import numpy as np

from strat.compiler import coupling
from strat.errors import DataError, DataWarning, NoOracleError, OptionError, type_name
from strat.graphs.candidates import candidate_edges
from strat.graphs.prior_graph import PriorGraph
from strat.graphs.reading import read_graph
from strat.model.first_point import FirstPoint
from strat.oracles.prox_newton import NewtonProx
from strat.oracles.rescaled import Rescaled
from strat.oracles.sum import SumOracle
from strat.problem.edges import AllPairs, EdgeList
from strat.problem.graph_regularizers import FixedGraph
from strat.problem.joint_problem import JointProblem
from strat.records.records import Records
from strat.solvers.default import default_solver, needs_prox


class BindingCache:
    """What a program was bound to, for the last `size` values of its hyperparameters."""

    def __init__(self, program, size=1):
        self.parameters, self.size = program.hyperparameters, size
        self.entries = OrderedDict()

    def __call__(self, values, bind):
        """``bind(values)``, or its result for the same values of hyperparameters (by name) before."""
        key = tuple(_bytes(values.get(p.name(), p.value)) for p in self.parameters)
        if key not in self.entries:
            self.entries[key] = bind(values)
            if len(self.entries) > self.size:
                self.entries.popitem(last=False)
        self.entries.move_to_end(key)
        return self.entries[key]


#: The bound regularizers of each declaration: they hold no records, so that all fits share them.
_REGULARIZERS = WeakKeyDictionary()
REGULARIZERS_KEPT = 32


class BoundModel:
    """A model and records, read once; `problem` takes constants and binds again only what depends on changed ones.

    Parameters
    ----------
    model : StratifiedModel
        The declaration, graph and constants; it is not changed.
    data, strata, sample_weight
        The records, as ``fit`` takes them.
    nodes : list, optional
        The strata in order, for a model without a graph; by default the labels seen.
    records : Records, optional
        The records where they have been read, in place of `data`, `strata` and `sample_weight`.

    Attributes
    ----------
    prior : PriorGraph
        The strata and the graph W0.
    records : Records
        The records by stratum.
    shared : bool
        Whether all strata share one set of parameters, so that the problem has a single stratum.
    edges : EdgeList or AllPairs
        Where W may be nonzero.
    """

    def __init__(self, model, data=(), strata=None, sample_weight=None, nodes=None, records=None):
        self.model, self.base, self.graph, self.shared = model, model.base, model.graph, model.shared
        self.base.loss_program.values(model.values)  # its error names Parameters that data= lacks
        prior = None if model.graph is None else read_graph(model.graph)
        self.records = records or Records.read(
            self.base.data,
            data,
            strata,
            "fit",
            declared=model.strata,
            nodes=nodes if prior is None else prior.labels,
            sample_weight=sample_weight,
        )
        self.prior = PriorGraph.without_edges(self.records.strata.labels) if prior is None else prior
        self.edges = self._edges()
        self._losses = BindingCache(self.base.loss_program)

    def on_edges(self, model, edges):
        """A copy for the same model where W may be nonzero on other edges; it shares the records and the bound loss."""
        copied = copy.copy(self)
        copied.model, copied.edges = model, edges
        return copied

    @property
    def strata(self):
        """The records' strata as the problem has them: a single one where all share their parameters."""
        return self.records.strata.merged() if self.shared else self.records.strata

    @property
    def regularizer_weight(self):
        """How often the regularizer counts: once for each stratum, shared parameters K times unless told otherwise."""
        weight = getattr(self.model, "regularizer_weight", None)
        if weight is None:
            return float(self.prior.K) if self.shared else 1.0
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 < weight < np.inf:
            raise OptionError(f"regularizer_weight must be a positive number, not {weight!r}.")
        return float(weight)

    def problem(self, *, scale=None, values=None, w0=None, graph_regularizer=None):
        """The problem for some constants; the others are the model's.

        Parameters
        ----------
        scale : float or dict, optional
            Multiplier of W0's edges, or one for each factor.
        values : dict, optional
            Values of hyperparameters by name.
        w0 : edge array, optional
            The prior graph's weights on `edges`, in place of the model's graph and scale.
        graph_regularizer : GraphRegularizer, optional
            h.

        Returns
        -------
        JointProblem
        """
        h = graph_regularizer or self.model.graph_regularizer
        h = FixedGraph() if self.shared else h
        h.check_edges(self.edges, self.prior.labels)
        values = {**self.model.values, **(values or {})}
        outside = 0.0
        if self.shared:
            w0 = self.edges.zeros()
        elif w0 is None:
            scale = self.model.scale if scale is None else scale
            w0 = prior_weights(self.prior, self.edges, scale)
            outside = weights_outside(self.prior, self.edges, w0, scale) if h.learned else 0.0
        loss, regularizer = self._oracles(values)
        problem = JointProblem(
            loss.interior(), regularizer, h, self.edges, w0, self._couple(h, values), outside
        )
        problem.start_point = FirstPoint(
            self.base, replace(self.records, strata=self.strata), values, problem
        )
        return problem

    def true_loss(self):
        """The loss without the declared smoothing, as an oracle."""
        return self._bind_loss(self.model.values, smooth=False)

    def held_out(self, data, strata, sample_weight=None, where="validation", smooth=False):
        """Read records that are not fitted, as a `HeldOut`.

        The labels must be strata of the model unless all strata share their parameters. `where` is the argument that
        the records came from, for messages.
        """
        records = Records.read(
            self.base.data,
            tuple(data),
            strata,
            where,
            declared=self.model.strata,
            nodes=None if self.shared else self.records.strata.labels,
            sample_weight=sample_weight,
            columns=self.records.columns,
        )
        if self.shared:
            records.strata = records.strata.merged()
        return HeldOut(self.base, records, self.model.values, smooth)

    def validation(self, arguments, smooth=False):
        """`held_out` records from one tuple ``(*data, strata)``."""
        if not isinstance(arguments, (tuple, list)):
            raise DataError(f"validation must be a tuple (*data, strata), not {type_name(arguments)}.")
        expected = len(self.base.data)
        if len(arguments) != expected + 1:
            raise DataError(
                f"validation must hold the {expected} data arguments and the strata, "
                f"but it has {len(arguments)} entries."
            )
        return self.held_out(arguments[:-1], arguments[-1], smooth=smooth)

    def _edges(self):
        model, prior = self.model, self.prior
        if self.shared:
            return EdgeList(1, np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp))
        if not model.graph_regularizer.learned:
            return EdgeList(prior.K, prior.i, prior.j)
        return learned_edges(model.edges, prior)

    def _couple(self, h, values):
        """Weights of the coordinates in the distance, (n,), or (E, n) where they differ by factor."""
        if h.learned and coupling.by_factor(self.base.couple):
            raise OptionError(
                f"couple has weights by factor of the graph, but {type(h).__name__} learns one weight for each pair of "
                f"strata, which has no factor. Couple one weight for all edges, or fit a given graph: strat.lrsm."
            )
        prior = None if self.graph is None or self.shared else self.prior
        return coupling.on_edges(self.base, values, prior, *self.edges.ends)

    def _oracles(self, values):
        """The loss, and the regularizer with the constraints; a smooth regularizer without a closed prox joins the loss."""
        loss = self._losses(values, self._bind_loss)
        program, weight = self.base.regularizer_program, self.regularizer_weight
        if self.base not in _REGULARIZERS:
            _REGULARIZERS[self.base] = BindingCache(program, REGULARIZERS_KEPT)
        regularizer, constraints = _REGULARIZERS[self.base](values, partial(_bind_regularizer, program))
        if constraints is not None and loss.has("value_and_gradient") and not loss.has("prox"):
            curved = loss.has("hessian_operator") and regularizer.has("hessian_operator")
            terms = [loss, Rescaled(regularizer, weight)]
            loss = SumOracle(terms, loss.n, loss.has("value_and_gradient"), curved, None, loss.why)
            regularizer = constraints
        return loss, regularizer if weight == 1.0 else Rescaled(regularizer, weight)

    def _bind_loss(self, values, smooth=True):
        """The loss at the records, with a prox where the solver needs it; the regularizer has the constraints."""
        program, solver = self.base.loss_program, self.model.solver
        bind = partial(program.bind_records, self.records.arrays, self.strata, self.records.weight, values)
        if not smooth:
            return bind(smooth=False)
        if not needs_prox(solver):
            loss, learned = bind(), self.model.graph_regularizer.learned and not self.shared
            if not needs_prox(solver or default_solver(loss, learned), loss):
                return loss
        loss = bind(prox=True, constrained=False)
        if getattr(loss.prox, "costly", False):
            warnings.warn(
                f"the prox of the loss is a cone program of all records in every iteration, which is slow, because "
                f"{loss.why['prox']}. Fit with strat.Cone(), the default, which needs no prox of the loss.",
                DataWarning,
                stacklevel=7,
            )
        return loss


class HeldOut:
    """Records that are not fitted: their losses as functions of theta.

    `values` are the model's own values of hyperparameters, by name; with `smooth` the declared smoothing applies, as
    derivatives need it.
    """

    def __init__(self, base, records, values, smooth=False):
        self.base, self.records, self.values, self.smooth = base, records, values, smooth
        self._oracles, self._evaluations = BindingCache(base.loss_program), BindingCache(base.loss_program)

    def oracle(self, values=None):
        """The loss as an oracle over the strata; `values` of hyperparameters by name go before the model's own."""
        program, records = self.base.loss_program, self.records
        bind = partial(
            program.bind_records, records.arrays, records.strata, records.weight, smooth=self.smooth
        )
        return self._oracles({**self.values, **(values or {})}, bind)

    def mean_loss(self, theta, values=None):
        """Mean of the records' losses at theta (K, n), weighted where weights were given; +inf outside the domain."""
        return float(self.oracle(values).value(theta).sum()) / self.records.weight.sum()

    def mean_loss_and_gradient(self, theta, values=None):
        """The same, and its gradient in theta, shape (K, n); a NoOracleError where the loss has none."""
        oracle = self.oracle(values)
        if not oracle.has("value_and_gradient"):
            raise NoOracleError(
                f"the loss has no gradient: {oracle.missing('value_and_gradient')}. "
                f"Smooth it: smoothing= on the BaseModel."
            )
        value, gradient = oracle.value_and_gradient(theta)
        total = self.records.weight.sum()
        return float(value.sum()) / total, gradient / total

    def losses(self, theta, values=None):
        """Loss of each record, shape (N,); arguments as in `mean_loss`."""
        evaluation = partial(self.base.loss_program.evaluation, self.records.arrays, self.records.strata)
        return self._evaluations({**self.values, **(values or {})}, evaluation)(theta)


def learned_edges(edges, prior):
    """Where a learned W may be nonzero: on all pairs, or on the candidate edges that a user's ``edges=`` means."""
    if isinstance(edges, str) and edges == "all":
        return AllPairs(prior.K)
    return EdgeList(prior.K, *candidate_edges(edges, prior))


def prior_weights(prior, edges, scale=1.0):
    """W0 on a set of edges, as an edge array."""
    if isinstance(edges, AllPairs):
        return edges.from_matrix(prior.matrix(scale))
    return edges.from_vector(prior.weights_on(edges.i, edges.j, scale))


def weights_outside(prior, edges, w0, scale=1.0):
    """The sum of the squares of W0 outside a set of edges."""
    return max(float(np.sum(prior.weights(scale) ** 2) - edges.dot(w0, w0)), 0.0)


def _bind_regularizer(program, values):
    """The regularizer, and its constraints alone where the rest of it had better join the loss."""
    regularizer = program.bind_regularizer(values)
    if not isinstance(regularizer.prox, NewtonProx) or not regularizer.has("value_and_gradient"):
        return regularizer, None
    constraints = program.constraints_alone.bind_regularizer(values)
    return regularizer, None if getattr(constraints.prox, "costly", False) else constraints


def _bytes(value):
    value = value.toarray() if hasattr(value, "toarray") else value
    return None if value is None else np.asarray(value, dtype=float).tobytes()
