"""StratifiedModel: fit parameters and graph, predict, score."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from strat.errors import DeclarationError, GraphError, OptionError, type_name
from strat.model.export import as_problem
from strat.model.fit import fit_model
from strat.model.fit_warnings import warn_of_undetermined_predictions
from strat.model.parameters import NestedParameters
from strat.model.saving import save
from strat.problem.graph_regularizers import FixedGraph
from strat.records.labels import plain
from strat.records.records import Records
from strat.records.strata import did_you_mean, some_of


def check_fitted(model, what):
    """Raise where something is no model, or one that is not fitted; `what` is the caller, for messages."""
    if not isinstance(model, StratifiedModel):
        raise OptionError(f"{what} needs a fitted StratifiedModel, not {type_name(model)}.")
    check_is_fitted(model, "theta_")


class StratifiedModel(NestedParameters):
    """One set of parameters for each stratum, pulled together along a graph that is given or learned.

    Minimises the sum over strata of loss and regularizer, plus ½ Σ_{i<j} W_ij ‖theta_i − theta_j‖², plus the graph
    regularizer h(W), over the parameters and, where h learns a graph, over W ≥ 0 jointly.

    Parameters
    ----------
    base : BaseModel
        Loss of one record, regularizer of one stratum.
    graph : networkx.Graph or (labels, W), optional
        The prior graph W0; its nodes are the strata, in order. None: the labels seen at fit, no edges.
    graph_regularizer : object
        ``LogDet(…)``, ``LogDiagonal(…)``, ``TraceConstraint(…)`` and ``Entropy(…)`` learn the graph, ``FixedGraph()``
        keeps W = W0.
    solver : object, optional
        By default ``MAPG()`` where the graph is learned; for a given graph ``NewtonCG()``, and ``Cone()`` where the loss has
        kinks or the regularizer no prox in closed form.
    scale : float or dict
        Multiplier of W0's edges, or one for each factor of a product graph: ``{"age": 2.0, "sex": 0.5}``.
    edges : {"all", "prior"}, list of label pairs, or graph
        Where W may be nonzero when it is learned.
    strata : str or list of str, optional
        Columns of a DataFrame X that hold the strata; they are dropped from X.
    n_starts : int
        Number of starting points; the lowest objective (or validation loss) is kept.
    warm_start : bool
        Start from the last fit.
    random_state : int
        Seed of the random starting points.

    Attributes
    ----------
    theta_ : dict
        ``{variable name: (K, *shape)}``, rows in the order of ``strata_``.
    W_ : (K, K) ndarray or csr_array
        The graph: symmetric, zero diagonal.
    strata_ : list
        The strata in order.
    result_ : Result
        Status, objective and its parts, residuals, history, time.

    References
    ----------
    Cheng, Zhang, Agrawal and Boyd, "Joint Graph Learning and Model Fitting in Laplacian Regularized Stratified
    Models".

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, strat
    >>> theta, y = cp.Variable(name="theta"), cp.Parameter(name="y")
    >>> base = strat.BaseModel(cp.square(y - theta), data=(y,), predict=theta)
    >>> model = strat.lrsm(base, strat.graphs.path(3, weight=2.0))
    >>> model = model.fit([1.0, 1.0, 4.0], strata=[0, 0, 2])
    >>> model.theta_["theta"].round(2)
    array([1.43, 2.29, 3.14])
    """

    #: Whether all strata share one set of parameters.
    shared = False

    def __init__(
        self,
        base,
        graph=None,
        graph_regularizer=FixedGraph(),  # noqa: B008 (it has no state)
        *,
        solver=None,
        scale=1.0,
        edges="all",
        strata=None,
        n_starts=1,
        warm_start=False,
        random_state=0,
    ):
        self.base = base
        self.graph = graph
        self.graph_regularizer = graph_regularizer
        self.solver = solver
        self.scale = scale
        self.edges = edges
        self.strata = strata
        self.n_starts = n_starts
        self.warm_start = warm_start
        self.random_state = random_state

    def fit(self, *data, strata=None, sample_weight=None, init=None, validation=None):
        """Fit parameters and graph.

        Parameters
        ----------
        *data : array-like
            One argument for each data Parameter, in the declaration's order; rows are records.
        strata : (N,) sequence
            Label of each record, or the name(s) of column(s) of a DataFrame X.
        sample_weight : (N,) array-like, optional
            Weights of the records' losses; 0 leaves a record out.
        init : {"zero", "separate", "lrsm"} or dict, optional
            Start: by name, or ``{"theta": {name: array}, "W": array}`` (parts may be left out).
        validation : tuple, optional
            ``(*data, strata)`` whose mean loss is watched by the solver's ``patience``.

        Returns
        -------
        StratifiedModel
            Itself.

        Raises
        ------
        DataError, ShapeError, GraphError, NotConvexError, NoOracleError, OptionError, DeclarationError
            Where the arguments do not fit the declaration; nothing is changed then.
        """
        fit_model(self, data, strata, sample_weight, init, validation)
        return self

    def predict(self, *data, strata=None):
        """Prediction for each record: the ``predict`` expression of the declaration.

        Parameters
        ----------
        *data : array-like
            The data arguments that occur in ``predict``, in the declaration's order.
        strata : (N,) sequence
            Label of each record.

        Returns
        -------
        ndarray
            Of shape ``(N, *shape)``.

        Raises
        ------
        DeclarationError
            If the model was declared without ``predict``.
        GraphError
            If a label is no stratum of the model.
        """
        check_is_fitted(self, "theta_")
        program = self.base.predict_program
        if program is None:
            raise DeclarationError(
                "the model was declared without predict=; add an expression of variables and data to the BaseModel, "
                "or read theta_ and at(label)."
            )
        records = self._read(program.data, data, strata, "predict")
        warn_of_undetermined_predictions(self, program, records.strata.index)
        return program.evaluation(records.arrays, records.strata, self.values)(self._flat())

    def losses(self, *data, strata=None):
        """Loss of each record.

        Parameters
        ----------
        *data : array-like
            As in ``fit``.
        strata : (N,) sequence
            Label of each record.

        Returns
        -------
        (N,) ndarray
            The losses, +inf outside the loss's domain.
        """
        check_is_fitted(self, "theta_")
        records = self._read(self.base.data, data, strata, "losses")
        return self._losses(records)

    def score(self, *data, strata=None, sample_weight=None):
        """Minus the mean loss, weighted where weights are given: higher is better.

        Parameters
        ----------
        *data : array-like
            As in ``fit``.
        strata : (N,) sequence
            Label of each record.
        sample_weight : (N,) array-like, optional
            Weights of the records.

        Returns
        -------
        float
            The score.
        """
        check_is_fitted(self, "theta_")
        records = self._read(self.base.data, data, strata, "score", sample_weight)
        counted = records.weight > 0
        return -float(np.average(self._losses(records)[counted], weights=records.weight[counted]))

    def at(self, label):
        """Parameters of one stratum.

        Parameters
        ----------
        label : hashable
            The stratum.

        Returns
        -------
        dict
            ``{variable name: array}``.

        Raises
        ------
        GraphError
            If the label is no stratum.
        """
        check_is_fitted(self, "theta_")
        try:
            k = self.strata_.index(plain(label))
        except ValueError:
            raise GraphError(
                f"{label!r} is no stratum of the model, which has {len(self.strata_):,}, such as {some_of(self.strata_)}. "
                f"{did_you_mean(plain(label), self.strata_)}".rstrip()
            ) from None
        return {name: np.array(value[k]) for name, value in self.theta_.items()}

    def to_cvxpy(self):
        """The convex problem in theta for the current W, as CVXPY sees it.

        Returns
        -------
        cvxpy.Problem
            One variable ``NAME[LABEL]`` for each variable and stratum, with its declared shape and attributes; a
            common model has those of one stratum.
        """
        check_is_fitted(self, "theta_")
        return as_problem(self)

    def save(self, path):
        """Store arrays, labels, options and a readable copy of the declaration (npz with JSON, no pickle).

        Parameters
        ----------
        path : str or path
            File to write; ``strat.load`` reads it. What was there is replaced once the new file is whole, and an
            OptionError leaves it as it was.
        """
        check_is_fitted(self, "theta_")
        save(self, path)

    @property
    def values(self):
        """This model's own values of hyperparameters, by name; the others are the Parameters' values.

        Returns
        -------
        dict
            Values by name.
        """
        return self.__dict__.get("_values", {})

    @property
    def W_(self):
        """The fitted graph's weights, (K, K); the matrix is made at the first use, as many fits never need it."""
        W = self.__dict__.get("W_")
        if W is None:
            raise AttributeError(
                f"this {type(self).__name__} has no W_, because it is not fitted. Call fit first."
            )
        if callable(W):
            W = self.__dict__["W_"] = W()
        return W

    @W_.setter
    def W_(self, W):
        self.__dict__["W_"] = W

    def __getstate__(self):
        """What is pickled and copied: all but the bound records, which can be bound again."""
        W = {"W_": self.W_} if hasattr(self, "W_") else {}
        return {**super().__getstate__(), **W, "_bound": None}

    def _read(self, parameters, data, strata, where, sample_weight=None):
        """Records for a fitted model; one with shared parameters takes labels that it has not seen, too."""
        try:
            records = Records.read(
                parameters,
                data,
                strata,
                where,
                declared=self.strata,
                nodes=None if self.shared else self.strata_,
                sample_weight=sample_weight,
                columns=self._columns,
            )
        except GraphError as error:
            if self.graph is not None:
                raise
            raise GraphError(
                f"{error} The model was given no graph, so its strata are the labels seen at fit; with a graph that has "
                f"all strata, such as graph=(labels, W), it predicts for those without records, too."
            ) from None
        if self.shared:
            records.strata = records.strata.merged(self.strata_)
        return records

    def _losses(self, records):
        program = self.base.loss_program
        program.check_signs(records.arrays, records.strata, records.weight, self.values)
        return program.evaluation(records.arrays, records.strata, self.values)(self._flat())

    def _flat(self):
        """Parameters as (K, n)."""
        return self.base.layout.pack(self.theta_)
