"""The models to compare, each made by one call: common, separate, on a given graph, and with a learned graph."""

import inspect
from typing import Any

from strat.compiler.base_model import BaseModel
from strat.errors import OptionError
from strat.model.estimator import StratifiedModel
from strat.problem.graph_regularizers import Entropy, FixedGraph, LogDet, LogDiagonal, TraceConstraint


class CommonModel(StratifiedModel):
    """A StratifiedModel whose strata share their parameters; see ``strat.common``."""

    shared = True

    def __init__(self, *args, regularizer_weight=None, **options):
        super().__init__(*args, **options)
        self.regularizer_weight = regularizer_weight

    # scikit-learn reads the parameters from the signature.
    _parameters = inspect.signature(StratifiedModel.__init__).parameters.values()
    _weight = inspect.Parameter("regularizer_weight", inspect.Parameter.KEYWORD_ONLY, default=None)
    __init__.__signature__ = inspect.Signature([*_parameters, _weight])


#: Text shared by the docstrings below, by the placeholder that stands for it there.
_SHARED_TEXT = {
    "{base}": """Parameters
    ----------
    base : BaseModel
        The declaration.""",
    "{nodes}": """graph : networkx.Graph or (labels, W), optional
        Its nodes are the strata; its weights do not enter the objective. By default the strata are the labels seen at fit.""",
    "{options}": """**options
        Keywords of ``StratifiedModel``.

    Returns
    -------
    StratifiedModel
        The model, not yet fitted.""",
    "{example}": """Examples
    --------
    >>> import cvxpy as cp, strat
    >>> theta, y = cp.Variable(name="theta"), cp.Parameter(name="y")
    >>> base = strat.BaseModel(cp.square(y - theta), data=(y,))""",
}


def _model(base, graph, graph_regularizer, options, kind=StratifiedModel):
    """Return the model; raise an OptionError for constants that its graph regularizer does not have."""
    foreign = [name for name in options if name in ("lambda1", "lambda2", "eta", "mu", "sigma")]
    if foreign and not graph_regularizer.learned:
        raise OptionError(
            f"{foreign[0]} is a constant of a model that learns its graph, such as strat.joint(base, graph, lambda1=…, "
            f"lambda2=…), but this one does not. scale= multiplies the weights of a given graph."
        )
    if foreign:
        raise OptionError(f"{graph_regularizer!r} has no constant {foreign[0]}.")
    return kind(base, graph, graph_regularizer, **options)


def common(
    base: BaseModel, graph: Any = None, regularizer_weight: float | None = None, **options: Any
) -> "StratifiedModel":
    """One set of parameters for all records.

    The regularizer counts once for each stratum, so that the objective is that of the stratified model where all
    strata are equal. ``theta_`` has K equal rows, and unseen labels predict, too.

    {base}
    {nodes}
    regularizer_weight : float, optional
        How often the regularizer counts; K times by default.
    {options}

    {example}
    >>> model = strat.common(base).fit([1.0, 1.0, 4.0], strata=["a", "a", "b"])
    >>> model.theta_["theta"].round(6)
    array([2., 2.])
    """
    options["regularizer_weight"] = regularizer_weight
    return _model(base, graph, FixedGraph(), options, CommonModel)


def separate(base: BaseModel, graph: Any = None, **options: Any) -> "StratifiedModel":
    """A separate model for each stratum: W = 0.

    Strata without records get the regularizer's minimiser.

    {base}
    {nodes}
    {options}

    {example}
    >>> model = strat.separate(base).fit([1.0, 1.0, 4.0], strata=["a", "a", "b"])
    >>> model.theta_["theta"].round(6)
    array([1., 4.])
    """
    return _model(base, graph, FixedGraph(), {**options, "scale": 0.0})


def lrsm(base: BaseModel, graph: Any, **options: Any) -> "StratifiedModel":
    """The Laplacian regularised stratified model on a given graph.

    {base}
    graph : networkx.Graph or (labels, W)
        The graph W.
    {options}

    References
    ----------
    Tuck, Barratt and Boyd, "A distributed method for fitting Laplacian regularized stratified models", 2019.

    {example}
    >>> model = strat.lrsm(base, strat.graphs.path(["a", "b"], weight=1e6))
    >>> model.fit([1.0, 1.0, 4.0], strata=["a", "a", "b"]).theta_["theta"].round(3)
    array([2., 2.])
    """
    return _model(base, graph, FixedGraph(), options)


def joint(
    base: BaseModel,
    graph: Any = None,
    graph_regularizer: "LogDet | None" = None,
    *,
    lambda1: float | None = None,
    lambda2: float | None = None,
    eta: float | None = None,
    mu: float | None = None,
    **options: Any,
) -> "StratifiedModel":
    """Parameters and graph learned jointly with the log-determinant regularizer.

    {base}
    graph : networkx.Graph or (labels, W), optional
        The prior graph W0.
    graph_regularizer : LogDet, optional
        The regularizer, in place of the four constants.
    lambda1, lambda2, eta, mu : float, optional
        Constants of ``LogDet``: 1, 1, 0.1 and 1 by default.
    {options}

    Raises
    ------
    OptionError
        If constants are given beside a `graph_regularizer`, which has its own.

    {example}
    >>> model = strat.joint(base, strat.graphs.path(["a", "b", "c"]), lambda1=0.5)
    >>> model.fit([1.0, 1.1, 4.0], strata=["a", "b", "c"]).W_.shape
    (3, 3)
    """
    constants = {"lambda1": lambda1, "lambda2": lambda2, "eta": eta, "mu": mu}
    constants = {name: value for name, value in constants.items() if value is not None}
    if graph_regularizer is None:
        graph_regularizer = LogDet(**{"lambda1": 1.0, "lambda2": 1.0, "eta": 0.1, "mu": 1.0, **constants})
    elif constants:
        raise OptionError(
            f"joint was given {', '.join(constants)} beside graph_regularizer={graph_regularizer!r}. Give one or the other."
        )
    return _model(base, graph, graph_regularizer, options)


def log_diagonal(
    base: BaseModel, graph: Any = None, *, lambda1: float = 1.0, lambda2: float = 1.0, **options: Any
) -> "StratifiedModel":
    """Parameters and graph learned jointly with the log-degree regularizer.

    {base}
    {nodes}
    lambda1, lambda2 : float
        Constants of ``LogDiagonal``.
    {options}

    {example}
    >>> model = strat.log_diagonal(base, lambda1=0.5, lambda2=0.5)
    >>> model.fit([1.0, 1.1, 4.0], strata=["a", "b", "c"]).W_.round(2)
    array([[0.  , 0.96, 0.  ],
           [0.96, 0.  , 0.17],
           [0.  , 0.17, 0.  ]])
    """
    return _model(base, graph, LogDiagonal(lambda1=lambda1, lambda2=lambda2), options)


def trace_constraint(
    base: BaseModel, graph: Any = None, *, lambda1: float = 1.0, lambda2: float = 1.0, **options: Any
) -> "StratifiedModel":
    """Parameters and graph learned jointly with a given sum of weights.

    {base}
    {nodes}
    lambda1, lambda2 : float
        Constants of ``TraceConstraint``.
    {options}

    {example}
    >>> model = strat.trace_constraint(base, lambda1=2.0, lambda2=0.5)
    >>> model.fit([1.0, 1.1, 4.0], strata=["a", "b", "c"]).W_.round(2)
    array([[0., 1., 0.],
           [1., 0., 0.],
           [0., 0., 0.]])
    """
    return _model(base, graph, TraceConstraint(lambda1=lambda1, lambda2=lambda2), options)


def entropy(base: BaseModel, graph: Any = None, *, sigma: float = 1.0, **options: Any) -> "StratifiedModel":
    """Parameters and graph learned jointly with the entropy regularizer, W a Gaussian kernel of the parameters.

    {base}
    {nodes}
    sigma : float
        Constant of ``Entropy``.
    {options}

    {example}
    >>> model = strat.entropy(base, sigma=0.5)
    >>> model.fit([1.0, 1.1, 4.0], strata=["a", "b", "c"]).W_.round(2)
    array([[0.  , 0.99, 0.  ],
           [0.99, 0.  , 0.  ],
           [0.  , 0.  , 0.  ]])
    """
    return _model(base, graph, Entropy(sigma=sigma), options)


for _make in (common, separate, lrsm, joint, log_diagonal, trace_constraint, entropy):
    for _mark, _text in _SHARED_TEXT.items():
        _make.__doc__ = _make.__doc__ and _make.__doc__.replace(_mark, _text)  # python -OO strips docstrings
