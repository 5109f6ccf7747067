"""Warnings about a fit: strata that the data do not determine, objectives without a minimum, collapsed models."""

import numpy as np

from strat.errors import CollapseWarning, ConvergenceWarning, DataWarning
from strat.graphs.report import relative_spread
from strat.model.fitted import column_names
from strat.model.runaway import runaway_direction, suspect_strata, unbounded_strata
from strat.records.labels import as_frame, axis_factors, named_columns
from strat.records.strata import some_of


def warn_of_order(bound_model, strata, data):
    """Warn if the columns that hold the strata are named as the graph's factors, but in another order."""
    model, known = bound_model.model, set(bound_model.prior.factors)
    strata = model.strata if strata is None else strata
    names = named_columns(strata, as_frame(data[0])) if data and known else None
    if names and len(names) > 1 and known.issuperset(names):
        factors = list(map(axis_factors(model.graph).get, range(len(names))))
        if factors != names and set(factors) == set(names):
            DataWarning.warn(
                f"strata={names} are the factors of the graph in another order: its nodes are tuples of {factors}, so that "
                f"columns and nodes do not match. Pass strata={factors}."
            )


def warn_of_undetermined(bound_model, problem, w):
    """Warn of parameters, a mask (K, n), that no records determine, not even through w; return the mask, and notes."""
    records, mask = bound_model.records, np.zeros((problem.K, problem.n), dtype=bool)
    empty, K, filled = int((records.strata.counts == 0).sum()), records.strata.K, records.filled
    if problem.learned and empty and not np.any(problem.w0):
        DataWarning.warn(
            f"{empty} of {K} strata have no records and the prior graph has no edges (W0 = 0): nothing says which strata "
            f"they resemble, and the learned graph ties them to all others alike. Give a graph with weights if one is known."
        )
    if not filled.all() and not bound_model.shared:
        component = problem.laplacians(w).components
        mask = ~np.isin(component, component[filled])
    if not mask.any():
        return mask, []
    which, some = _words(mask, records.strata.labels, bound_model.base.layout)
    note = (
        f"{some} neither records nor edges that lead to records: the {which} there are the regularizer's minimiser, or stay "
        f"at the start where there is no regularizer."
    )
    DataWarning.warn(f"{note[0].upper()}{note[1:]} Connect them, or drop them.")
    return mask, [note]


def warn_of_undetermined_predictions(model, program, index):
    """Warn where predictions for strata `index` (N,) use parameters that only the start or a regularizer determines."""
    mask = getattr(model, "_undetermined", None)
    if mask is None or not mask.any():
        return
    layout = model.base.layout
    used = np.zeros(mask.shape[1], dtype=bool)
    for variable in program.expression.variables():
        used[layout.slices[variable.name()]] = True
    mask = mask & used & np.isin(np.arange(len(mask)), index)[:, None]
    # Labels that are not nodes of the graph do not count.
    affected = mask.any(axis=1)[index[index < len(mask)]]
    if affected.any():
        which, some = _words(mask, model.strata_, layout)
        DataWarning.warn(
            f"the prediction of {int(affected.sum()):,} of {len(affected):,} records does not depend on any data: it uses "
            f"the {which} where {some} neither records nor edges that lead to records."
        )


def _words(mask, labels, layout):
    """Masked parameters (K, n) in words: which parameters, and which strata, with a verb that agrees."""
    strata = [labels[k] for k in np.flatnonzero(mask.any(axis=1)).tolist()]
    names = [name for name, where in layout.slices.items() if mask[:, where].any()]
    which = "parameters" if len(names) == len(layout.slices) else f"parameters {', '.join(names)}"
    several = f"{len(strata):,} strata ({some_of(strata)}) have"
    return which, several if len(strata) > 1 else f"the stratum {strata[0]!r} has"


def warn_of_no_minimum(bound_model, problem, result, tol):
    """Note and warn where the objective has no minimum; return the parameters that run away, a mask (K, n)."""
    theta, start = result.theta, result.history[0]
    none, done = np.zeros(theta.shape, dtype=bool), result.status == "converged"
    ridge = getattr(problem.regularizer.prox, "diagonal", None)
    if done and ridge is not None and np.all(ridge > 0):
        return none  # a convex loss falls at most linearly
    if not np.isfinite(result.objective) or not (done or result.status in ("max_iter", "time_limit")):
        return none
    fell_far = result.objective < start - 1e3 * (1 + abs(start))
    stopped = not done and not fell_far
    suspects = None if fell_far else suspect_strata(problem, theta, result.w, tol)
    if stopped if suspects is None else not suspects.any():
        return none
    unbounded = unbounded_strata(problem, theta, result.w)
    suspects = np.ones(problem.K, dtype=bool) if suspects is None else suspects
    running = runaway_direction(bound_model, problem, theta, result.w, suspects) != 0
    if running.any():
        names = np.array(column_names(bound_model.base, {}))[running.any(axis=0)]
        which = f"{', '.join(names[:6])}{', …' * (len(names) > 6)}{_of(running.any(axis=1), bound_model)}"
        _add_note(
            f"the objective has no minimum: it keeps falling as {which} grow{'s' * (len(names) == 1)} without bound (up to "
            f"{np.abs(theta[running]).max():.2g} here), so that these numbers show at most a direction. Something separates "
            f"the records, such as a column that determines a label or a count of 0, or labels that are all equal. Give the "
            f"regularizer a small ridge on all of them, join the strata to others by edges, or leave out the column.",
            result,
        )
    elif unbounded.any() and not stopped:
        _add_note(
            f"the objective seems unbounded below, or far from its minimum: it falls clearly where the parameters"
            f"{_of(unbounded, bound_model)} are doubled. Check the loss's signs, and give a regularizer or more records.",
            result,
        )
    return running


def _of(mask, bound_model):
    labels = bound_model.prior.labels
    return "" if bound_model.shared else f" of {some_of([labels[k] for k in np.flatnonzero(mask)])}"


def warn_of_collapse(result):
    """Note and warn where a learned graph made all strata equal."""
    near = f"within {relative_spread(result.theta)[0]:.1e} (relative) of the mean parameters"
    what = f"collapsed to the common model: half of the strata are {near}"
    way = "A larger lambda2, a prior graph or another init= may help; compare with strat.common on held-out records."
    _add_note(f"the fit has {what}. {way}", result, CollapseWarning)


def _add_note(note, result, category=ConvergenceWarning):
    result.notes.append(note)
    category.warn(note[0].upper() + note[1:])
