"""Choose constants by cross-validation, with simple models for comparison."""

import math
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.utils.parallel import delayed

from strat.errors import OptionError, check_whole
from strat.oracles.clock import Clock
from strat.records.records import read_weight
from strat.records.sample import Sample
from strat.records.strata import in_order
from strat.records.tables import mean_and_error
from strat.selection.candidates import MOST_COMPLETE, candidates_of, read_grid
from strat.selection.cross_validation import CrossValidation, processes
from strat.selection.other_model import checked_models
from strat.selection.predictions import warn_of_losses
from strat.selection.results import Search
from strat.solvers.progress import Progress

#: log10 of the factors in the first scan, by the kind of constant; a covering takes those of "scale" on every axis.
SCAN = {"scale": (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0), "regularizer": (-2.0, 0.0, 2.0)}
STEP, SHORTEST = 0.5, 0.1  # of the last descent: steps of a factor 3 at first and of 1.3 at last
FAR = 8.0  # log10 of the factors beyond which no constant is tried
PIECE = 12  # points of a grid in one piece


def search(
    models: Any,
    grid: dict | list | None = None,
    *,
    train: tuple,
    sample_weight: ArrayLike | None = None,
    folds: Any = 5,
    random_state: int = 0,
    tol: float = 1e-4,
    max_trials: int = 200,
    n_jobs: int | None = 1,
    time_limit: float | None = None,
    verbose: bool = False,
) -> Search:
    """Choose constants by the lowest held-out loss, and refit the winner to all records.

    The given models compete with those that a search must beat: the common model, separate models, and an LRSM on a
    complete graph of equal weights, which pulls every stratum to the mean of all. Without a grid, the search is over the
    logarithms of each model's constants, without bounds: one scale for each factor of the graph, every scalar
    hyperparameter Parameter that only the regularizer has, and lambda1, lambda2 or sigma where the graph is learned. The
    scales of a given graph are relative to the curvature of the loss, so that the size of its weights does not matter. A
    scan over powers of ten moves all scales together. From its best point each constant is scanned alone, again over
    powers of ten, until no scan helps. A descent from the best point by Nelder and Mead's method follows. Fits are
    warm-started. Ctrl-C and `time_limit` end the search with the best constants tried so far.

    Parameters
    ----------
    models : dict or StratifiedModel
        ``{name: model}``, or one model. They are not changed. Blends, and regressors and classifiers of scikit-learn, take
        part as they are; see `strat.compare`.
    grid : dict or list of dict, optional
        Values to try, every combination: ``{"scale__FACTOR": […], "lambda1": […], "base__NAME": […]}``, each for the
        models that have such a constant. The simple models take part with the grid's ``base__NAME``.
    train : tuple
        ``(*data, strata)``.
    sample_weight : (N,) array-like, optional
        Weights of the records: in the fits, in the means over held-out records and in the winner's fit. A weight of 0
        leaves a record out.
    folds : int, splitter or iterable of pairs
        A number of folds over which every stratum is spread; a splitter such as ``RollingOrigin(6, time=1)``; or pairs of
        positions (training, held out).
    random_state : int
        Seed of the folds.
    tol : float
        Tolerance of the fits on folds; the winner is fitted with its own solver's.
    max_trials : int
        Most choices of constants tried for one candidate without a grid.
    n_jobs : int
        Number of processes, -1 for one per processor; the result is the same. Starting them takes seconds, once.
    time_limit : float, optional
        Seconds after which fits on folds stop; the best model so far is then fitted to all records.
    verbose : bool
        Report progress: by a bar on a terminal if tqdm is installed, and through ``logging.getLogger("strat")``.

    Returns
    -------
    Search
        ``best`` (fitted), ``chosen`` (constants), ``table`` (one row per candidate), ``to_frame``, ``to_markdown``; it prints
        as a table. ``found[name]`` is another candidate with its best constants, fitted.

    Raises
    ------
    OptionError, DataError
        If the arguments are not valid. If no candidate can be fitted, the first error of a fit is raised.

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
    warn_of_losses(models, "Search each loss apart, and give the winners to strat.compare(…, metrics=…).")
    if isinstance(tol, bool) or not isinstance(tol, (int, float)) or not 0 < tol < 1:
        raise OptionError(f"tol must be a number between 0 and 1, not {tol!r}.")
    check_whole("max_trials", max_trials, 1)
    pool = processes(n_jobs)
    sample = Sample(list(models.values()), train, "train")
    weight = read_weight(sample_weight, len(sample))
    pairs = sample.splits(folds, random_state)
    pairs = [(train[weight[train] > 0], test[weight[test] > 0]) for train, test in pairs]
    if not all(len(train) and len(test) for train, test in pairs):
        raise OptionError(
            "sample_weight is 0 for all records that a fold trains on, or holds out. Give other folds, or drop these records."
        )
    held_weight = np.concatenate([weight[test] for _, test in pairs])  # fold after fold
    nodes, whole = in_order(list(sample.labels.values)), sample.part()
    grids = None if grid is None else read_grid(grid, list(models.values()))
    candidates = candidates_of(models, grids, whole, weight, nodes)
    bound = {id(c.model): CrossValidation(c.model, sample, pairs, nodes, tol, weight) for c in candidates}
    jobs = {c.name: [] for c in candidates}
    with Progress("search", None, verbose) as progress, clock.interruptible():
        for pieces in (scans, coverings, descents):
            # The longest jobs come first, so that no process waits for another at the end.
            todo = sorted(candidates, key=lambda c: -sum(job.seconds for job in jobs[(c.refines or c).name]))
            todo = [
                Job(bound[id(c.model)], c, clock, **job) for c in todo for job in pieces(c, max_trials, jobs)
            ]
            for job in pool(map(delayed(Job.__call__), todo)):
                jobs[job.candidate.name].append(job)
                best = min(job.tried.values(), default=math.inf)
                told = f"{job.candidate.name}  {len(job.tried)} choices  lowest held-out loss {best:.6g}"
                told += "".join([f"  {trial.error}" for trial in job.trials if trial.error][:1])
                progress.step(sum(map(len, jobs.values())), told)
                if job.clock.status == "interrupted":
                    raise KeyboardInterrupt
            clock.check()
    table = [row for c in candidates for row in _rows(c, jobs, held_weight)]
    if all(row["error"] for row in table):
        failures = [t.failure for each in jobs.values() for job in each for t in job.trials if t.error]
        if failures:
            raise failures[0]
        if clock.status == "interrupted":
            raise KeyboardInterrupt
        raise OptionError(f"time_limit={time_limit} ended before a single choice of constants was tried.")
    table.sort(key=lambda row: row["mean"])
    for row in table:  # differences to the best, record by record
        known = row["error"] is None and np.isfinite(row["losses"]).all()
        gap = mean_and_error(row["losses"] - table[0]["losses"], held_weight) if known else (None, None)
        row["difference"], row["difference_se"] = gap

    def fitted(row):
        model = clone(row["model"]).set_params(**row["constants"])
        given = None if sample_weight is None else weight
        return model.fit(*whole.data, strata=whole.strata, sample_weight=given)

    best = fitted(table[0])
    infinite = ((row["candidate"], ", ".join(row["infinite"])) for row in table if row["infinite"])
    notes = [f"{name}: the held-out loss of fold {k} of {len(pairs)} is infinite" for name, k in infinite]
    own = getattr(getattr(best, "result_", None), "notes", ())
    notes += [f"{table[0]['candidate']}: {note}" for note in own]
    if clock.status != "finished":
        tried = len({row["candidate"] for row in table if not row["error"]})
        how = "out of time" if clock.status == "time_limit" else clock.status
        notes.append(f"{how}: {tried} of {len(candidates)} candidates were tried, not all to the end")
    states = sum((job.states for each in jobs.values() for job in each), Counter())
    if stopped := states.total() - states["converged"]:
        notes.append(f"{stopped} of {states.total()} fits on folds stopped before tol")
    if len(nodes) > MOST_COMPLETE:
        notes.append(
            f"the complete graph is left out: with {len(nodes):,} strata it would have "
            f"{len(nodes) * (len(nodes) - 1) // 2:,} edges (it takes part up to {MOST_COMPLETE} strata)"
        )
    return Search(table, best, fitted, len(pairs), len(held_weight), clock.seconds, notes)


def _rows(candidate, jobs, weight):
    """The rows of the table for a candidate, the best first."""
    own = jobs[candidate.name]
    # The constants tried for a special case are valid for this candidate, too.
    others = jobs[candidate.refines.name] if candidate.refines is not None else []
    trials = sorted((t for job in own + others for t in job.trials), key=lambda t: (t.loss, str(t.constants)))
    trials, rows = trials if candidate.each else trials[:1], []
    seconds = sum(job.seconds for job in own) / max(len(trials), 1)
    count = 1 if candidate.each else sum(len(job.tried) for job in own)
    for t in trials:
        row = {"candidate": candidate.name, "model": candidate.model, "seconds": seconds, "trials": count}
        losses = None if t.error else np.concatenate(t.losses)
        row |= {"constants": t.constants, "mean": t.loss, "losses": losses, "error": t.error}
        row["se"] = None if t.error else mean_and_error(losses, weight)[1]
        folds = enumerate(() if t.error else t.losses, start=1)
        row["infinite"] = [str(k) for k, of_fold in folds if not np.isfinite(of_fold).all()]
        rows.append(row)
    return rows


@dataclass
class Job:
    """One way to try points of a candidate: a scan of several, or a covering or descent from one. It keeps its results."""

    validation: object
    candidate: object
    clock: object
    way: str  # "scan", "cover" or "descend"
    at: object  # the points, or the one to begin at
    known: dict = field(default_factory=dict)  # losses by points that need not be tried again
    most: float = math.inf  # points to try
    trials: list = field(default_factory=list)  # the best, or all if each is a row
    tried: dict = field(default_factory=dict)  # losses by points
    states: Counter = field(default_factory=Counter)  # of the fits' statuses
    seconds: float = 0.0

    def __call__(self):
        """Try the points; a point whose fit fails has an infinite loss."""
        started, self._last = time.perf_counter(), None
        with self.clock.interruptible():
            ways = {"cover": self._cover, "descend": self._descend}
            ways.get(self.way, lambda points: [*map(self.value, points)])(np.array(self.at))
        for trial in self.trials:
            trial.fits = []
        self.seconds, self.validation, self._last = time.perf_counter() - started, None, None
        return self

    def value(self, x):
        """The loss at a point, tried at most once, with fits started from the last; +inf where no more may be tried."""
        x = tuple(round(float(c), 6) + 0.0 for c in x)
        if x in self.known:
            return self.known[x]
        if x not in self.tried:
            if len(self.tried) >= self.most or (self.way != "scan" and max(map(abs, x)) > FAR):
                return math.inf
            trial = self.validation.trial(self.candidate.constants(x), self._last, self.clock, self.states)
            self._last = trial if math.isfinite(trial.loss) else self._last
            self.tried[x] = trial.loss
            if self.candidate.each or not self.trials:
                self.trials.append(trial)
            elif trial.loss < self.trials[0].loss:
                self.trials = [trial]  # fits of other trials are not kept
        return self.tried[x]

    def _cover(self, x):
        """Scan one axis after the other, from the best point so far, until none helps."""
        before, units = None, np.eye(len(x))
        while not np.array_equal(x, before):
            before = x
            for unit in units:
                x = min([x, *(x * (1 - unit) + value * unit for value in SCAN["scale"])], key=self.value)

    def _descend(self, x):
        """Lower the loss by ever shorter steps (Nelder and Mead)."""
        simplex = np.vstack([x, x + STEP * np.eye(len(x))])
        options = {"initial_simplex": simplex, "xatol": SHORTEST, "fatol": np.inf}
        # Rounding to five digits keeps a level loss level.
        minimize(lambda x: float(f"{self.value(x):.5g}"), x, method="Nelder-Mead", options=options)


def scans(candidate, most, jobs):
    """The pieces of the first scan: common factors of all scales, for each common factor of the regularizer's constants."""
    if candidate.points is not None:
        points = [(k,) for k in range(len(candidate.points))]
        return [{"way": "scan", "at": points[k : k + PIECE]} for k in range(0, len(points), PIECE)]
    if candidate.refines is not None:
        return []
    kinds = [axis.kind for axis in candidate.axes]
    along, across = (SCAN[kind] if kind in kinds else (0.0,) for kind in ("scale", "regularizer"))
    steps = [{"scale": s, "regularizer": r, "graph_regularizer": 0.0} for r in across for s in along]
    points = [tuple(step[kind] for kind in kinds) for step in steps]
    return [{"way": "scan", "at": points, "most": most}]


def coverings(candidate, most, jobs):
    """A covering of a given graph's constants from the best point.

    Where a constant is so large or small that it no longer matters, a descent is stuck: a covering finds what lies beyond.
    """
    learned = any(axis.kind == "graph_regularizer" for axis in candidate.axes)
    return [] if learned else _from_best("cover", candidate, most, jobs)


def descents(candidate, most, jobs):
    return _from_best("descend", candidate, most, jobs)


def _from_best(way, candidate, most, jobs):
    known, left = _known(candidate, most, jobs)
    start = min(known, key=known.get, default=None)
    some = left > 0 and known.get(start, math.inf) < math.inf
    return [{"way": way, "at": start, "known": known, "most": left}] if some else []


def _known(candidate, most, jobs):
    """The losses at points that were tried, including those of a special case, and how many more may be tried."""
    if candidate.points is not None or not candidate.axes:
        return {}, 0
    own = {x: loss for job in jobs[candidate.name] for x, loss in job.tried.items()}
    if candidate.refines is None:
        return own, most - len(own)
    scales = 1 + len(candidate.axes) - len(candidate.refines.axes)  # the special case has one axis for all
    special = (job.tried.items() for job in jobs[candidate.refines.name])
    return {x[:1] * scales + x[1:]: loss for job in special for x, loss in job} | own, most - len(own)
