"""Compare models on held-out records: one table for all models and metrics."""

import time
import warnings
from collections import Counter
from itertools import product
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.model_selection import train_test_split
from sklearn.utils.parallel import delayed

from strat.errors import OptionError, check_whole, first_line
from strat.model.fit import fit_within
from strat.plot import canvas
from strat.records.sample import Sample
from strat.records.strata import in_order
from strat.records.tables import Table, mean_and_error
from strat.selection.candidates import with_strata
from strat.selection.cross_validation import processes
from strat.selection.other_model import checked_models
from strat.selection.predictions import prediction_of, warn_of_losses


def compare(
    models: dict,
    train: tuple | None = None,
    test: tuple | None = None,
    *,
    data: tuple | None = None,
    splits: Any = 10,
    test_size: float = 0.2,
    random_state: int = 0,
    metrics: dict | None = None,
    n_jobs: int = 1,
) -> "Comparison":
    """Fit models and measure them on the same records.

    Every model is cloned; the user's objects stay as they are. A model that fails is a row with its error. A model
    without a graph gets the strata of all records as its nodes, so that it predicts for those without training records.
    Ctrl-C returns the table of the splits that are done.

    Parameters
    ----------
    models : dict
        ``{name: model}``: stratified models, blends, and regressors and classifiers of scikit-learn. These get the data of
        ``predict`` and the parts of the strata as columns: one for each part where they are trees, ensembles of
        trees or boosting, else one for each of its values. Their predictions are put on the scale of the loss: the
        mean, its logarithm or the logit of the probability, whichever has the lowest expected loss.
    train, test : tuple
        ``(*data, strata)``: one split that is given.
    data : tuple
        ``(*data, strata)``: all records, to be split repeatedly.
    splits : int, splitter or iterable of pairs
        A number of random splits; a splitter such as ``StrataKFold(5)`` or ``RollingOrigin(6, time=1)``; or pairs of
        positions (training, test).
    test_size : float
        Share of the records that random splits test on.
    random_state : int
        Random split number i has the seed random_state + i.
    metrics : dict, optional
        ``{name: metric}``, each the word "loss" (the mean loss, the default) or a function ``f(y_true, prediction)`` of
        the last data argument and the declaration's ``predict``.
    n_jobs : int
        Number of processes, -1 for one a processor; the result is the same, but for the seconds.

    Returns
    -------
    Comparison
        It prints; ``to_frame``, ``to_markdown``, ``plot``, ``paired``.

    Raises
    ------
    OptionError, DataError
        Where the arguments have no meaning.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, strat
    >>> theta, y = cp.Variable(name="theta"), cp.Parameter(name="y")
    >>> base = strat.BaseModel(cp.square(y - theta), data=(y,), predict=theta)
    >>> rng = np.random.default_rng(0)
    >>> z = rng.integers(0, 4, 80)
    >>> models = {"common": strat.common(base), "lrsm": strat.lrsm(base, strat.graphs.path(4))}
    >>> table = strat.compare(models, data=(z + rng.normal(size=80), z), splits=5)
    >>> table.best()
    'lrsm'
    """
    models = checked_models(models)
    metrics = {"loss": "loss"} if metrics is None else metrics
    metrics = {metrics: metrics} if isinstance(metrics, str) else metrics
    if not isinstance(metrics, dict) or not metrics:
        raise OptionError('metrics must be a dict {"name": "loss" or a function f(y_true, prediction)}.')
    for name, metric in metrics.items():
        if metric != "loss" and not callable(metric):
            raise OptionError(f'metric {name!r} must be "loss" or f(y_true, prediction), not {metric!r}.')
    if (train is None) != (test is None):
        raise OptionError("train= and test= go together; give both, or data= to be split.")
    if (train is None) == (data is None):
        raise OptionError("give either train= and test=, or data= to be split.")
    if set(map(str, metrics.values())) == {"loss"}:
        warn_of_losses(models, 'Give a metric for all, metrics={"name": f(y_true, prediction)}.')
    everyone, seeds = list(models.values()), None
    if train is not None:
        parts = [(Sample(everyone, train, "train").part(), Sample(everyone, test, "test").part())]
    else:
        sample = Sample(everyone, data, "data")
        if isinstance(splits, Integral) and not isinstance(splits, bool):
            check_whole("splits", splits, 1)
            if isinstance(test_size, bool) or not 0 < test_size < 1:
                raise OptionError(f"test_size must be a share between 0 and 1, not {test_size!r}.")
            check_whole("random_state", random_state, 0)
            if len(sample) < 2:
                raise OptionError(
                    "data has one record, which cannot be split; give more, or train= and test=."
                )
            seeds, rows = range(random_state, random_state + splits), np.arange(len(sample))
            splits = [train_test_split(rows, test_size=test_size, random_state=seed) for seed in seeds]
        parts = [(sample.part(a), sample.part(b)) for a, b in sample.splits(splits)]
    strata = in_order(dict.fromkeys(label for pair in parts for part in pair for label in part.labels))
    seeds = seeds or [None] * len(parts)
    todo = product(zip(parts, seeds, strict=True), models.items())
    jobs = (delayed(_run)(n, seed, with_strata(m, strata), *pair, metrics) for (pair, seed), (n, m) in todo)
    runs, notes = [], []
    try:
        for run in processes(n_jobs)(jobs):
            runs.append(run)
    except KeyboardInterrupt:
        if len(runs) < len(models):
            raise
        runs = runs[: len(runs) - len(runs) % len(models)]
        notes.append(f"interrupted after {len(runs) // len(models)} of {len(parts)} splits")
    return Comparison(list(models), list(metrics), runs, notes)


def _run(name, seed, model, train, test, metrics):
    """Fit one model to one split and measure it."""
    seen, run = set(train.labels), {"model": name, "seed": seed, "status": "failed", "objective": None}
    unseen = np.flatnonzero([label not in seen for label in test.labels])
    run |= {"error": None, "values": {}, "unseen": len(unseen)}
    parts = {"test": test, "train": train, **({"unseen": test.part(unseen)} if len(unseen) else {})}

    def measured(part, metric):
        if isinstance(metric, str):
            return -model.score(*part.data, strata=part.strata)
        y = part.data[-1].toarray() if sp.issparse(part.data[-1]) else np.asarray(part.data[-1])
        return float(metric(y.reshape(len(y), *model.base.data[-1].shape), prediction_of(model, part)))

    started = time.perf_counter()
    with warnings.catch_warnings(record=True, action="always") as caught:
        try:
            fit_within(model, train.data, train.strata)
            run["seconds"] = time.perf_counter() - started
            pairs = product(parts.items(), metrics.items())
            run["values"] = {(where, name): measured(part, metric) for (where, part), (name, metric) in pairs}
            run["status"] = "fitted"
            if hasattr(model, "result_"):
                run |= {"status": model.result_.status, "objective": model.result_.objective}
        except Exception as error:  # one model's failure is a row of the table
            run["error"] = first_line(error)
    run["notes"] = [str(w.message) for w in caught if w.category.__module__.startswith("strat")]
    return {"seconds": time.perf_counter() - started, **run}


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
        """Name of the model with the lowest mean of a metric on the test records, among those with a value for most splits.

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
            if 0 < (missing := self._missing(name)) < self.splits:
                lines.append(
                    f"note  {name}: its means are over {self.splits - missing} of {self.splits} splits alone"
                )
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
