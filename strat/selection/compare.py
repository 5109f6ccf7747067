"""Compare models on held-out records: one table for all models and metrics."""

import time
import warnings
from itertools import product, repeat
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.utils.parallel import delayed

from strat.errors import OptionError, check_whole, first_line
from strat.model.fit import fit_within
from strat.records.sample import Sample
from strat.records.strata import in_order
from strat.selection.candidates import with_strata
from strat.selection.cross_validation import processes
from strat.selection.other_model import checked_models
from strat.selection.predictions import measure, warn_of_losses
from strat.selection.results import Comparison


def compare(
    models: dict,
    train: tuple | None = None,
    test: tuple | None = None,
    *,
    data: tuple | None = None,
    sample_weight: Any = None,
    splits: Any = 10,
    test_size: float = 0.2,
    random_state: int = 0,
    metrics: dict | None = None,
    n_jobs: int = 1,
) -> "Comparison":
    """Fit models and measure them on the same records.

    Every model is cloned; the user's objects are not changed. A model that fails gives a row with its error. A model
    without a graph gets the strata of all records as its nodes, so that it predicts for those without training records.
    Ctrl-C returns the table of the splits that are done.

    Parameters
    ----------
    models : dict
        ``{name: model}``: stratified models, blends, and regressors and classifiers of scikit-learn. The latter get the
        data of ``predict`` and the parts of the strata as columns: one for each part for trees, ensembles of trees and
        boosting, else one for each value of a part. Their predictions are put on the scale of the loss: the
        mean, its logarithm or the logit of the probability, whichever has the lowest expected loss.
    train, test : tuple
        ``(*data, strata)`` of both parts of a single, given split.
    data : tuple
        ``(*data, strata)``: all records, to be split repeatedly.
    sample_weight : (N,) array-like, or a pair of them, optional
        Weights of the records of `data`, or a pair for those of `train` and of `test`; in fits and in metrics.
    splits : int, splitter or iterable of pairs
        A number of random splits; a splitter such as ``StrataKFold(5)`` or ``RollingOrigin(6, time=1)``; or pairs of
        positions (training, test).
    test_size : float
        Share of the records that random splits hold out for testing.
    random_state : int
        Random split number i has the seed random_state + i.
    metrics : dict, optional
        ``{name: metric}``, each either "loss" (the mean loss, the default) or a function ``f(y_true, prediction)`` of the
        last data argument and the declaration's ``predict``, with ``sample_weight=`` where weights are given.
    n_jobs : int
        Number of processes, -1 for one per processor; the result is the same, except for the seconds.

    Returns
    -------
    Comparison
        A printable table, with ``to_frame``, ``to_markdown``, ``plot`` and ``paired``.

    Raises
    ------
    OptionError, DataError
        If the arguments are not valid.

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
    metrics = {metrics or "loss": metrics or "loss"} if isinstance(metrics, str | None) else metrics
    if not isinstance(metrics, dict) or not metrics:
        raise OptionError('metrics must be a dict {"name": "loss" or a function f(y_true, prediction)}.')
    for name, metric in metrics.items():
        if metric != "loss" and not callable(metric):
            raise OptionError(f'metric {name!r} must be "loss" or f(y_true, prediction), not {metric!r}.')
    if (train is None) != (test is None) or (train is None) == (data is None):
        raise OptionError("give either train= and test=, or data= to be split; train= and test= go together.")
    if set(map(str, metrics.values())) == {"loss"}:
        warn_of_losses(models, 'Give a metric for all, metrics={"name": f(y_true, prediction)}.')
    everyone, seeds = list(models.values()), repeat(None)
    if train is not None:
        if sample_weight is not None and (not isinstance(sample_weight, tuple) or len(sample_weight) != 2):
            raise OptionError("beside train= and test=, sample_weight must be a pair, (of train, of test).")
        both = zip((train, test), ("train", "test"), sample_weight or (None, None), strict=True)
        parts = [tuple(Sample(everyone, *one).part() for one in both)]
    else:
        sample = Sample(everyone, data, "data", sample_weight)
        if isinstance(splits, Integral) and not isinstance(splits, bool):
            check_whole("splits", splits, 1)
            if isinstance(test_size, bool) or not 0 < test_size < 1:
                raise OptionError(f"test_size must be a share between 0 and 1, not {test_size!r}.")
            check_whole("random_state", random_state, 0)
            if len(sample) < 2:
                raise OptionError("data has one record, which cannot be split; give train= and test=.")
            seeds, rows = range(random_state, random_state + splits), np.arange(len(sample))
            splits = [train_test_split(rows, test_size=test_size, random_state=seed) for seed in seeds]
        parts = [(sample.part(a), sample.part(b)) for a, b in sample.splits(splits)]
    strata = in_order(dict.fromkeys(label for pair in parts for part in pair for label in part.labels))
    todo = product(zip(parts, seeds, strict=False), models.items())
    jobs = (delayed(_run)(n, seed, with_strata(m, strata), *pair, metrics) for (pair, seed), (n, m) in todo)
    runs, notes = [], []
    try:
        runs.extend(processes(n_jobs)(jobs))  # keeps finished runs if interrupted
    except KeyboardInterrupt:
        if not (done := len(runs) // len(models)):
            raise
        runs, notes = runs[: done * len(models)], [f"interrupted after {done} of {len(parts)} splits"]
    return Comparison(list(models), list(metrics), runs, notes)


def _run(name, seed, model, train, test, metrics):
    """Fit one model to one split and measure it."""
    seen, run = set(train.labels), {"model": name, "seed": seed, "status": "failed", "objective": None}
    started, unseen = time.perf_counter(), np.flatnonzero([label not in seen for label in test.labels])
    run |= {"error": None, "values": {}, "unseen": len(unseen)}
    parts = {"test": test, "train": train, **({"unseen": test.part(unseen)} if len(unseen) else {})}
    with warnings.catch_warnings(record=True, action="always") as caught:
        try:
            fit_within(model, train.data, train.strata, train.weight)
            run["seconds"] = time.perf_counter() - started
            pairs = product(parts.items(), metrics.items())
            run["values"] = {(where, n): measure(model, part, metric) for (where, part), (n, metric) in pairs}
            r = getattr(model, "result_", None)
            run["status"], run["objective"] = getattr(r, "status", "fitted"), getattr(r, "objective", None)
        except Exception as error:  # one model's failure is a row of the table
            run["error"] = first_line(error)
    run["notes"] = [str(w.message) for w in caught if w.category.__module__.startswith("strat")]
    return {"seconds": time.perf_counter() - started, **run}
