"""Choose constants by cross-validation, with simple models for comparison."""

import math
import time
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from strat.errors import OptionError
from strat.model.estimator import StratifiedModel
from strat.records.records import read_weight
from strat.records.sample import Sample, strata_folds
from strat.records.strata import in_order
from strat.selection.candidates import MOST_POOLED, Candidate, default_candidates, simple_models
from strat.selection.compare import checked_models, first_line
from strat.selection.constants import grid_points, read_grid
from strat.selection.cross_validation import CrossValidation
from strat.selection.means import mean_and_error
from strat.selection.pattern_search import PatternSearch
from strat.selection.search_result import Search

#: log10 of the factors of the first scan, by the kind of constant.
SCAN = {"scale": (-2.0, -1.0, 0.0, 1.0, 2.0), "regularizer": (-2.0, 0.0, 2.0)}
#: Factors of the pooled model's weight where a grid is given for the other models.
POOLED_SCALES = tuple(10.0**e for e in np.arange(-3.0, 2.5, 0.5))


def search(
    models: "dict | StratifiedModel",
    grid: dict | list | None = None,
    *,
    train: tuple,
    sample_weight: ArrayLike | None = None,
    folds: Any = 5,
    random_state: int = 0,
    tol: float = 1e-4,
    max_trials: int = 200,
) -> "Search":
    """Choose constants by the lowest held-out loss, and refit the winner to all records.

    The given models compete with those that a search must beat: the common model, separate models, and the pooled model (a
    complete graph of equal weights, which draws every stratum to the mean of all). Without a grid, the search is over the
    logarithms of each model's constants, without bounds: one scale for each factor of the graph, every scalar
    hyperparameter Parameter that only the regularizer has, and lambda1, lambda2 or sigma where the graph is learned. A
    scan over four powers of ten comes first, then a pattern search down to steps of a factor 1.8. Models on a product
    graph are also searched with one scale for all factors, and with equal weights. All fits are warm-started. Ctrl-C ends
    the search with the best constants tried so far.

    Parameters
    ----------
    models : dict or StratifiedModel
        ``{name: model}``, or one model. They are not changed.
    grid : dict or list of dict, optional
        Values to try, every combination: ``{"scale__FACTOR": […], "lambda1": […], "base__NAME": […]}``, each for the
        models that have such a constant. Common, separate and pooled models take part with the grid's ``base__NAME``.
    train : tuple
        ``(*data, strata)``.
    sample_weight : (N,) array-like, optional
        Weights of the records: in the fits, in the means over held-out records and in the winner's fit. A weight 0 leaves
        a record out.
    folds : int, splitter or iterable of pairs
        A number of folds over which every stratum is spread; a splitter such as ``RollingOrigin(6, time=1)``; or pairs of
        positions (training, held out).
    random_state : int
        Seed of the folds.
    tol : float
        Tolerance of the fits on folds; the winner is fitted with its own solver's.
    max_trials : int
        Most choices of constants tried for one candidate by the pattern search.

    Returns
    -------
    Search
        ``best`` (fitted), ``chosen`` (constants), ``table`` (one row a candidate), ``to_frame``, ``to_markdown``; it prints.

    Raises
    ------
    OptionError, DataError
        Where the arguments have no meaning; the first error of a fit where no candidate could be fitted.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, strat
    >>> theta, y = cp.Variable(name="theta"), cp.Parameter(name="y")
    >>> base = strat.BaseModel(cp.square(y - theta), data=(y,))
    >>> rng = np.random.default_rng(0)
    >>> z = rng.integers(0, 6, 90)
    >>> found = strat.search(
    ...     strat.lrsm(base, strat.graphs.path(6)), train=(z + rng.normal(size=90), z), folds=3
    ... )
    >>> found.candidate, sorted(found.chosen)
    ('model', ['scale'])
    """
    started = time.perf_counter()
    models = checked_models({"model": models} if isinstance(models, StratifiedModel) else models)
    _check(tol, max_trials)
    sample = Sample(list(models.values()), train, "train")
    weight = read_weight(sample_weight, len(sample))
    pairs = _without_weight_0(sample.splits(folds, strata_folds(random_state)), weight)
    nodes = in_order(list(sample.labels.values))
    simple = simple_models(models, nodes)
    if grid is None:
        named = [*((name, model) for _, name, model in simple), *models.items()]
        candidates = [candidate for name, model in named for candidate in default_candidates(name, model)]
    else:
        candidates = _on_grid(models, simple, read_grid(grid, list(models.values())))
    table, failures, validations, chosen, interrupted = [], [], {}, {}, False
    for candidate in candidates:
        begun, model = time.perf_counter(), candidate.model
        try:
            if id(model) not in validations:
                validations[id(model)] = CrossValidation(model, sample, pairs, nodes, tol, weight)
            validation = validations[id(model)]
            before = validation.trials
            trials, interrupted = _tried(candidate, validation, chosen, max_trials)
            count = validation.trials - before if len(trials) == 1 else 1
            rows = [_measured(trial, validation) for trial in trials]
        except KeyboardInterrupt:
            interrupted, rows = True, []
        except Exception as error:  # one candidate's failure is a row of the table
            rows, count = [{"constants": {}, "mean": math.inf, "se": None, "error": first_line(error)}], 0
            failures.append(error)
        seconds = (time.perf_counter() - begun) / max(len(rows), 1)
        shared = {"candidate": candidate.name, "model": model, "seconds": seconds}
        table += [{**shared, "trials": count, **row} for row in rows]
        if rows and not rows[0]["error"]:
            chosen[candidate.name] = rows[0]["constants"]
        if interrupted:
            break
    if all(row["error"] for row in table):
        raise KeyboardInterrupt if interrupted else failures[0]
    table.sort(key=lambda row: row["mean"])
    _add_differences(table, next(iter(validations.values())).weight)
    best = clone(table[0]["model"]).set_params(**table[0]["constants"])
    whole = sample.part()
    best.fit(*whole.data, strata=whole.strata, sample_weight=None if sample_weight is None else weight)
    notes = [f"{table[0]['candidate']}: {note}" for note in best.result_.notes]
    if interrupted:
        notes.append(
            f"interrupted: {len(chosen)} of {len(candidates)} candidates were tried, the last not to its end"
        )
    for states in (validation.states for validation in validations.values()):
        if stopped := states.total() - states["converged"]:
            notes.append(f"{stopped} of {states.total()} fits on folds stopped before tol")
    if not any(kind == "pooled" for kind, _, _ in simple) and len(nodes) > MOST_POOLED:
        notes.append(
            f"the pooled model is left out: its complete graph of {len(nodes):,} strata would have "
            f"{len(nodes) * (len(nodes) - 1) // 2:,} edges (it takes part up to {MOST_POOLED} strata)"
        )
    records = sum(len(test) for _, test in pairs)
    table = [{key: value for key, value in row.items() if key not in ("model", "losses")} for row in table]
    return Search(table, best, len(pairs), records, time.perf_counter() - started, notes)


def _on_grid(models, simple, grids):
    """The given models on the grid, the simple ones on what of it concerns their declaration."""
    candidates = [
        Candidate(name, model, points=grid_points(model, grids), each=True) for name, model in models.items()
    ]
    for kind, name, model in simple:
        points = grid_points(model, grids, prefix="base__")
        if kind == "pooled":
            points = [{**p, "scale": s} for p in points for s in POOLED_SCALES]
        candidates.append(Candidate(name, model, points=points))
    return candidates


def _tried(candidate, validation, chosen, most):
    """The trials that become rows of the table, the best first, and whether Ctrl-C cut them short."""
    trials = []

    def loss(x):
        trial = validation.trial(candidate.constants(x))
        if not trials or trial.loss < trials[0].loss:
            trials[:] = [trial]  # the others' fits are not kept
        return trial.loss

    interrupted = False
    try:
        if candidate.points is None:
            _descend(PatternSearch(loss, most=most), candidate, chosen)
        else:
            for point in candidate.points:
                trials.append(validation.trial(point))
    except KeyboardInterrupt:
        interrupted = True
    trials.sort(key=lambda trial: trial.loss)
    return trials if candidate.each else trials[:1], interrupted


def _descend(search, candidate, chosen):
    """Search the constants of a candidate: a coarse scan, or the best of what it refines, then a pattern search."""
    center = (0.0,) * len(candidate.axes)
    # The coarse directions: all scales together, all hyperparameters of the regularizer together.
    coarse = {kind: tuple(float(axis.kind == kind) for axis in candidate.axes) for kind in SCAN}
    coarse = {kind: direction for kind, direction in coarse.items() if any(direction)}
    if candidate.scan and coarse:
        start = search.scan(center, list(coarse.values()), [SCAN[kind] for kind in coarse])
    else:
        starts = [candidate.place(chosen[name]) for name in candidate.refines if name in chosen]
        start = min([center, *starts], key=search.value)
    # Regularizer and graph can replace each other: one up and the other down, or both up.
    diagonals = []
    if len(coarse) == 2:
        pairs = list(zip(*coarse.values(), strict=True))
        diagonals = [tuple(a - b for a, b in pairs), tuple(a + b for a, b in pairs)]
    search.search(start, diagonals)


def _measured(trial, validation):
    """The row of a trial."""
    losses = validation.losses(trial)
    se = mean_and_error(losses, validation.weight)[1]
    return {"constants": trial.constants, "mean": trial.loss, "se": se, "losses": losses, "error": None}


def _without_weight_0(pairs, weight):
    """Pairs of positions without the records of weight 0."""
    if weight.all():
        return pairs
    pairs = [(train[weight[train] > 0], test[weight[test] > 0]) for train, test in pairs]
    if not all(len(train) and len(test) for train, test in pairs):
        raise OptionError(
            "sample_weight is 0 for all records that a fold trains on, or holds out. Give other folds, or leave out the "
            "records of weight 0 yourself."
        )
    return pairs


def _add_differences(table, weight):
    """Differences to the first row, record by record."""
    best = table[0]["losses"]
    for row in table:
        row["difference"] = row["difference_se"] = None
        if row["error"] is None and np.isfinite(row["losses"]).all():
            row["difference"], row["difference_se"] = mean_and_error(row["losses"] - best, weight)


def _check(tol, max_trials):
    if isinstance(tol, bool) or not isinstance(tol, (int, float)) or not 0 < tol < 1:
        raise OptionError(f"tol must be a number between 0 and 1, not {tol!r}.")
    if isinstance(max_trials, bool) or not isinstance(max_trials, int) or max_trials < 1:
        raise OptionError(f"max_trials must be a whole number of at least 1, not {max_trials!r}.")
