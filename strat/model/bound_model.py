"""A model bound_model on records: the problem that solvers see, for the model's constants or any others."""

import warnings
from dataclasses import replace
from functools import partial
from weakref import WeakKeyDictionary

import numpy as np

from strat.compiler import coupling
from strat.errors import DataError, DataWarning, OptionError, type_name
from strat.graphs.candidates import candidate_edges
from strat.graphs.prior_graph import PriorGraph
from strat.graphs.reading import read_graph
from strat.model.binding_cache import BindingCache
from strat.model.first_point import FirstPoint
from strat.model.held_out import HeldOut, one_stratum
from strat.oracles.prox_newton import NewtonProx
from strat.oracles.sum import SumOracle, Weighted
from strat.problem.edges import AllPairs, EdgeList
from strat.problem.graph_regularizers import FixedGraph
from strat.problem.joint_problem import JointProblem
from strat.records.records import Records
from strat.solvers.admm import ADMM
from strat.solvers.default import default_solver, needs_prox

#: Regularizers kept for values of hyperparameters that come back; they hold no records.
REGULARIZERS = 32
_REGULARIZERS = WeakKeyDictionary()  # by declaration


class Bindings:
    """A model's graph as read and its loss as bound to records, to be used again."""

    def __init__(self, model, prior, losses=None):
        self.base, self.graph, self.prior = model.base, model.graph, prior
        self.losses = losses

    def suits(self, model):
        """Whether a model still has the declaration and the graph that this was made of."""
        return self.base is model.base and self.graph is model.graph


class BoundModel:
    """A model and records, read once; `problem` puts constants in, and binds only what depends on those that changed.

    Parameters
    ----------
    model : StratifiedModel
        The declaration, graph and constants; it is not changed.
    data : tuple
        The data arguments of the records.
    strata : sequence
        Label of each record.
    sample_weight : (N,) array-like, optional
        Weights of the records.
    nodes : list, optional
        The strata in order, for a model without a graph; by default the labels seen.
    like : BoundModel, optional
        The same model bound_model on other records, to share the bound regularizer with.
    records : Records, optional
        The records where they are read already, in place of `data`, `strata` and `sample_weight`.
    edges : EdgeList, optional
        Where W may be nonzero, in place of what the model says.
    bound : Bindings, optional
        What these records were bound to before.

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

    def __init__(
        self,
        model,
        data=(),
        strata=None,
        sample_weight=None,
        nodes=None,
        like=None,
        records=None,
        edges=None,
        bound=None,
    ):
        self.model, self.base, self.shared = model, model.base, model.shared
        bound = bound or Bindings(model, None if model.graph is None else read_graph(model.graph))
        self.prior = bound.prior
        nodes = nodes if self.prior is None else self.prior.labels
        self.records = records or Records.read(
            self.base.data,
            data,
            strata,
            "fit",
            declared=model.strata,
            nodes=nodes,
            sample_weight=sample_weight,
        )
        labels = self.records.strata.labels
        self.prior = PriorGraph.without_edges(labels) if self.prior is None else self.prior
        self.edges = self._edges() if edges is None else edges
        self._loss = BindingCache(self.base.loss_program, self._bind_loss, answers=bound.losses)
        self._regularizer = BindingCache(self.base.regularizer_program, self._bind_regularizer, REGULARIZERS)
        if like is not None:
            self._regularizer = like._regularizer

    @property
    def bound(self):
        """What has been bound, for another `BoundModel` of the same model and records."""
        return Bindings(self.model, self.prior, self._loss.answers)

    @property
    def strata(self):
        """The records' strata as the problem has them: a single one where all share their parameters."""
        return one_stratum(self.records.strata) if self.shared else self.records.strata

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
        """The problem for given constants; those left out are the model's.

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
            Its oracles may be those of the last call.
        """
        model, h = self.model, graph_regularizer
        h = FixedGraph() if self.shared else model.graph_regularizer if h is None else h
        h.check_edges(self.edges, self.prior.labels)
        values = {**model.values, **(values or {})}
        outside = 0.0
        if w0 is None:
            scale = model.scale if scale is None else scale
            w0 = self._w0(scale)
            if h.learned:
                all_of_it = np.sum(self.prior.weights(scale) ** 2)
                outside = max(float(all_of_it - self.edges.dot(w0, w0)), 0.0)
        loss, regularizer = self._joined(self._loss(values), *self._regularizer(values))
        problem = JointProblem(loss, regularizer, h, self.edges, w0, self._couple(h, values), outside)
        problem.start_point = FirstPoint(self.base, replace(self.records, strata=self.strata), values)
        return problem

    def true_loss(self, values=None):
        """The loss without the declared smoothing, as an oracle."""
        return self._bind_loss({**self.model.values, **(values or {})}, smooth=False)

    def held_out(self, data, strata, sample_weight=None, where="validation", smooth=False):
        """Read records that are not fitted.

        Parameters
        ----------
        data : tuple
            The data arguments.
        strata : sequence
            Labels, which must be strata of the model unless all strata share their parameters.
        sample_weight : (N,) array-like, optional
            Weights of the records.
        where : str
            Who asks, for messages.
        smooth : bool
            Whether the declared smoothing applies.

        Returns
        -------
        HeldOut
            Its mean loss is a function of theta.
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
            records.strata = one_stratum(records.strata)
        return HeldOut(self.base, records, self.model.values, smooth)

    def _edges(self):
        model, prior = self.model, self.prior
        if self.shared:
            return EdgeList(1, np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp))
        if not model.graph_regularizer.learned:
            return EdgeList(prior.K, prior.i, prior.j)
        if isinstance(model.edges, str) and model.edges == "all":
            return AllPairs(prior.K)
        return EdgeList(prior.K, *candidate_edges(model.edges, prior))

    def _w0(self, scale):
        if self.shared:
            return self.edges.zeros()
        if isinstance(self.edges, AllPairs):
            return self.edges.from_matrix(self.prior.matrix(scale))
        return self.edges.from_vector(self.prior.weights_on(self.edges.i, self.edges.j, scale))

    def _couple(self, h, values):
        """Weights of the coordinates in the distance, (n,), or (E, n) where they differ by factor."""
        if not coupling.by_factor(self.base.couple):
            return self.base.couple_weights(values)
        if h.learned:
            raise OptionError(
                f"couple has weights by factor of the graph, but {type(h).__name__} learns one weight for each pair of "
                f"strata, which has no factor. Couple one weight for all edges, or fit a given graph: strat.lrsm."
            )
        prior = None if self.model.graph is None or self.shared else self.prior
        return coupling.on_edges(self.base, values, prior, *self.edges.ends)

    def _bind_loss(self, values, smooth=True):
        """The loss at the records, with a prox where the solver needs it; constraints are the regularizer's."""
        records, solver = self.records, self.model.solver
        bind = partial(
            self.base.loss_program.bind_records, records.arrays, self.strata, records.weight, values
        )
        if not smooth:
            return bind(smooth=False)
        if needs_prox(solver):
            return _announced(bind(prox=True, constrained=False))
        loss, learned = bind(), self.model.graph_regularizer.learned and not self.shared
        if needs_prox(solver or default_solver(loss, learned), loss):
            return _announced(bind(prox=True, constrained=False))
        return loss

    def _bind_regularizer(self, values):
        """The regularizer and its constraints, which hold no records: all fits of a declaration share them."""
        if self.base not in _REGULARIZERS:
            program = self.base.regularizer_program
            _REGULARIZERS[self.base] = BindingCache(
                program, partial(_bound_regularizer, program), REGULARIZERS
            )
        return _REGULARIZERS[self.base](values)

    def _joined(self, loss, regularizer, constraints):
        """Loss and regularizer; a smooth regularizer without a prox in closed form is part of the first."""
        weight = self.regularizer_weight
        if constraints is None or loss.has("prox"):
            return loss, regularizer if weight == 1.0 else Weighted(regularizer, weight)
        curved = loss.has("hessian_operator") and regularizer.has("hessian_operator")
        both = [loss, Weighted(regularizer, weight)]
        loss = SumOracle(both, loss.n, loss.has("value_and_gradient"), curved, None, loss.why)
        return loss, constraints if weight == 1.0 else Weighted(constraints, weight)


def _announced(loss):
    """The loss, with a warning where its prox takes a cone solver."""
    if getattr(loss.prox, "costly", False):
        warnings.warn(
            f"the prox of the loss takes one cone program a stratum in every iteration, which is slow, because "
            f"{loss.why['prox']}. {ADMM.ways['loss']}.",
            DataWarning,
            stacklevel=6,
        )
    return loss


def _bound_regularizer(program, values):
    """The regularizer, and its constraints alone where the rest of it had better join the loss."""
    regularizer = program.bind_regularizer(values)
    if not (is_iterative(regularizer.prox) and regularizer.has("value_and_gradient")):
        return regularizer, None
    constraints = program.bind_constraints(values)
    return regularizer, None if getattr(constraints.prox, "costly", False) else constraints


def is_iterative(prox):
    """Whether a prox has no closed form."""
    return isinstance(prox, NewtonProx) or getattr(prox, "iterative", False)


def read_held_out(bound_model, validation, where="validation", smooth=False):
    """Records given as one tuple ``(*data, strata)``."""
    expected = len(bound_model.base.data)
    if not isinstance(validation, (tuple, list)):
        raise DataError(f"{where} must be a tuple (*data, strata), not {type_name(validation)}.")
    if len(validation) != expected + 1:
        raise DataError(
            f"{where} must hold the {expected} data arguments and the strata, "
            f"but it has {len(validation)} entries."
        )
    return bound_model.held_out(validation[:-1], validation[-1], where=where, smooth=smooth)
