"""StratifiedModel: fit parameters and graph, predict, score."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from strat.compiler.base_model import BaseModel
from strat.errors import DeclarationError, GraphError, OptionError, type_name
from strat.model.fit import fit_model
from strat.model.fit_warnings import warn_of_undetermined_predictions
from strat.model.fitted import FittedParameters
from strat.model.scikit_learn import ScikitLearnModel
from strat.model.unseen import common_of, with_unseen
from strat.oracles.dask_engine import by_partition
from strat.problem.graph_regularizers import FixedGraph
from strat.records.records import Records, read_weight


def check_fitted(model, what):
    """Raise an error unless `model` is a fitted StratifiedModel; `what` names the caller in messages."""
    if not isinstance(model, StratifiedModel):
        raise OptionError(f"{what} needs a fitted StratifiedModel, not {type_name(model)}.")
    check_is_fitted(model, "theta_")


class StratifiedModel(FittedParameters, ScikitLearnModel):
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
        By default ``MAPG()`` where the graph is learned, or ``AlternatingMinimization()`` if the loss also has kinks. For a
        given graph ``NewtonCG()``, or ``Cone()`` if the loss has kinks or the regularizer has no prox in closed form.
    scale : float or dict
        Multiplier of W0's edges, or one for each factor of a product graph: ``{"age": 2.0, "sex": 0.5}``.
    edges : {"all", "prior", "two-hop", "knn"}, list of label pairs, or graph
        Where W may be nonzero when it is learned: "all" pairs, for up to a few thousand strata; the edges of the "prior"
        graph; these and the pairs with a common neighbour ("two-hop"), or these and each stratum paired with the 5 of
        nearest parameters in a rough fit of the given graph ("knn"); the pairs given; the edges of another graph.
    strata : str, int, or list of str or int, optional
        Columns of X that hold the strata, by name in a DataFrame or by position; they are dropped from X.
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
        The graph: symmetric, zero diagonal. Sparse where some pairs of more than 2000 strata are not candidates.
    strata_ : list
        The strata in order.
    result_ : Result
        Status, objective and its parts, residuals, history, time.
    n_features_in_ : int
        Number of columns of X, including those of strata, where X is a matrix.
    feature_names_in_ : ndarray of str
        The names of these columns, where X is a DataFrame.

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
    _common_of = common_of

    def __init__(
        self,
        base: BaseModel,
        graph: Any = None,
        graph_regularizer: Any = FixedGraph(),  # noqa: B008 (it has no state)
        *,
        solver: Any = None,
        scale: float | dict = 1.0,
        edges: Any = "all",
        strata: Any = None,
        n_starts: int = 1,
        warm_start: bool = False,
        random_state: int = 0,
    ) -> None:
        self.base, self.graph, self.graph_regularizer = base, graph, graph_regularizer
        self.solver, self.scale, self.edges, self.strata = solver, scale, edges, strata
        self.n_starts, self.warm_start, self.random_state = n_starts, warm_start, random_state

    def fit(
        self,
        *data: Any,
        strata: Any = None,
        sample_weight: ArrayLike | None = None,
        init: Any = None,
        validation: tuple | None = None,
        chunks: Any = None,
        engine: Any = None,
        device: Any = None,
    ) -> "StratifiedModel":
        """Fit parameters and graph.

        Parameters
        ----------
        *data : array-like
            One argument for each data Parameter, in the declaration's order; rows are records. Arrays of floats are kept, not
            copied: leave them as they are while you ask for standard errors, derivatives or `to_cvxpy`.
        strata : (N,) sequence
            Label of each record, or the name(s) of column(s) of a DataFrame X.
        sample_weight : (N,) array-like, optional
            Weights of the records' losses; 0 leaves a record out.
        init : {"zero", "separate", "lrsm"} or dict, optional
            Start: by name, or ``{"theta": {name: array}, "W": array}`` (parts may be left out).
        validation : tuple, optional
            ``(*data, strata)`` whose mean loss is watched by the solver's ``patience``.
        chunks : iterable or table, optional
            Records that do not fit into memory, in place of `data`: tuples ``(*data, strata)`` or ``(*data, strata,
            sample_weight)``, or functions or Dask's delayed objects that give one; a function that returns such an
            iterable; or a Dask DataFrame, an Arrow dataset or the path of its files, whose columns the other arguments
            name. Large memory maps and Dask collections among `data` are read in chunks as they are.
        engine : dask.distributed.Client or engine, optional
            Where chunks are kept and summed over; `strat.oracles.shards` says what an engine is.
        device : str or device, optional
            Where records are kept, and losses and the dense log det computed, such as ``"cuda"``: a device of the library
            of the data arguments, or of PyTorch where they are in NumPy. By default that of data arguments on a GPU.

        Returns
        -------
        StratifiedModel
            Itself.

        Raises
        ------
        DataError, ShapeError, GraphError, NotConvexError, NoOracleError, OptionError, DeclarationError
            Where the arguments do not fit the declaration; nothing is changed then.
        """
        fit_model(self, data, strata, sample_weight, init, validation, chunks, engine, device)
        return self

    def predict(self, *data: Any, strata: Any = None, unseen: Any = "error") -> np.ndarray:
        """Prediction for each record: the ``predict`` expression of the declaration.

        Parameters
        ----------
        *data : array-like
            The data arguments used in the ``predict`` expression, in the declaration's order.
        strata : (N,) sequence
            Label of each record.
        unseen : {"error", "graph", "common"} or graph, optional
            What to do for labels that are not strata of the model: raise an error; use the weighted mean of the
            neighbours' parameters, along the edges of a graph that has these labels or of the model's own ("graph"), whose
            edges along one coordinate also hold for labels that it lacks; or use the common model of the fit's records.

        Returns
        -------
        ndarray
            Of shape ``(N, *shape)``; a dask.array for Dask collections.

        Raises
        ------
        DeclarationError
            If the model was declared without ``predict``.
        GraphError
            If a label is not a stratum of the model and `unseen` is "error", or no edge leads from it to one that is.
        """
        check_is_fitted(self, "theta_")
        program = self.base.predict_program
        if program is None:
            raise DeclarationError(
                "the model was declared without predict=; give the BaseModel an expression of variables and data, or read theta_."
            )
        lazy = by_partition(self, "predict", program.data, program.expression.shape, data, strata, unseen)
        if lazy is not None:
            return lazy
        known = self.shared or (isinstance(unseen, str) and unseen == "error")
        records = self._read(program.data, data, strata, "predict", known=known)
        records, theta = (records, self._flat()) if known else with_unseen(self, records, unseen)
        warn_of_undetermined_predictions(self, program, records.strata.index)
        return program.predictions(records.arrays, records.strata, self.values)(theta)

    def losses(self, *data: Any, strata: Any = None) -> np.ndarray:
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
        lazy = by_partition(self, "losses", self.base.data, (), data, strata)
        return self._losses(self._read(self.base.data, data, strata, "losses")) if lazy is None else lazy

    def score(self, *data: Any, strata: Any = None, sample_weight: ArrayLike | None = None) -> float:
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
        sums = by_partition(self, "_sums", self.base.data, (2,), data, strata, weight=sample_weight)
        if sums is None:
            sums = self._sums(*data, strata=strata, sample_weight=sample_weight, part=False)
        return -float(np.divide(*np.sum(sums, axis=0)))

    @property
    def values(self) -> dict:
        """Values of hyperparameters in the last fit, by name; before a fit, those given by ``set_params``.

        Returns
        -------
        dict
            Values by name.
        """
        return vars(self).get("_fit_values", self._values)

    def _read(self, parameters, data, strata, where, known=True):
        """Records for a fitted model; a model with shared parameters also accepts labels that it has not seen."""
        try:
            nodes = self.strata_ if known and not self.shared else None
            records = Records.read(parameters, data, strata, where, self.strata, nodes, columns=self._columns)
        except GraphError as error:
            more = 'Or pass unseen="common" or unseen="graph" to predict.' if where == "predict" else ""
            if self.graph is None:
                more = (
                    "The model was given no graph, so its strata are the labels seen at fit; with a graph that has all "
                    f"strata, such as graph=(labels, W), it predicts for those without records, too. {more}"
                )
            raise GraphError(f"{error} {more}".rstrip()) from None
        if self.shared:
            records.strata = records.strata.merged(self.strata_)
        return records

    def _sums(self, *data, strata, sample_weight=None, part=True):
        """The weighted sum of losses and the sum of weights, (1, 2); `part`: the records are only a part of all."""
        records = self._read(self.base.data, data, strata, "score")
        records.weight = weight = read_weight(sample_weight, records.strata.N, part)
        return np.array([[self._losses(records)[weight > 0] @ weight[weight > 0], weight.sum()]])

    def _losses(self, records):
        arguments = records.arrays, records.strata, self.values, records.weight
        return self.base.loss_program.evaluation(*arguments)(self._flat())
