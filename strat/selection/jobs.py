"""The pieces of a search that do not depend on one another: they may run in several processes, with the same results."""

import math
import time
from dataclasses import dataclass, field

from sklearn.utils.parallel import Parallel, delayed

from strat.selection.clock import OutOfTime
from strat.selection.cross_validation import Trials
from strat.selection.pattern_search import PatternSearch

#: log10 of the factors of the first scan, by the kind of constant; and those on each axis from there.
SCAN = {"scale": (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0), "regularizer": (-2.0, 0.0, 2.0)}
COVER = (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0)
#: Points of a grid in one piece.
PIECE = 12


@dataclass
class Job:
    """Some constants of a candidate to try: a list, points of the pattern search, or a descent from one of its points."""

    validation: object
    candidate: object
    clock: object
    constants: list = ()
    scan: list = ()
    descent: tuple | None = None
    known: dict = field(default_factory=dict)  # losses by points that need not be tried again
    most: int = 10**9

    def __call__(self):
        """Try them; a point whose fit fails has an infinite loss."""
        done, trials = Outcome(self.candidate.name), Trials(self.validation, self.clock)

        def loss(x):
            try:
                trial = trials(self.candidate.constants(x))
            except OutOfTime:
                raise
            except Exception as error:  # one candidate's failure is a row of the table
                done.errors.append(error)
                return math.inf
            if not done.trials or trial.loss < done.trials[0].loss:
                done.trials = [trial]  # the others' fits are not kept
            return trial.loss

        search, started = PatternSearch(loss, most=self.most + len(self.known)), time.perf_counter()
        search.tried |= self.known
        try:
            for constants in self.constants:
                done.trials.append(trials(constants))
            for x in self.scan:
                search.value(x)
            if self.descent is not None:
                self._descend(search)
        except (OutOfTime, KeyboardInterrupt) as stop:
            done.stopped = "time_limit" if isinstance(stop, OutOfTime) else "interrupted"
        except Exception as error:
            done.errors.append(error)
        done.losses = [self.validation.losses(trial) for trial in done.trials]
        for trial in done.trials:
            trial.fits = []
        done.tried, done.states, done.count = search.tried, trials.states, trials.count
        done.seconds = time.perf_counter() - started
        return done

    def _descend(self, search):
        """Cover every axis of a given graph's scales and of the regularizer, then lower the loss by ever shorter steps."""
        axes = self.candidate.axes
        kinds = {kind: tuple(float(axis.kind == kind) for axis in axes) for kind in SCAN}
        kinds = {kind: direction for kind, direction in kinds.items() if any(direction)}
        start = self.descent
        if not any(axis.kind == "graph_regularizer" for axis in axes):
            start = search.cover(start, range(len(axes)), COVER)
        # Regularizer and graph can replace each other: one up and the other down, or both up.
        diagonals = []
        if len(kinds) == 2:
            pairs = list(zip(*kinds.values(), strict=True))
            diagonals = [tuple(a - b for a, b in pairs), tuple(a + b for a, b in pairs)]
        search.search(start, diagonals)


@dataclass
class Outcome:
    """What a job found."""

    name: str
    trials: list = field(default_factory=list)  # the best, or those of given constants
    losses: list = field(default_factory=list)  # of every held-out record, for each trial
    tried: dict = field(default_factory=dict)  # losses by points of the pattern search
    errors: list = field(default_factory=list)
    states: dict = field(default_factory=dict)  # counts of the fits' statuses
    count: int = 0  # of choices of constants tried
    seconds: float = 0.0
    stopped: str | None = None  # "time_limit" or "interrupted"


def scan_rows(candidate):
    """Points of the first scan in rows along the scales, with all axes of one kind together."""
    kinds = [axis.kind for axis in candidate.axes]
    along, across = (SCAN[kind] if kind in kinds else (0.0,) for kind in ("scale", "regularizer"))
    rows = [[{"scale": s, "regularizer": r, "graph_regularizer": 0.0} for s in along] for r in across]
    rows = rows if len(along) > 1 else [sum(rows, [])]
    return [[tuple(at[kind] for kind in kinds) for at in row] for row in rows]


def basins(tried, most, apart=2.0):
    """The best points of a scan, each at least `apart` from those before on some axis."""
    chosen = []
    for x in sorted(tried, key=tried.get):
        distances = [max(map(abs, map(float.__sub__, x, y)), default=0.0) for y in chosen]
        if len(chosen) < most and all(d >= apart for d in distances) and math.isfinite(tried[x]):
            chosen.append(x)
    return chosen


#: What this process keeps of the last search: its validations by their keys, whose records are bound once.
_KEPT = {}


def _work(job):
    key = job.validation.key
    if not any(key[0] == known[0] for known in _KEPT):
        _KEPT.clear()
    job.validation = _KEPT.setdefault(key, job.validation)
    return job()


def outcomes(jobs, n_jobs):
    """The outcome of every job, in their order."""
    if n_jobs == 1:
        return (job() for job in jobs)
    return Parallel(n_jobs=n_jobs, return_as="generator", batch_size=1)(delayed(_work)(job) for job in jobs)
