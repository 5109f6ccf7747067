"""Tuning by evidence: one weight for each pair of axis and coefficient, and the guard of held-out records."""

import copy

import numpy as np
from sklearn.base import clone

from strat.errors import DataError
from strat.graph_input import read_graph
from strat.sample import Sample, joined, strata_folds
from strat.splitters import RollingOrigin
from strat.tuning.descent import Clock, OutOfTime, descend, logger
from strat.tuning.likelihood import check, evidence_of
from strat.tuning.outcome import as_networkx, changes
from strat.tuning.result import Tuned
from strat.tuning.rounds import in_order_of_time

#: Standard deviation of a normal prior on the logarithms of the weights around the start, which holds on to what says little.
WIDTH = 1.0
STEPS = 10  # of the maximisation, which is short: its start was chosen by held-out records
CHOICE = "evidence"


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
    judged, status, x, path = [], "finished", np.zeros(0), None
    try:
        for number, (inside, outside) in enumerate(parts, start=1):
            evidence, posed = evidence_of(model, prior, inside)
            held = posed.held_out(outside.data, outside.strata, where=where)
            before = held.losses(evidence.fit(np.zeros(evidence.size)).theta)
            end, _ = maximised(evidence, clock)
            judged.append((before, held.losses(evidence.fit(end).theta)))
            means = [losses.mean() for losses in judged[-1]]
            logger.info(
                "tune  evidence  fold %d of %d  held out %.6g, %.6g at the start",
                number,
                len(parts),
                *means[::-1],
            )
        gain, se = _gain(judged, in_time)
        if gain > se:
            x, path = maximised(evidence_of(model, prior, everything.part())[0], clock)
    except (OutOfTime, KeyboardInterrupt) as stop:
        status = "time_limit" if isinstance(stop, OutOfTime) else "interrupted"
        gain, se = 0.0, np.nan
    improved = len(x) > 0
    scales, base = tuned_parts(model, prior, x)
    tuned = clone(model).set_params(base=base, scale=scales)
    tuned.fit(*everything.data, strata=everything.strata)
    W0 = as_networkx(model.graph, prior, prior.weights(scales))
    couple = base.layout.unpack(base.couple_weights(model.values)[None])
    found = Tuned(
        model=tuned,
        W0=W0,
        parameters={
            "scale": scales if isinstance(scales, dict) else {"all": scales},
            "couple": {name: value[0] for name, value in couple.items()},
        },
        improved=improved,
        gain=gain,
        gain_se=se,
        choice=CHOICE if improved else "no tuning",
        history=_means(judged)[: 1 + improved],
        folds=[
            {"records": len(a), "before": float(a.mean()), "after": float((b if improved else a).mean())}
            for a, b in judged
        ],
        table=_table(judged, gain, se),
        changes=changes(model, W0),
    )
    found.log_evidence, found.status, found.seconds = path, status, clock.seconds
    return found


def maximised(evidence, clock):
    """Where a short maximisation leads, and the log evidence at its start and end."""
    start = np.zeros(evidence.size)
    try:
        first, _ = evidence(start)
    except np.linalg.LinAlgError as error:
        raise DataError(
            f'method="evidence" found none at the start: {error}. Some parameter is determined by neither records nor graph '
            f"nor regularizer, or there are too few records; a small ridge helps."
        ) from error
    unit, free = 1 + abs(first), np.full(evidence.size, np.inf)

    def function(x):
        clock.check()
        value, gradient = evidence(x)
        return (0.5 * x @ x / WIDTH**2 - value) / unit, (x / WIDTH**2 - gradient) / unit

    end = descend(function, start, (-free, free), lambda x: False, STEPS)
    return end, [first, evidence(end)[0]]


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


def _gain(judged, in_time):
    """Mean difference record by record, and its standard error; over origins where folds follow one another in time."""
    gaps = [before - after for before, after in judged]
    units = np.array([gap.mean() for gap in gaps]) if in_time else np.concatenate(gaps)
    if len(units) < 2 or not np.isfinite(units).all():
        return 0.0, np.nan
    return float(np.concatenate(gaps).mean()), float(units.std(ddof=1) / np.sqrt(len(units)))


def _means(judged):
    return [float(np.concatenate(losses).mean()) for losses in zip(*judged, strict=True)] or [np.nan]


def _table(judged, gain, se):
    if not judged:
        return []
    start, end = _means(judged)
    row = {"tried": "start", "step": None, "loss": start, "gain": None, "gain_se": None}
    return [row, {"tried": CHOICE, "step": None, "loss": end, "gain": gain, "gain_se": se}]


def tuned_parts(model, prior, x):
    """Scales, and the declaration with its couplings, for the multipliers x (empty for the start).

    A factor common to all couplings is left to the scales: the couplings' geometric mean stays.
    """
    base, F = model.base, max(len(prior.factors), 1)
    couple = base.couple_weights(model.values)
    varied = couple > 0
    own = (
        model.scale if isinstance(model.scale, dict) else dict.fromkeys(prior.factors or ["all"], model.scale)
    )
    scales = {name: float(own.get(name, 1.0)) for name in prior.factors or ["all"]}
    if len(x):
        common = x[F:].mean() if (prior.term_factor >= 0).all() or not prior.factors else 0.0
        couple[varied] *= np.exp(x[F:] - common)
        scales = {
            name: value * float(np.exp(step + common))
            for (name, value), step in zip(scales.items(), x[:F], strict=True)
        }
        base = copy.copy(base)
        base.couple = {name: value[0] for name, value in base.layout.unpack(couple[None]).items()}
    return scales if prior.factors else scales["all"], base
