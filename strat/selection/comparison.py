"""What a comparison of models found: one table for all models and metrics."""

import math
from collections import Counter

import numpy as np

from strat.errors import OptionError
from strat.plot.dots import dots
from strat.records.tables import Table, aligned, number

#: The parts of the records on which models are measured, in the order of the columns.
PARTS = ("test", "train", "unseen")


class Comparison(Table):
    """Models on held-out records.

    Parameters
    ----------
    models, metrics : list of str
        The names.
    runs : list of dict
        One for each split and model.
    notes : sequence of str
        Remarks on the whole.

    Attributes
    ----------
    runs : list of dict
        One for each split and model: model, seed, seconds, status, objective, error (text or None), notes, and values
        ``{(part, metric): value}``; the parts are test, train, and unseen: the test records of strata that had no
        training records.
    """

    def __init__(self, models, metrics, runs, notes=()):
        self.models, self.metrics, self.runs, self.notes = models, metrics, runs, list(notes)
        shown = [
            p for p in PARTS if p != "unseen" or any(("unseen", metrics[0]) in r["values"] for r in runs)
        ]
        self.parts = shown
        self.splits = len(runs) // len(models)
        self.columns = ["model"]
        for part in shown:
            for metric in metrics:
                self.columns.append(f"{part} {metric}")
                if self.splits > 1:
                    self.columns.append(f"{part} {metric} s.e.")
        self.columns += ["seconds", "status", "objective", "error"]

    def mean(self, model, metric=None, part="test"):
        """Mean over the splits, and its standard error.

        Parameters
        ----------
        model : str
            A model's name.
        metric : str, optional
            A metric's name, the first by default.
        part : {"test", "train", "unseen"}
            On which records.

        Returns
        -------
        mean, error : float
            The standard error is None for a single split; both are None where the model has no value.
        """
        return _mean([value for value in self._values(model, metric, part) if value is not None])

    def paired(self, reference, metric=None, part="test"):
        """Differences to one model, split by split.

        Parameters
        ----------
        reference : str
            The model to subtract.
        metric : str, optional
            A metric's name, the first by default.
        part : {"test", "train", "unseen"}
            On which records.

        Returns
        -------
        dict
            ``{model: (mean difference, its standard error)}``; below 0: lower than the reference.
        """
        if reference not in self.models:
            raise OptionError(f"{reference!r} is none of the models {', '.join(self.models)}.")
        base = self._values(reference, metric, part)
        return {
            name: _mean(
                [
                    a - b
                    for a, b in zip(self._values(name, metric, part), base, strict=True)
                    if a is not None and b is not None
                ]
            )
            for name in self.models
            if name != reference
        }

    def best(self, metric=None):
        """Name of the model with the lowest mean of a metric on the test records.

        Parameters
        ----------
        metric : str, optional
            A metric's name, the first by default.

        Returns
        -------
        str
            The model.
        """
        means = {name: self.mean(name, metric)[0] for name in self.models}
        return min(self.models, key=lambda name: math.inf if means[name] is None else means[name])

    def cells(self):
        """Rows of values, one a model."""
        rows = []
        for name in self.models:
            row = [name]
            for part in self.parts:
                for metric in self.metrics:
                    mean, error = self.mean(name, metric, part)
                    row += [mean] if self.splits == 1 else [mean, error]
            rows.append([*row, *self._outcome(name)])
        return rows

    def texts(self):
        """Head and rows as texts, mean and standard error in one cell."""
        pairs = [(part, metric) for part in self.parts for metric in self.metrics]
        failed = any(run["error"] for run in self.runs)
        lines = [
            ["model", *(" ".join(p) for p in pairs), "seconds", "status", "objective"] + ["error"] * failed
        ]
        for name in self.models:
            row = [name]
            for part, metric in pairs:
                mean, error = self.mean(name, metric, part)
                row.append(number(mean) + ("" if error is None else f" ± {number(error, 2)}"))
            seconds, status, objective, failure = self._outcome(name)
            row += [number(seconds, 2), status, number(objective, 8)]
            lines.append(row + [failure or ""] * failed)
        return lines

    def plot(self, metric=None, ax=None):
        """Dots with standard errors: test records filled, training records empty.

        Parameters
        ----------
        metric : str, optional
            A metric's name, the first by default.
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib.axes.Axes
            With the drawing.
        """
        metric = self._known(metric)
        values = {part: [self.mean(name, metric, part) for name in self.models] for part in ("test", "train")}
        return dots(self.models, values, metric, ax)

    def __str__(self):
        failures = [(name, self._outcome(name)[-1]) for name in self.models]
        width = len(self.texts()[0]) - any(error for _, error in failures)
        lines = [aligned([line[:width] for line in self.texts()])]
        lines += [f"failed  {name}: {error}" for name, error in failures if error]
        seeds = [run["seed"] for run in self.runs[:: len(self.models)] if run["seed"] is not None]
        if self.splits > 1:
            how = f", seeds {seeds[0]} to {seeds[-1]}" if seeds else ""
            lines.append(f"mean ± standard error over {self.splits} splits{how}")
        if "unseen" in self.parts:
            counts = [run["unseen"] for run in self.runs[:: len(self.models)]]
            lines.append(f"unseen: {sum(counts)} test records in strata without training records")
        for name in self.models:
            texts = Counter(text for run in self.runs if run["model"] == name for text in run["notes"])
            lines += [f"note  {name}: {text}" for text in list(texts)[:2]]
        lines += [f"note  {text}" for text in self.notes]
        return "\n".join(lines)

    __repr__ = __str__

    def _known(self, metric):
        metric = self.metrics[0] if metric is None else metric
        if metric not in self.metrics:
            raise OptionError(f"{metric!r} is none of the metrics {', '.join(self.metrics)}.")
        return metric

    def _values(self, model, metric, part):
        key = (part, self._known(metric))
        if model not in self.models:
            raise OptionError(f"{model!r} is none of the models {', '.join(self.models)}.")
        return [run["values"].get(key) for run in self.runs if run["model"] == model]

    def _outcome(self, name):
        """Seconds, status, objective, error of one model."""
        runs = [run for run in self.runs if run["model"] == name]
        states = Counter(run["status"] for run in runs)
        status = (
            next(iter(states)) if len(states) == 1 else ", ".join(f"{n} {s}" for s, n in states.most_common())
        )
        errors = [run["error"] for run in runs if run["error"]]
        seconds, _ = _mean([run["seconds"] for run in runs])
        objective, _ = _mean([run["objective"] for run in runs if run["objective"] is not None])
        return [seconds, status, objective, errors[0] if errors else None]


def _mean(values):
    """Mean and standard error of the mean."""
    if not values:
        return None, None
    values = np.asarray(values, dtype=float)
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return float(values.mean()), error
