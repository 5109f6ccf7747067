"""The result of a comparison: one table for all models and metrics."""

from collections import Counter

import numpy as np

from strat.errors import OptionError
from strat.plot import canvas
from strat.records.tables import Table, mean_and_error


class Comparison(Table):
    """Models on held-out records.

    Attributes
    ----------
    runs : list of dict
        One for each split and model: model, seed, seconds, status, objective, error (text or None), notes, and values
        ``{(part, metric): value}``; the part "unseen" are the test records of strata without training records.
    """

    def __init__(self, models, metrics, runs, notes=()):
        self.models, self.metrics, self.runs, self.notes = models, metrics, runs, list(notes)
        self.parts = ["test", "train"] + ["unseen"] * any(run["unseen"] for run in runs)
        self.splits = len(runs) // len(models)
        self._measures = [(part, metric) for part in self.parts for metric in metrics]
        kinds = ("", " s.e.")[: self.splits]  # one split has no standard error
        names = [f"{part} {metric}" for part, metric in self._measures]
        self.layout = [("model", None), *((name, 4, *(name + kind for kind in kinds)) for name in names)]
        self.layout += [("seconds", 2), ("status", None), ("objective", 8), ("error", None)]

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
        return mean_and_error([value for value in self._values(model, metric, part) if value is not None])

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
        subtracted, others = self._values(reference, metric, part), [m for m in self.models if m != reference]
        pairs = {name: zip(self._values(name, metric, part), subtracted, strict=True) for name in others}
        return {m: mean_and_error([a - b for a, b in p if None not in (a, b)]) for m, p in pairs.items()}

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
        return min(self.models, key=lambda name: (means[name] is None, means[name]))

    def cells(self):
        """Rows of values, one a model."""
        rows = []
        for name in self.models:
            runs = [run for run in self.runs if run["model"] == name]
            states = Counter(run["status"] for run in runs).most_common()
            status = states[0][0] if len(states) == 1 else ", ".join(f"{n} {s}" for s, n in states)
            seconds, _ = mean_and_error([run["seconds"] for run in runs])
            objective, _ = mean_and_error([run["objective"] for run in runs if run["objective"] is not None])
            error = next((run["error"] for run in runs if run["error"]), None)
            means = [self.mean(name, metric, part)[: self.splits] for part, metric in self._measures]
            rows.append([name, *sum(means, ()), seconds, status, objective, error])
        return rows

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
        metric, K = self.metrics[0] if metric is None else metric, len(self.models)
        ax = canvas.axes(ax, (6, 0.8 + 0.4 * K))
        styles = {"test": {"color": "C0"}, "train": {"color": "0.55", "mfc": "white"}}
        for lower, (part, style) in enumerate(styles.items()):
            means = np.array([self.mean(name, metric, part) for name in self.models], dtype=float)
            y, errors = np.arange(K) + 0.12 * lower, np.nan_to_num(means[:, 1])
            ax.errorbar(means[:, 0], y, xerr=errors, fmt="o", markersize=5, capsize=2, label=part, **style)
        ax.set_yticks(range(K), self.models)
        ax.set(ylim=(K - 0.5, -0.5), xlabel=metric, axisbelow=True)
        ax.grid(axis="x", color="0.9")
        ax.legend(frameon=False)
        ax.spines[["top", "right"]].set_visible(False)
        return ax

    def __str__(self):
        lines = self.printed()
        seeds = [run["seed"] for run in self.runs[:: len(self.models)] if run["seed"] is not None]
        if self.splits > 1:
            how = f", seeds {seeds[0]} to {seeds[-1]}" if seeds else ""
            lines.append(f"mean ± standard error over {self.splits} splits{how}")
        if count := sum(run["unseen"] for run in self.runs[:: len(self.models)]):
            lines.append(f"unseen: {count} test records in strata without training records")
        for name in self.models:
            texts = Counter(text for run in self.runs if run["model"] == name for text in run["notes"])
            lines += [f"note  {name}: {text}" for text in list(texts)[:2]]
        return "\n".join([*lines, *(f"note  {text}" for text in self.notes)])

    def _values(self, model, metric, part):
        metric = self.metrics[0] if metric is None else metric
        for name, known, what in ((metric, self.metrics, "metrics"), (model, self.models, "models")):
            if name not in known:
                raise OptionError(f"{name!r} is none of the {what} {', '.join(known)}.")
        return [run["values"].get((part, metric)) for run in self.runs if run["model"] == model]
