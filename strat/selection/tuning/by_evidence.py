"""Tuning by evidence: one weight for each pair of axis and coefficient, and the guard of held-out records."""

import copy

import numpy as np
from sklearn.base import clone

from strat.compiler.coupling import by_factor
from strat.errors import DataError
from strat.graphs.reading import read_graph
from strat.records.sample import Sample, joined, strata_folds
from strat.records.splitters import RollingOrigin
from strat.selection.tuning.descent import Clock, OutOfTime, descend, logger
from strat.selection.tuning.held_out_losses import HeldOutLosses
from strat.selection.tuning.likelihood import axes, check, evidence_of, table_of
from strat.selection.tuning.outcome import as_networkx, changes
from strat.selection.tuning.result import Tuned
from strat.selection.tuning.rounds import in_order_of_time

#: Standard deviation of a normal prior on the logarithms of the weights around the start, which holds on to what says little.
WIDTH = 1.0
STEPS = 10  # of each maximisation, which is short: its start was chosen by held-out records
#: What is tried, each from the end of the one before: a number for each axis times one for each coefficient, and any table.
PRODUCT, TABLE = "evidence, product", "evidence, table"


def tune_by_evidence(model, train, validation, folds, time_limit, random_state):
    """Scales and couplings of higher evidence, kept where held-out records agree; arguments as of ``strat.tune``."""
    clock = Clock(time_limit)
    prior = read_graph(model.graph)
    check(model, prior)
    sample = Sample([model], train, "train")
    others = None if validation is None else Sample([model], validation, "validation")
    everything = sample if others is None else joined(sample, others, [model])
    parts, in_time = _parts(sample, others, folds, random_state)
    where = "train" if others is None else "validation"
    tried, scaled = ways(model, prior), max(len(prior.factors), 1)
    judged, status, choice, x, path = HeldOutLosses(tried, in_time), "finished", 0, None, None
    try:
        for number, (inside, outside) in enumerate(parts, start=1):
            evidence, bound_model = evidence_of(model, prior, inside)
            held = bound_model.held_out(outside.data, outside.strata, where=where)
            points = [np.zeros(evidence.shape), *(end for end, _ in climbed(evidence, tried, scaled, clock))]
            judged.folds.append([held.losses(evidence.fit(point).theta) for point in points])
            text = ", ".join(f"{losses.mean():.6g}" for losses in judged.folds[-1])
            logger.info("tune  evidence  fold %d of %d  held out %s", number, len(parts), text)
        choice = judged.chosen()
        gain, se = judged.gain(0, choice or judged.best())
        if choice:
            evidence = evidence_of(model, prior, everything.part())[0]
            *_, (x, path) = climbed(evidence, tried[:choice], scaled, clock)
    except (OutOfTime, KeyboardInterrupt) as stop:
        status = "time_limit" if isinstance(stop, OutOfTime) else "interrupted"
        choice, gain, se = 0, 0.0, np.nan
    name = tried[choice - 1] if choice else "no tuning"
    scales, base = tuned_parts(model, prior, x, name == TABLE)
    tuned = clone(model).set_params(base=base, scale=scales)
    tuned.fit(*everything.data, strata=everything.strata)
    W0 = as_networkx(model.graph, prior, prior.weights(scales))
    found = Tuned(
        model=tuned,
        W0=W0,
        parameters={
            "scale": scales if isinstance(scales, dict) else {"all": scales},
            "couple": _by_name(base, prior, table_of(tuned, prior), by_factor(base.couple)),
        },
        improved=choice > 0,
        gain=gain,
        gain_se=se,
        choice=name,
        history=judged.means()[: 1 + choice],
        folds=judged.by_fold(choice),
        table=judged.table(),
        changes=changes(model, W0),
    )
    found.log_evidence, found.status, found.seconds = path, status, clock.seconds
    return found


def ways(model, prior):
    """What is tried: products, and tables where these are not the same and the model can have them."""
    table = table_of(model, prior)
    several = len(table) > 1 and np.count_nonzero(table.any(axis=0)) > 1
    return (PRODUCT, TABLE) if several and not prior.factor_on(prior.i, prior.j)[1].any() else (PRODUCT,)


def climbed(evidence, tried, scaled, clock):
    """For each way, where a short maximisation from the end of the one before leads, and the log evidence until there.

    The first `scaled` axes have a multiplier for all coefficients; edges without a factor have none.
    """
    A, m = evidence.shape
    of_axes = np.repeat(np.eye(A)[:scaled, :, None], m, axis=2)
    of_coefficients = np.repeat(np.eye(m)[:, None, :], A, axis=1)
    directions, path = np.concatenate([of_axes, of_coefficients]), []
    z = np.zeros(len(directions))
    for way in tried:
        if way == TABLE:
            directions = np.concatenate([directions, np.eye(A * m).reshape(-1, A, m)])
            z = np.r_[z, np.zeros(A * m)]
        z, values = maximised(evidence, z, directions, clock)
        path = [*path, *values[bool(path) :]]
        yield np.tensordot(z, directions, 1), path


def maximised(evidence, start, directions, clock):
    """Where a short maximisation over x = Σ z_d directions_d leads, and the log evidence at its start and end."""

    def at(z):
        value, gradient = evidence(np.tensordot(z, directions, 1))
        return value, np.tensordot(directions, gradient, 2)

    try:
        first, _ = at(start)
    except np.linalg.LinAlgError as error:
        raise DataError(
            f'method="evidence" found none at the start: {error}. Some parameter is determined by neither records nor graph '
            f"nor regularizer, or there are too few records; a small ridge helps."
        ) from error
    unit, free = 1 + abs(first), np.full(len(start), np.inf)

    def function(z):
        clock.check()
        value, gradient = at(z)
        return (0.5 * z @ z / WIDTH**2 - value) / unit, (z / WIDTH**2 - gradient) / unit

    end = descend(function, start, (-free, free), lambda z: False, STEPS)
    return end, [first, at(end)[0]]


def _parts(sample, others, folds, random_state):
    """Pairs of training and held-out parts, and whether they follow one another in time."""
    if others is not None:
        return [(sample.part(), others.part())], False
    pairs = sample.splits(5 if folds is None else folds, strata_folds(random_state))
    in_time = in_order_of_time(pairs) is not None or isinstance(folds, RollingOrigin)
    if in_time and len(pairs) < 3:
        raise DataError(
            'method="evidence" knows nothing of time, and may lose where a fit extrapolates: rolling folds need three '
            f"origins at least for its guard, and there are {len(pairs)}. Give more, or tune by held-out loss."
        )
    return [(sample.part(a), sample.part(b)) for a, b in pairs], in_time


def tuned_parts(model, prior, x, table):
    """Scales, and the declaration with its couplings, for the logarithms x (A, m) of multipliers (None for the start).

    A factor common to all couplings on an axis is left to its scale: their geometric mean stays. `table` says whether x is
    more than a number for each axis plus one for each coefficient.
    """
    base, names = model.base, prior.factors or ["all"]
    own = model.scale if isinstance(model.scale, dict) else dict.fromkeys(names, model.scale)
    scales = {name: float(own.get(name, 1.0)) for name in names}
    if x is not None:
        old, loose = table_of(model, prior), len(x) > len(names)  # edges without a factor have no scale
        varied = old.any(axis=0)
        table = table or by_factor(base.couple)
        shared = 0.0 if table else x[-1] if loose else x[0] - x[0].mean()  # by coefficient, on all axes
        steps = (x - shared).mean(axis=1)
        steps[len(names) :] = 0.0
        old[:, varied] *= np.exp(x - steps[:, None])
        scales = {
            name: scale * float(np.exp(s)) for (name, scale), s in zip(scales.items(), steps, strict=False)
        }
        base = copy.copy(base)
        base.couple = _by_name(base, prior, old, table)
    return scales if prior.factors else scales["all"], base


def _by_name(base, prior, table, by_axis):
    """Couplings by variable, one for all edges or a dict of them by axis, from a table (A, n)."""
    rows = [{name: value[0] for name, value in base.layout.unpack(row[None]).items()} for row in table]
    if not by_axis:
        return rows[0]
    return {name: {axis: row[name] for axis, row in zip(axes(prior), rows, strict=True)} for name in rows[0]}
