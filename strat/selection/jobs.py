"""The pieces of a search that do not depend on one another: they may run in several processes, with the same results."""

import math
import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import minimize

from strat.oracles.clock import OutOfTime

#: log10 of the factors of the first scan, by the kind of constant; and those on each axis from there.
SCAN = {"scale": (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0), "regularizer": (-2.0, 0.0, 2.0)}
#: The last descent begins with steps of a factor 3, and ends where steps of 1.3 change the loss by a ten thousandth.
STEP, SHORTEST, GAIN = 0.5, 0.1, 1e-4
FAR = 8.0  # log10 of the factors beyond which no constant is tried
PIECE = 12  # points of a grid in one piece


@dataclass
class Job:
    """Some points of a candidate to try, and a descent from one; what came of it stands in the fields below."""

    validation: object
    candidate: object
    clock: object
    scan: list = ()
    start: tuple | None = None
    known: dict = field(default_factory=dict)  # losses by points that need not be tried again
    most: float = math.inf  # points to try
    trials: list = field(default_factory=list)  # the best, or all where each is a row
    tried: dict = field(default_factory=dict)  # losses by points
    states: Counter = field(default_factory=Counter)  # of the fits' statuses
    seconds: float = 0.0
    stopped: str | None = None  # "time_limit" or "interrupted"

    def __call__(self):
        """Try them; a point whose fit fails has an infinite loss."""
        started, self._last = time.perf_counter(), None
        try:
            for x in self.scan:
                self.value(x)
            if self.start is not None:
                self._descend(np.array(self.start))
        except (OutOfTime, KeyboardInterrupt) as stop:
            self.stopped = "time_limit" if isinstance(stop, OutOfTime) else "interrupted"
        for trial in self.trials:
            trial.fits = []
        self.seconds, self.validation, self._last = time.perf_counter() - started, None, None
        return self

    def value(self, x):
        """The loss at a point, tried at most once, from the last fits; +inf where no more may be tried."""
        x = tuple(round(float(c), 6) + 0.0 for c in x)
        if x in self.known:
            return self.known[x]
        if x not in self.tried:
            if len(self.tried) >= self.most or (self.start and max(map(abs, x)) > FAR):
                return math.inf
            trial = self.validation.trial(self.candidate.constants(x), self._last, self.clock, self.states)
            self._last = trial if math.isfinite(trial.loss) else self._last
            self.tried[x] = trial.loss
            if self.candidate.each or not self.trials:
                self.trials.append(trial)
            elif trial.loss < self.trials[0].loss:
                self.trials = [trial]  # the others' fits are not kept
        return self.tried[x]

    def _descend(self, x):
        """Cover every axis of a model whose graph is given, then lower the loss by ever shorter steps."""
        learned, before = any(axis.kind == "graph_regularizer" for axis in self.candidate.axes), None
        units = np.eye(len(x))
        # Where a constant no longer matters, far out, steps say nothing: covering finds what lies beyond.
        while not learned and not np.array_equal(x, before):
            before = x
            for unit in units:
                x = min([x, *(x * (1 - unit) + value * unit for value in SCAN["scale"])], key=self.value)
        options = {"initial_simplex": np.vstack([x, x + STEP * units]), "xatol": SHORTEST}
        options["fatol"] = GAIN * abs(self.value(x))
        if math.isfinite(options["fatol"]):
            # Without further digits, what is level stays so, and ends the descent.
            minimize(lambda x: float(f"{self.value(x):.5g}"), x, method="Nelder-Mead", options=options)


def first_jobs(candidate, most, scanned):
    """The pieces of the first scan: all scales together, for each factor of the regularizer's constants together."""
    if candidate.points is not None:
        points = [(k,) for k in range(len(candidate.points))]
        return [{"scan": points[k : k + PIECE]} for k in range(0, len(points), PIECE)]
    if candidate.refines is not None:
        return []
    kinds = [axis.kind for axis in candidate.axes]
    along, across = (SCAN[kind] if kind in kinds else (0.0,) for kind in ("scale", "regularizer"))
    steps = [{"scale": s, "regularizer": r, "graph_regularizer": 0.0} for r in across for s in along]
    return [{"scan": [tuple(step[kind] for kind in kinds) for step in steps], "most": most}]


def second_jobs(candidate, most, scanned):
    """Descents from the best points of the scan: from two apart where the candidate has several scales, else from one."""
    if candidate.points is not None or not candidate.axes:
        return []
    # The scan has one axis for all scales.
    scales = 1 + len(candidate.axes) - len((candidate.refines or candidate).axes)
    known = {x[:1] * scales + x[1:]: loss for job in scanned for x, loss in job.tried.items()}
    starts = []
    for x in sorted(known, key=known.get)[: len(known) if candidate.refines else 1]:
        apart = all(np.abs(np.subtract(x, y)).max() >= 2.0 for y in starts)
        if apart and len(starts) < 2 and math.isfinite(known[x]):
            starts.append(x)
    most = most if candidate.refines else most - len(known)
    share = most // max(len(starts), 1)
    return [{"start": x, "known": known, "most": share} for x in starts if share > 0]
