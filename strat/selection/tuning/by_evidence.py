"""Tuning by evidence: one weight for each pair of axis and coefficient, kept where held-out records agree."""

import copy

import numpy as np
from sklearn.base import clone

from strat.compiler.coupling import by_factor
from strat.errors import DataError
from strat.graphs.prior_graph import read_graph
from strat.records.splitters import RollingOrigin
from strat.selection.tuning.branches import as_networkx
from strat.selection.tuning.evidence import Evidence, axes, check, table_of
from strat.selection.tuning.path import descend, paired_gain, table_row
from strat.selection.tuning.result import Tuned
from strat.solvers.progress import logger

WIDTH = 1.0  # standard deviation of a normal prior on the multipliers' logarithms, in case records say little about them
STEPS = 10  # of each maximisation; few, because the start was chosen by held-out records
#: The ways to tune, each from the end of the one before: products of numbers for axes and for coefficients, then any table.
PRODUCT, TABLE = "evidence, product", "evidence, table"


def tune_by_evidence(model, rounds, folds, everything, clock, guard):
    """Tune scales and couplings to higher evidence, if held-out records agree or there is no guard; fit to everything."""
    prior, in_time = read_graph(model.graph), rounds.in_time or isinstance(folds, RollingOrigin)
    check(model, prior)
    parts = rounds.parts(rounds.pairs) if guard else []
    if guard and in_time and len(parts) < 3:
        raise DataError(
            'method="evidence" ignores time, and may do harm where a fit extrapolates: rolling folds need three '
            f"origins at least for its guard, and there are {len(parts)}. Give more, or tune by held-out loss."
        )
    ways, scaled, coupled = [PRODUCT], max(len(prior.factors), 1), table_of(model, prior)
    several = len(coupled) > 1 and np.count_nonzero(coupled.any(axis=0)) > 1  # else a table is a product
    if several and not prior.factor_on(prior.i, prior.j)[1].any():
        ways.append(TABLE)
    losses, x, path = [], None, None
    with clock.interruptible():
        for number, (inside, outside) in enumerate(parts, start=1):
            evidence = Evidence(model, prior, inside)
            held = evidence.bound_model.held_out(outside)
            points = [np.zeros(evidence.shape), *(end for end, _ in maximised(evidence, ways, scaled, clock))]
            losses.append([held.losses(evidence.fit(point).theta) for point in points])
            text = ", ".join(f"{each.mean():.6g}" for each in losses[-1])
            logger.info("tune  evidence  fold %d of %d  held out %s", number, len(parts), text)
        choice = len(ways)
        if guard:  # the last way whose gain over the last accepted one exceeds the standard error
            choice, (before, *others) = 0, zip(*losses, strict=True)
            for number, after in enumerate(others, start=1):
                gain, error = paired_gain(before, after, in_time)
                if gain > error:
                    choice, before = number, after
        if choice:
            evidence = Evidence(model, prior, everything.part())
            *_, (x, path) = maximised(evidence, ways[:choice], scaled, clock)
    choice = choice if clock.status == "finished" else 0
    name = ways[choice - 1] if choice else "no tuning"
    start, *others = zip(*losses, strict=True) if losses else ([],)
    table = [table_row("start", start)] if losses else []
    table += [table_row(way, each, start, by_fold=in_time) for way, each in zip(ways, others, strict=False)]
    measured = {"gain": 0.0, "gain_se": np.nan}
    if guard and clock.status == "finished":
        measured = table[choice] if choice else min(table[1:], key=lambda row: row["loss"])
    scales, base = tuned_parts(model, prior, x, name == TABLE)
    tuned = clone(model).set_params(base=base, scale=scales)
    tuned.fit(*everything.data, strata=everything.strata)
    couple = _by_name(base, prior, table_of(tuned, prior), by_factor(base.couple))
    parameters = {"scale": scales if isinstance(scales, dict) else {"all": scales}, "couple": couple}
    history = [row["loss"] for row in table[: 1 + choice]] or [np.nan]
    counts = [(len(fold[0]), float(fold[0].mean()), float(fold[choice].mean())) for fold in losses]
    found = {"improved": choice > 0, "gain": measured["gain"], "gain_se": measured["gain_se"], "choice": name}
    found |= {"history": history, "folds": counts, "table": table, "log_evidence": path}
    W0 = as_networkx(model.graph, prior, prior.weights(scales))
    return Tuned(model, tuned, W0, parameters, **found)


def maximised(evidence, ways, scaled, clock):
    """For each way, the end of a short maximisation, from the end of the way before, and the log evidence so far.

    The first `scaled` axes have one multiplier for all coefficients; edges without a factor have none.
    """
    A, m = evidence.shape
    of_axes = np.repeat(np.eye(A)[:scaled, :, None], m, axis=2)
    of_coefficients = np.repeat(np.eye(m)[:, None, :], A, axis=1)
    directions = np.concatenate([of_axes, of_coefficients, np.eye(A * m).reshape(-1, A, m)])

    def at(z):
        """Log evidence and its gradient at x = Σ_d z_d directions_d; a product uses only the first directions."""
        value, gradient = evidence(np.tensordot(z, directions[: len(z)], 1))
        return value, np.tensordot(directions[: len(z)], gradient, 2)

    def function(z):
        clock.check()
        (value, gradient), unit = at(z), 1 + abs(path[-1])
        return (0.5 * z @ z / WIDTH**2 - value) / unit, (z / WIDTH**2 - gradient) / unit

    z = np.zeros(scaled + m)
    try:
        path = [at(z)[0]]
    except np.linalg.LinAlgError as error:
        raise DataError(
            f'method="evidence" found none at the start: {error}. Some parameter is determined by neither records nor graph '
            f"nor regularizer, or there are too few records; a small ridge helps."
        ) from error
    for way in ways:
        z = np.r_[z, np.zeros(A * m)] if way == TABLE else z
        z = descend(function, z, -np.inf, np.inf, STEPS)
        path = [*path, at(z)[0]]
        yield np.tensordot(z, directions[: len(z)], 1), path


def tuned_parts(model, prior, x, table):
    """Scales, and the declaration with its couplings, for the logarithms x (A, m) of multipliers (None for the start).

    Each axis's geometric mean goes to its scale, and the rest to the couplings (by factor if x is a `table`, not a product).
    """
    base = model.base
    scales = {name: float(scale) for name, scale in (model._scales() or {"all": model.scale}).items()}
    if x is not None:
        # Edges without a factor have no scale.
        couple, without_scale = table_of(model, prior), len(x) > len(scales)
        varied = couple.any(axis=0)
        table = table or by_factor(base.couple)
        # In a product, x less the part that all axes share is the same for every coefficient, and goes to the scales.
        shared = 0.0 if table else x[-1] if without_scale else x[0] - x[0].mean()
        steps = (x - shared).mean(axis=1)
        steps[len(scales) :] = 0.0
        couple[:, varied] *= np.exp(x - steps[:, None])
        scales = {name: scales[name] * float(np.exp(step)) for name, step in zip(scales, steps, strict=False)}
        base = copy.copy(base)
        base.couple = _by_name(base, prior, couple, table)
    return scales if prior.factors else scales["all"], base


def _by_name(base, prior, table, by_axis):
    """Couplings by variable, one for all edges or a dict of them by axis, from a table (A, n)."""
    rows = [{name: value[0] for name, value in base.layout.unpack(row[None]).items()} for row in table]
    if not by_axis:
        return rows[0]
    return {name: {axis: row[name] for axis, row in zip(axes(prior), rows, strict=True)} for name in rows[0]}
