"""The results of a search and of a comparison: tables of candidates and of models."""

from collections import Counter

import numpy as np

from strat.errors import OptionError
from strat.plot import canvas
from strat.records.tables import Table, mean_and_error

SHOWN = 40  # most rows that are printed


class Search(Table):
    """The candidates of a search, from the lowest cross-validated loss to the highest.

    Attributes
    ----------
    table : list of dict
        One row for each candidate: candidate (name), constants (dict), mean (held-out loss), se (its standard error over
        records), difference (to the best, record by record), difference_se, trials, seconds, error.
    best : StratifiedModel
        The candidate with the lowest loss, fitted to all records; ``found[name]`` is the best of another candidate.
    folds, records : int
        Number of folds, and of held-out records.
    seconds : float
        Time of the whole search.
    notes : list of str
        Remarks.
    """

    def __init__(self, table, best, fitted, folds, records, seconds, notes):
        inner = ("model", "losses", "infinite")
        self.table = [{k: v for k, v in row.items() if k not in inner} for row in table]
        self.best, self.folds, self.records = best, folds, records
        self.seconds, self.notes = seconds, notes
        first = {row["candidate"]: row for row in reversed(table) if not row["error"]}
        self._fitted, self._rows, self._models = fitted, first, {table[0]["candidate"]: best}
        names = dict.fromkeys(name for row in table for name in row["constants"])
        constants = [(n.removeprefix("graph_regularizer__").removeprefix("base__"), 3, n) for n in names]
        self.layout = [("candidate", None), ("held-out loss", 5, "mean", "s.e.")]
        self.layout += [("above the best", 2, "difference", "difference s.e."), *constants]
        self.layout += [("trials", None), ("seconds", 2), ("error", None)]

    @property
    def chosen(self):
        """The constants of the best candidate, by their names in ``set_params``."""
        return dict(self.table[0]["constants"])

    @property
    def candidate(self):
        """The name of the best candidate."""
        return self.table[0]["candidate"]

    def __getitem__(self, candidate):
        """A candidate with its best constants, fitted to all records on first use."""
        if candidate not in self._rows:
            known = ", ".join(self._rows)
            raise OptionError(f"{candidate!r} is none of the candidates that could be fitted: {known}.")
        if candidate not in self._models:
            self._models[candidate] = self._fitted(self._rows[candidate])
        return self._models[candidate]

    def cells(self):
        """Rows of values, one a candidate."""
        names = {"s.e.": "se", "difference s.e.": "difference_se"}
        keys = [names.get(column, column) for column in self.columns]
        return [[{**row, **row["constants"]}.get(key) for key in keys] for row in self.table]

    def __str__(self):
        about = (
            f"mean ± standard error over {self.records} held-out records of {self.folds} folds, differences record by "
            f"record; {self.seconds:.1f} s"
        )
        return "\n".join([*self.printed(SHOWN), about, *(f"note  {note}" for note in self.notes)])


class Comparison(Table):
    """Models on held-out records.

    Attributes
    ----------
    runs : list of dict
        One entry for each split and model: model, seed, seconds, status, objective, error (text or None), notes, and values
        ``{(part, metric): value}``; the part "unseen" is the test records of strata without training records.
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
            ``{model: (mean difference, its standard error)}``; a model below 0 is lower than the reference.
        """
        subtracted, others = self._values(reference, metric, part), [m for m in self.models if m != reference]
        pairs = {name: zip(self._values(name, metric, part), subtracted, strict=True) for name in others}
        return {m: mean_and_error([a - b for a, b in p if None not in (a, b)]) for m, p in pairs.items()}

    def best(self, metric=None):
        """Name of the model with the lowest mean of a metric on test records, among those with values for the most splits.

        Parameters
        ----------
        metric : str, optional
            A metric's name, the first by default.

        Returns
        -------
        str
            The model.
        """
        missing = {name: self._missing(name, metric) for name in self.models}
        whole = [name for name in self.models if missing[name] == min(missing.values()) < self.splits]
        return min(whole or self.models[:1], key=lambda name: self.mean(name, metric)[0])

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
        """Plot means with standard errors: filled dots for test records, empty ones for training records.

        Parameters
        ----------
        metric : str, optional
            A metric's name, the first by default.
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib.axes.Axes
            The axes with the drawing.
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
            if 0 < (missing := self._missing(name)) < self.splits:
                lines.append(f"note  {name}: means over {self.splits - missing} of {self.splits} splits")
        return "\n".join([*lines, *(f"note  {text}" for text in self.notes)])

    def _missing(self, model, metric=None):
        """The number of splits without a value on the test records."""
        return int(np.isnan(np.array(self._values(model, metric, "test"), dtype=float)).sum())

    def _values(self, model, metric, part):
        metric = self.metrics[0] if metric is None else metric
        for name, known, what in ((metric, self.metrics, "metrics"), (model, self.models, "models")):
            if name not in known:
                raise OptionError(f"{name!r} is none of the {what} {', '.join(known)}.")
        return [run["values"].get((part, metric)) for run in self.runs if run["model"] == model]
