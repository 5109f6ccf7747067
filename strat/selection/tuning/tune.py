"""Tune a prior graph and hyperparameters by held-out loss or by evidence."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from sklearn.base import clone

from strat.errors import OptionError, check_whole, type_name
from strat.model.estimator import StratifiedModel
from strat.model.fit import check_options
from strat.oracles.clock import Clock
from strat.records.sample import Sample, joined
from strat.selection.tuning.by_evidence import tune_by_evidence
from strat.selection.tuning.by_validation import rounds_of, tune_by_validation
from strat.solvers.progress import listening


def tune(
    model: Any,
    train: tuple,
    validation: tuple | None = None,
    *,
    folds: Any = None,
    wrt: Sequence = ("scale",),
    edges: Any = "prior",
    tie: str | None = None,
    penalty: float | Sequence | None = None,
    candidates: Sequence | None = (),
    max_iter: int = 50,
    patience: int = 5,
    time_limit: float | None = None,
    random_state: int = 0,
    verbose: bool = False,
    method: str = "validation",
    guard: bool = True,
) -> Any:
    """Tune a prior graph by the loss of held-out records, and keep the start where that does not help.

    The mean validation loss is minimised through the fit, by its derivative (``strat.hypergradient``) and projected
    L-BFGS: in the logarithms of the factors' scales and of positive hyperparameters, and in edge weights at least 0.
    Edge weights begin with one scale for each factor, and are then set free with an ever weaker pull towards it.

    Three rounds decide how far to go. Each leaves a third of the validation records out and measures them after every
    step. What has the lowest loss over all rounds is chosen, where no tuning is one of the choices. What two thirds of the
    records choose is then measured on the other third, record by record against the start. Only where it gains more than
    the standard error of that difference, a last descent uses all validation records; otherwise the start is the result.
    Where folds follow one another in time, such as rolling origins, the records that measure are later than all others.

    Parameters
    ----------
    model : StratifiedModel
        The start: ``strat.lrsm(base, graph)`` with a loss that has second derivatives. It is not changed.
    train : tuple
        ``(*data, strata)``.
    validation : tuple, optional
        ``(*data, strata)``: records to tune on, which no fit sees until the last. The rounds split them.
    folds : int, splitter or iterable of pairs, optional
        In place of `validation`: folds of `train`, such as ``RollingOrigin(6, time=1)``; 5 by default. A round leaves a
        third of the folds out. Every evaluation needs a fit for each fold.
    wrt : sequence of {"scale", "W0"} or cvxpy.Parameter
        What to tune: the scales of the graph's factors, single edges, hyperparameters (or their names) of the loss,
        the regularizer, the constraints or ``couple``.
    edges : {"prior", "two-hop", "knn", "all"}, list of label pairs, or graph
        The edges that "W0" tunes: the graph's own; those and the neighbours' neighbours, or each stratum's 5 nearest by
        the parameters of the start's fit; all pairs; others. They start at weight 0 where the graph has none. The graph's
        other edges stay.
    tie : str, optional
        An edge attribute: edges with the same value share a multiplier, and so do all edges without it.
    penalty : float or sequence, optional
        Added to the loss is `penalty` times the start's loss times the mean squared change of a weight, in units of the
        mean weight. Several are tried from strong to weak. By default (1, 0.1, 0.01, 0.001) for "W0", else 0. Where
        edges are tuned, the scales have no penalty: it holds on to the ratios of the weights.
    candidates : sequence or dict, optional
        Other graphs to try, each with its scale tuned: "knn", "exponential" and "entropy" are kernels on the parameters
        of the start's fit, "joint" and models that learn W give their W; or graphs.
    max_iter : int
        Most steps of a descent.
    patience : int
        A descent of a round ends where its held-out loss has not fallen for so many steps.
    time_limit : float, optional
        Seconds after which the best so far is returned, as it is where Ctrl-C is pressed; the start, before the last descent.
    random_state : int
        Seed of the splits.
    verbose : bool
        Report each step through ``logging.getLogger("strat")``.
    method : {"validation", "evidence"}
        "evidence" is experimental. From constants that were chosen by cross-validation, it takes a few steps to a higher
        marginal likelihood of the training records (Laplace's approximation), where the loss is minus a log likelihood.
        They change the weights of all pairs of axis and coefficient: first as products of the factors' scales and the
        coefficients' weights in ``couple``, then as a table, ``couple`` by factor. Held-out records have to agree, as
        above, to the products and then to the table; where folds follow one another in time, there must be three, and
        the standard error is over folds. Takes no `wrt`, `edges`, `tie`, `penalty`, `candidates`.
    guard : bool
        Whether records are held out of tuning, and have to agree. Without the guard the result is where the loss of all
        validation records is lowest, with the weakest `penalty` (0 by default), or the evidence of all records highest. A
        guarded result computes that one as ``result.unguarded``.

    Returns
    -------
    Tuned
        ``model`` (refitted to all records), ``W0``, ``parameters``, ``improved``, ``before``, ``after``, ``history``; it prints.

    Raises
    ------
    NoOracleError
        If the loss has no second derivatives.
    OptionError, GraphError, DataError
        Where the arguments have no meaning: also for a model that learns W.

    Warns
    -----
    ConvergenceWarning
        Where some derivative could not be computed accurately.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, strat
    >>> theta, y = cp.Variable(name="theta"), cp.Parameter(name="y")
    >>> base = strat.BaseModel(cp.square(y - theta), data=(y,))
    >>> rng = np.random.default_rng(0)
    >>> z = np.repeat(np.arange(8), 10)
    >>> y, new = (3.0 * (z > 3) + rng.normal(size=80) for _ in range(2))
    >>> tuned = strat.tune(strat.lrsm(base, strat.graphs.path(8)), (y, z), (new, z), wrt=["W0"])
    >>> tuned.improved
    True
    >>> min(tuned.W0.edges(data="weight"), key=lambda edge: edge[2])[:2]
    (3, 4)
    """
    arguments = dict(locals())
    if not isinstance(model, StratifiedModel):
        raise OptionError(f"tune needs a StratifiedModel, as strat.lrsm makes, not {type_name(model)}.")
    check_options(model)
    refused = {
        "the strata of a common model share their parameters, so no graph matters; use strat.lrsm.": model.shared,
        "the model learns W itself. Tune the prior on an LRSM, tuned = strat.tune(strat.lrsm(base, graph), …), and pass it "
        "on: strat.joint(base, graph=tuned.W0).": model.graph_regularizer.learned,
        "the model has no graph. Give one, such as strat.lrsm(base, graph).": model.graph is None,
    }
    for why in (why for why, is_so in refused.items() if is_so):
        raise OptionError(f"tune: {why}")
    check_whole("max_iter", max_iter, 1)
    check_whole("patience", patience, 1)
    clock = Clock(time_limit)
    if validation is not None and folds is not None:
        raise OptionError("give validation= or folds=, not both: records to tune on, or folds of train.")
    options = {"wrt": wrt, "edges": edges, "tie": tie, "penalty": penalty, "candidates": candidates}
    if method not in ("validation", "evidence"):
        raise OptionError(f'method is {method!r}; it is "validation" or "evidence".')
    by_evidence = method == "evidence"
    defaults = {"wrt": [("scale",), ["scale"], "scale"], "edges": ["prior"], "candidates": [(), [], {}]}
    for name, value in options.items() if by_evidence else ():
        if repr(value) not in map(repr, defaults.get(name, [None])):
            raise OptionError(
                f'{name}= is not an option of method="evidence", which tunes one weight for each axis and coefficient; leave '
                f'it out, or tune by held-out loss (method="validation").'
            )
    splits, sample, held_out = 5 if folds is None else folds, Sample([model], train, "train"), None
    everything = sample
    if validation is not None:
        held_out = Sample([model], validation, "validation")
        everything = joined(sample, held_out, [model])
    rounds = rounds_of(sample, held_out, splits, random_state, guard and not by_evidence)
    with listening(verbose):
        if by_evidence:
            tuned = tune_by_evidence(model, rounds, splits, everything, clock, guard)
        else:
            steps = {"max_iter": max_iter, "patience": patience}
            tuned = tune_by_validation(model, rounds, everything, clock, steps, **options)
    tuned.status, tuned.seconds = clock.status, clock.seconds
    if guard:
        other = {"model": clone(model), "verbose": False, "guard": False}
        tuned.unguarded_call = partial(tune, **arguments | other)
    return tuned
