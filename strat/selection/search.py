"""Choose constants by cross-validation, with simple models for comparison."""

import math
import os
import time
from collections import Counter
from functools import partial

import numpy as np
from sklearn.base import clone

from strat.errors import OptionError
from strat.model.estimator import StratifiedModel
from strat.records.records import read_weight
from strat.records.sample import Sample, strata_folds
from strat.records.strata import in_order
from strat.selection.candidates import MOST_POOLED, Candidate, curvature, default_candidates, simple_models
from strat.selection.clock import Clock
from strat.selection.compare import first_line
from strat.selection.constants import grid_points, read_grid
from strat.selection.cross_validation import CrossValidation
from strat.selection.jobs import PIECE, Job, basins, outcomes, scan_rows
from strat.selection.means import mean_and_error
from strat.selection.other_model import checked_models
from strat.selection.search_result import Search
from strat.solvers.progress import Progress

#: Factors of the pooled model's weight where a grid is given for the other models.
POOLED_SCALES = tuple(10.0**e for e in np.arange(-3.0, 2.5, 0.5))
#: Descents of a model with several scales, from different points of the scan.
BASINS = 2


def search(
    models,
    grid=None,
    *,
    train,
    sample_weight=None,
    folds=5,
    random_state=0,
    tol=1e-4,
    max_trials=200,
    n_jobs=1,
    time_limit=None,
    verbose=False,
):
    """Choose constants by the lowest held-out loss, and refit the winner to all records.

    The given models compete with those that a search must beat: the common model, separate models, and the pooled model (a
    complete graph of equal weights, which draws every stratum to the mean of all). Without a grid, the search is over the
    logarithms of each model's constants, without bounds: one scale for each factor of the graph, every scalar
    hyperparameter Parameter that only the regularizer has, and lambda1, lambda2 or sigma where the graph is learned. The
    scales of a given graph count from the curvature of the loss, so that the weights it comes with do not matter. A scan
    over powers of ten moves all scales together; from its best points every constant is covered by itself, over powers of
    ten again, until none helps, and then steps down to a factor 1.8 follow. Fits are warm-started. Ctrl-C and `time_limit`
    end the search with the best constants tried so far.

    Parameters
    ----------
    models : dict or StratifiedModel
        ``{name: model}``, or one model. They are not changed. Blends, and regressors and classifiers of scikit-learn, take
        part as they are; see `strat.compare`.
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
    n_jobs : int
        Number of processes, -1 for one a processor; the result is the same. Starting them takes seconds, once.
    time_limit : float, optional
        Seconds after which no fit on a fold goes on; the best model so far is then fitted to all records.
    verbose : bool
        Report on the way: a bar on a terminal where tqdm is installed, and ``logging.getLogger("strat")``.

    Returns
    -------
    Search
        ``best`` (fitted), ``chosen`` (constants), ``table`` (one row a candidate), ``to_frame``, ``to_markdown``; it prints.
        ``found[name]`` is another candidate with its best constants, fitted.

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
    clock = Clock(time_limit)
    models = checked_models({"model": models} if hasattr(models, "get_params") else models)
    _check(tol, max_trials, n_jobs, time_limit)
    sample = Sample(list(models.values()), train, "train")
    weight = read_weight(sample_weight, len(sample))
    pairs = _without_weight_0(sample.splits(folds, strata_folds(random_state)), weight)
    nodes = in_order(list(sample.labels.values))
    simple = simple_models(models, nodes)
    unit = _units(models, sample.part(), weight, nodes)
    if grid is None:
        named = [*((name, model) for _, name, model in simple), *models.items()]
        candidates = [c for name, model in named for c in default_candidates(name, model, unit(model))]
    else:
        candidates = _on_grid(models, simple, read_grid(grid, list(models.values())), unit)
    used, options = {id(c.model): c.model for c in candidates}, (sample, pairs, nodes, tol, weight)
    token = f"{os.getpid()} {time.time_ns()}"
    validations = {
        key: CrossValidation((token, k), model, *options) for k, (key, model) in enumerate(used.items())
    }
    done = {candidate.name: [] for candidate in candidates}
    rounds = partial(_first_jobs, max_trials), partial(_second_jobs, max_trials, done)
    with Progress("search", None, verbose) as progress, clock.interruptible():
        for jobs_of in rounds:
            jobs = [Job(validations[id(c.model)], c, clock, **job) for c in candidates for job in jobs_of(c)]
            # The longest first, so that no process waits for another in the end.
            seconds = {name: sum(o.seconds for o in each) for name, each in done.items()}
            jobs.sort(key=lambda job: -seconds[(job.candidate.refines or job.candidate).name])
            for outcome in outcomes(jobs, n_jobs):
                done[outcome.name].append(outcome)
                progress.step(sum(map(len, done.values())), _told(outcome, len(pairs)))
                if outcome.stopped == "interrupted":
                    raise KeyboardInterrupt
            clock.check()
    table, failures = [], []
    for candidate in candidates:
        rows, errors = _rows(candidate, done, validations[id(candidate.model)], len(pairs))
        table, failures = table + rows, failures + errors
    if all(row["error"] for row in table):
        if failures:
            raise failures[0]
        if clock.status == "interrupted":
            raise KeyboardInterrupt
        raise OptionError(f"time_limit={time_limit} ended before a single choice of constants was tried.")
    table.sort(key=lambda row: row["mean"])
    _add_differences(table, validations[id(table[0]["model"])])
    whole = sample.part()

    def fitted(row):
        model = clone(row["model"]).set_params(**row["constants"])
        return model.fit(
            *whole.data, strata=whole.strata, sample_weight=None if sample_weight is None else weight
        )

    best = fitted(table[0])
    notes = [
        f"{row['candidate']}: the held-out loss of fold {', '.join(row['infinite'])} of {len(pairs)} is infinite"
        for row in table
        if row.get("infinite")
    ]
    result = getattr(best, "result_", None)
    notes += [f"{table[0]['candidate']}: {note}" for note in getattr(result, "notes", ())]
    if clock.status != "finished":
        tried = len({row["candidate"] for row in table if not row["error"]})
        how = {"interrupted": "interrupted", "time_limit": "out of time"}[clock.status]
        notes.append(f"{how}: {tried} of {len(candidates)} candidates were tried, not all to the end")
    states = sum((outcome.states for each in done.values() for outcome in each), Counter())
    if stopped := states.total() - states["converged"]:
        notes.append(f"{stopped} of {states.total()} fits on folds stopped before tol")
    if not any(kind == "pooled" for kind, _, _ in simple) and len(nodes) > MOST_POOLED:
        notes.append(
            f"the pooled model is left out: its complete graph of {len(nodes):,} strata would have "
            f"{len(nodes) * (len(nodes) - 1) // 2:,} edges (it takes part up to {MOST_POOLED} strata)"
        )
    records = sum(len(test) for _, test in pairs)
    return Search(table, best, fitted, len(pairs), records, clock.seconds, notes)


def _units(models, part, weight, nodes):
    """A function that gives a model's unit of its graph's weights, computed once for each declaration."""
    known = {}

    def unit(model):
        if not isinstance(model, StratifiedModel):
            return 1.0
        key = id(model.base)
        if key not in known:
            like = next(m for m in models.values() if m.base is model.base)
            try:
                known[key] = curvature(like, part, weight, nodes)
            except Exception:  # the candidate's own fits will say what is wrong
                known[key] = 1.0
        return known[key]

    return unit


def _on_grid(models, simple, grids, unit):
    """The given models on the grid, the simple ones on what of it concerns their declaration."""
    candidates = [
        Candidate(name, model, points=grid_points(model, grids), each=True) for name, model in models.items()
    ]
    for kind, name, model in simple:
        points = grid_points(model, grids, prefix="base__")
        if kind == "pooled":
            points = [{**p, "scale": s * unit(model)} for p in points for s in POOLED_SCALES]
        candidates.append(Candidate(name, model, points=points))
    return candidates


def _first_jobs(most, candidate):
    """The rows of the first scan, or the constants that are given in pieces."""
    if candidate.points is not None:
        return [
            {"constants": candidate.points[k : k + PIECE]} for k in range(0, len(candidate.points), PIECE)
        ]
    if candidate.refines is not None:
        return []
    rows = scan_rows(candidate)
    return [{"scan": row, "most": max(most // len(rows), 1)} for row in rows]


def _second_jobs(most, done, candidate):
    """Descents from the best points of the scan: from two where the candidate has several scales, from one otherwise."""
    scanned = candidate.refines or candidate
    if candidate.points is not None or not candidate.axes:
        return []
    at = {x: loss for outcome in done[scanned.name] for x, loss in outcome.tried.items()}
    known = {candidate.place(scanned.constants(x)): loss for x, loss in at.items()}
    starts = basins(known, 1 if scanned is candidate else BASINS)
    most = most if scanned is not candidate else most - len(known)
    share = max(most // max(len(starts), 1), 0)
    return [{"descent": x, "known": known, "most": share} for x in starts if share]


def _rows(candidate, done, validation, folds):
    """The rows of a candidate's table, the best first, and the errors where there are none."""
    own = done[candidate.name]
    found = [(t, losses) for outcome in own for t, losses in zip(outcome.trials, outcome.losses, strict=True)]
    if candidate.refines is not None:  # whose constants are constants of this one, too
        others = done[candidate.refines.name]
        found += [pair for o in others for pair in zip(o.trials, o.losses, strict=True)]
    found.sort(key=lambda pair: (pair[0].loss, str(pair[0].constants)))
    seconds, count = sum(o.seconds for o in own), sum(o.count for o in own)
    shared = {"candidate": candidate.name, "model": candidate.model}
    errors = [error for outcome in own for error in outcome.errors]
    if not found:
        text = [_described(error) for error in errors[:1]]
        row = {"trials": 0, "constants": {}, "mean": math.inf, "se": None, "losses": None}
        return [{**shared, "seconds": seconds, **row, "error": error} for error in text], errors
    if candidate.each:
        seconds, count = seconds / len(found), 1
    shared |= {"seconds": seconds, "trials": count, "error": None}
    rows = []
    for trial, losses in found if candidate.each else found[:1]:
        se = mean_and_error(losses, validation.held_weight)[1]
        infinite = [str(k + 1) for k in np.flatnonzero(~np.isfinite(trial.means))]
        row = {"constants": trial.constants, "mean": trial.loss, "se": se, "losses": losses}
        rows.append({**shared, **row, "infinite": infinite})
    return rows, []


def _described(error):
    """An exception, and the fold that it came from."""
    return "; ".join([first_line(error), *getattr(error, "__notes__", [])[:1]])


def _told(outcome, folds):
    """A line for the log."""
    best = min((trial.loss for trial in outcome.trials), default=math.inf)
    failed = (
        f"  {len(outcome.errors)} failed, the first with {_described(outcome.errors[0])}"
        if outcome.errors
        else ""
    )
    return (
        f"{outcome.name}  {outcome.count} choices on {folds} folds  lowest held-out loss {best:.6g}{failed}"
    )


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


def _add_differences(table, validation):
    """Differences to the first row, record by record."""
    best, weight = table[0]["losses"], validation.held_weight
    for row in table:
        row["difference"] = row["difference_se"] = None
        if row["error"] is None and np.isfinite(row["losses"]).all():
            row["difference"], row["difference_se"] = mean_and_error(row["losses"] - best, weight)


def _check(tol, max_trials, n_jobs, time_limit):
    if isinstance(tol, bool) or not isinstance(tol, (int, float)) or not 0 < tol < 1:
        raise OptionError(f"tol must be a number between 0 and 1, not {tol!r}.")
    if isinstance(max_trials, bool) or not isinstance(max_trials, int) or max_trials < 1:
        raise OptionError(f"max_trials must be a whole number of at least 1, not {max_trials!r}.")
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int) or n_jobs == 0:
        raise OptionError(f"n_jobs must be a number of processes, or -1 for all processors, not {n_jobs!r}.")
    if time_limit is not None and (isinstance(time_limit, bool | str) or not time_limit > 0):
        raise OptionError(f"time_limit must be a number of seconds above 0, or None, not {time_limit!r}.")
