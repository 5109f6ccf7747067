"""Warnings about a fit: records and strata that say nothing, objectives without a minimum, collapsed models."""

import warnings

import numpy as np

from strat.errors import CollapseWarning, ConvergenceWarning, DataWarning
from strat.records.strata import Strata, some_of

#: At most so many records with label 0 are evaluated.
LABELS_EVALUATED = 20
#: A column whose numbers differ by less than this share of their size has too few digits left, and so many are looked at first.
SPREAD, SAMPLED = 1e-6, 100
#: A minimum is flat to first order, so that doubled parameters cannot lower the objective by this share of it.
FALL = 1e-3
#: A prox step this short only projects onto the constraints.
PROJECTION_STEP = 1e-9
#: All parameters closer than this to their mean: the model has collapsed to the common one.
COLLAPSED = 0.01


def warn_of_zero_labels(base, records, values):
    """Warn where labels are 0 and 1 in a loss for labels -1 and 1.

    Such a loss of a record labelled 0 is one number other than 0, whatever the parameters. A mask may be 0 too, but then
    the loss is 0. `values` are the model's own values of hyperparameters, by name.
    """
    for parameter, array in zip(base.data, records.arrays, strict=True):
        binary = parameter.shape == () and np.all((array == 0) | (array == 1))
        if not binary or not 0 < array.sum() < len(array):
            continue
        zero = np.flatnonzero(array == 0)
        sample = zero[:: -(-len(zero) // LABELS_EVALUATED)]
        strata = Strata(records.strata.labels, records.strata.index[sample])
        losses = base.loss_program.evaluation([a[sample] for a in records.arrays], strata, values)
        theta = np.random.default_rng(0).uniform(0.1, 0.9, (records.strata.K, base.layout.n))
        # Three points: a loss with a flat part, or an even one, has the same value at two of them.
        first, *others = (losses(point) for point in (theta, -theta, 2 * theta))
        if np.all(first != 0) and np.isfinite(first).all() and all(np.array_equal(first, o) for o in others):
            name = parameter.name()
            warnings.warn(
                f"{name} is 0 or 1, and the loss of the {len(zero)} records where it is 0 does not depend on the "
                f"parameters: they count for nothing. If {name} is a label of a loss for -1 and 1, pass 2 * {name} - 1.",
                DataWarning,
                stacklevel=4,
            )


def warn_of_lost_digits(base, records):
    """Warn where the numbers of a column differ by so little of their size that double precision hides how they differ."""
    for parameter, array in zip(base.data, records.arrays, strict=True):
        if not isinstance(array, np.ndarray):
            continue
        rows = array.reshape(len(array), -1)
        columns = np.flatnonzero(
            _spread(rows[:: 1 + len(rows) // SAMPLED]) < SPREAD
        )  # most columns are seen to vary
        lost = [int(c) for c in columns if 0 < _spread(rows[:, c : c + 1])[0] < SPREAD]
        if lost:
            names = records.columns.get(parameter.name())
            lost = [names[c] for c in lost] if names else lost
            warnings.warn(
                f"column {some_of(lost)} of {parameter.name()}: the numbers differ by less than {SPREAD:g} of their size, "
                f"so that double precision loses much of what tells the records apart. Subtract a number near their mean.",
                DataWarning,
                stacklevel=4,
            )


def _spread(rows):
    """Largest difference of every column over its largest size."""
    high, low = rows.max(axis=0, initial=-np.inf), rows.min(axis=0, initial=np.inf)
    return (high - low) / np.maximum(np.maximum(high, -low), 1e-300)


def warn_of_empty_strata(strata, degrees, learned):
    """Warn where neither records nor edges determine the parameters of a stratum; return notes for the result.

    `degrees` are those of the prior graph, and `learned` says whether W is learned.
    """
    empty = np.flatnonzero(strata.counts == 0)
    isolated = [strata.labels[k] for k in empty if degrees[k] == 0]
    if learned and len(empty) and not np.any(degrees):
        warnings.warn(
            f"{len(empty)} of {strata.K} strata have no records and the prior graph has no edges (W0 = 0): nothing "
            f"says which strata they resemble, and the learned graph ties them to all others alike. "
            f"Give a graph with weights where one is known.",
            DataWarning,
            stacklevel=4,
        )
    if learned or not isolated:
        return []
    note = (
        f"{len(isolated)} strata have neither records nor edges: {some_of(isolated)}. Their parameters are the "
        f"regularizer's minimiser, or stay at the start where there is no regularizer."
    )
    warnings.warn(f"{note} Connect them, or drop them.", DataWarning, stacklevel=4)
    return [note]


def warn_of_no_minimum(problem, result, labels):
    """Note and warn where the objective seems to have no minimum; `labels` is None where all strata share theta."""
    ridge = getattr(problem.regularizer.prox, "diagonal", None)
    if result.status == "converged" and ridge is not None and np.all(ridge > 0):
        return  # a convex loss falls at most linearly
    start = result.history[0]
    fell_far = result.objective < start - 1e3 * (1 + abs(start))
    if not np.isfinite(result.objective) or not (
        result.status == "converged" or (result.status == "max_iter" and fell_far)
    ):
        return
    unbounded, asymptotic = strata_without_minimum(problem, result.theta, result.w)

    def of_strata(strata):
        return "" if labels is None else f" of {some_of([labels[k] for k in strata])}"

    if len(unbounded):
        note = (
            f"the objective seems unbounded below, or far from its minimum: it falls clearly where the parameters"
            f"{of_strata(unbounded)} are doubled. Check the signs in the loss, and give it a regularizer, constraints, "
            f"or more records a stratum."
        )
        _add_note(result, note, ConvergenceWarning)
    elif len(asymptotic):
        note = (
            f"the loss seems to fall towards a limit that it never reaches, as with separable data: it is less than half "
            f"where the parameters{of_strata(asymptotic)} are doubled, however large they are (up to "
            f"{np.abs(result.theta[asymptotic]).max():.2g} here), so that they mean a direction at most. Give the "
            f"regularizer a small ridge on all of them."
        )
        _add_note(result, note, ConvergenceWarning)


def strata_without_minimum(problem, theta, w):
    """Strata where doubled parameters z (projected onto the constraints) lower the objective F, so that theta is no minimum.

    F is the objective as a function of one stratum's parameters, f its loss and regularizer:

        unbounded    F(z) − F(theta) < −FALL (1 + |Σ f(theta)| + |⟨L theta, theta⟩|)
        asymptotic   F(z) − F(theta) < −½ f(theta) and f(z) > 0, as for separable data, whose loss falls towards 0

    Returns the positions of the unbounded and of the asymptotic strata: all strata where F falls only if the parameters
    of all are doubled at once.
    """
    prox, K = problem.regularizer.prox, len(theta)
    if getattr(prox, "costly", False):
        return (np.zeros(0, dtype=np.intp),) * 2
    with np.errstate(over="ignore", invalid="ignore"):
        doubled = prox(2 * theta, np.full(K, PROJECTION_STEP))
        move = doubled - theta
        before, after = (problem.loss.value(t) + problem.regularizer.value(t) for t in (theta, doubled))
        pull, laplacians = problem.laplacian(w, theta), problem.laplacians(w)
        across = np.vecdot(pull, move)
        change = after - before + across + 0.5 * np.vecdot(laplacians.degrees * move, move)
        change_of_all = np.sum(after - before) + across.sum() + laplacians.energy(move)
        clear = -FALL * (1 + abs(before.sum()) + abs(np.vdot(pull, theta)))
        asymptotic = (change < -0.5 * before) & (after > 0)
        half = 0.5 * (before.sum() + 0.5 * np.vdot(pull, theta))
        all_asymptotic = change_of_all < -half and after.sum() > 0

    def strata(single, together):
        return np.flatnonzero(single if single.any() else np.full(K, together))

    return strata(change < clear, change_of_all < clear), strata(asymptotic, all_asymptotic)


def warn_of_collapse(result):
    """Note and warn where a learned graph made all strata equal."""
    theta = result.theta
    if len(theta) < 2:
        return
    mean = theta.mean(axis=0)
    size = np.linalg.norm(mean)
    spread = np.median(np.linalg.norm(theta - mean, axis=1))
    if size == 0 or spread > COLLAPSED * size:
        return
    note = (
        f"the fit has collapsed to the common model: half of the strata are within {spread / size:.1e} (relative) of "
        f"the mean parameters. A larger lambda2, a prior graph or another init= may keep them apart; compare with "
        f"strat.common on held-out records."
    )
    _add_note(result, note, CollapseWarning)


def _add_note(result, note, category):
    result.notes.append(note)
    warnings.warn(note[0].upper() + note[1:], category, stacklevel=5)
