"""Tune a prior graph and hyperparameters by held-out loss or by evidence, on records that are split into rounds."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone

from strat.errors import DataError, OptionError, check_whole, type_name
from strat.model.estimator import StratifiedModel
from strat.model.fit import check_options
from strat.oracles.clock import Clock
from strat.records.sample import Sample, joined
from strat.records.splitters import StrataKFold
from strat.selection.tuning.by_evidence import tune_by_evidence
from strat.selection.tuning.by_validation import tune_by_validation
from strat.solvers.progress import listening

ROUNDS = 3  # rounds, each of which leaves out its own records


def tune(
    model: Any,
    train: tuple,
    validation: tuple | None = None,
    *,
    folds: Any = None,
    wrt: Sequence = ("scale",),
    edges: Any = "prior",
    tie: str | None = None,
    penalty: float | Sequence | None = None,
    candidates: Sequence | None = (),
    max_iter: int = 50,
    patience: int = 5,
    time_limit: float | None = None,
    random_state: int = 0,
    verbose: bool = False,
    method: str = "validation",
    guard: bool = True,
    n_jobs: int = 1,
) -> Any:
    """Tune a prior graph by the loss of held-out records, and keep the start where that does not help.

    The mean validation loss is minimised through the fit, by its derivative (``strat.hypergradient``) and projected
    L-BFGS: in the logarithms of the factors' scales and of positive hyperparameters, and in edge weights at least 0.
    For edge weights, one scale for each factor is tuned first; then the weights are freed, with ever weaker penalties.

    Three rounds decide how far to go. Each leaves out a third of the validation records and measures their loss after every
    step. The point with the lowest loss over all rounds is chosen, "no tuning" being one of the choices. To measure the
    gain, two thirds of the records choose, and their choice is compared with the start on each record of the other third.
    Only if the gain exceeds its standard error does a last descent use all validation records; otherwise the start is the
    result. Where folds follow one another in time, such as rolling origins, the measuring records are the latest.

    Parameters
    ----------
    model : StratifiedModel
        The start: ``strat.lrsm(base, graph)`` with a loss that has second derivatives. It is not changed.
    train : tuple
        ``(*data, strata)``.
    validation : tuple, optional
        ``(*data, strata)``: records to tune on, which only the last fit uses. The rounds split them.
    folds : int, splitter or iterable of pairs, optional
        In place of `validation`: folds of `train`, such as ``RollingOrigin(6, time=1)``; 5 by default. A round leaves a
        third of the folds out. Every evaluation needs a fit for each fold.
    wrt : sequence of {"scale", "W0"} or cvxpy.Parameter
        What to tune: the scales of the graph's factors, single edges, hyperparameters (or their names) of the loss,
        the regularizer, the constraints or ``couple``.
    edges : {"prior", "two-hop", "knn", "all"}, list of label pairs, or graph
        The edges that "W0" tunes: the graph's own ("prior"); these and the neighbours' neighbours ("two-hop"), or each
        stratum's 5 nearest by the parameters of the start's fit ("knn"); all pairs; those given. Edges that the graph
        lacks start at weight 0. The graph's other edges are kept.
    tie : str, optional
        An edge attribute: edges with the same value share a multiplier, and so do all edges without it.
    penalty : float or sequence, optional
        The loss is increased by `penalty` times the start's loss times the mean squared change of a weight, in units of
        the mean weight. Several values are tried from strong to weak; by default (1, 0.1, 0.01, 0.001) for "W0", else 0.
        Where edges are tuned, the scales are not penalised, so that the penalty preserves only the weights' ratios.
    candidates : sequence or dict, optional
        Other graphs to try, each with its scale tuned: "knn", "exponential" and "entropy" are kernels on the parameters
        of the start's fit; "joint" and models that learn W give their W; graphs are taken as they are.
    max_iter : int
        Most steps of a descent.
    patience : int
        A descent in a round ends when its held-out loss has not fallen for this many steps.
    time_limit : float, optional
        Seconds after which, as after Ctrl-C, the best point so far is returned: the start, before the last descent.
    random_state : int
        Seed of the splits.
    verbose : bool
        Report each step through ``logging.getLogger("strat")``.
    method : {"validation", "evidence"}
        "evidence" is experimental. From constants that were chosen by cross-validation, it takes a few steps to a higher
        marginal likelihood of the training records (Laplace's approximation), where the loss is minus a log likelihood.
        They change the weights of all pairs of axis and coefficient: first as products of the factors' scales and the
        coefficients' weights in ``couple``, then as a table, ``couple`` by factor. Held-out records must show a gain, as
        above, first for the products and then for the table; where folds follow one another in time, there must be three,
        and the standard error is over folds. Takes no `wrt`, `edges`, `tie`, `penalty`, `candidates`.
    guard : bool
        Whether records are held out of tuning, and must show a gain. Without the guard the result is the point where the
        loss of all validation records is lowest, with the weakest `penalty` (0 by default), or where the evidence of all
        records is highest. A guarded result computes the unguarded one as ``result.unguarded``.
    n_jobs : int
        Number of processes for the rounds, -1 for one per processor; the result is the same, up to rounding.

    Returns
    -------
    Tuned
        ``model`` (refitted to all records), ``W0``, ``parameters``, ``improved``, ``before``, ``after``, ``history``; it prints.

    Raises
    ------
    NoOracleError
        If the loss has no second derivatives.
    OptionError, GraphError, DataError
        If the arguments are not valid, for example if the model learns W.

    Warns
    -----
    ConvergenceWarning
        Where some derivative could not be computed accurately.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, strat
    >>> theta, y = cp.Variable(name="theta"), cp.Parameter(name="y")
    >>> base = strat.BaseModel(cp.square(y - theta), data=(y,))
    >>> rng = np.random.default_rng(0)
    >>> z = np.repeat(np.arange(8), 10)
    >>> y, new = (3.0 * (z > 3) + rng.normal(size=80) for _ in range(2))
    >>> tuned = strat.tune(strat.lrsm(base, strat.graphs.path(8)), (y, z), (new, z), wrt=["W0"])
    >>> tuned.improved
    True
    >>> min(tuned.W0.edges(data="weight"), key=lambda edge: edge[2])[:2]
    (3, 4)
    """
    arguments = dict(locals())
    if not isinstance(model, StratifiedModel):
        raise OptionError(f"tune needs a StratifiedModel, as strat.lrsm makes, not {type_name(model)}.")
    check_options(model)
    refused = {
        "the strata of a common model share their parameters, so no graph matters; use strat.lrsm.": model.shared,
        "the model learns W itself. Tune the prior on an LRSM, tuned = strat.tune(strat.lrsm(base, graph), …), and pass it "
        "on: strat.joint(base, graph=tuned.W0).": model.graph_regularizer.learned,
        "the model has no graph. Give one, such as strat.lrsm(base, graph).": model.graph is None,
    }
    for why in (why for why, is_so in refused.items() if is_so):
        raise OptionError(f"tune: {why}")
    check_whole("max_iter", max_iter, 1)
    check_whole("patience", patience, 1)
    clock = Clock(time_limit)
    if validation is not None and folds is not None:
        raise OptionError("give validation= or folds=, not both: records to tune on, or folds of train.")
    options = {"wrt": wrt, "edges": edges, "tie": tie, "penalty": penalty, "candidates": candidates}
    if method not in ("validation", "evidence"):
        raise OptionError(f'method is {method!r}; it is "validation" or "evidence".')
    by_evidence = method == "evidence"
    defaults = {"wrt": [("scale",), ["scale"], "scale"], "edges": ["prior"], "candidates": [(), [], {}]}
    for name, value in options.items() if by_evidence else ():
        if repr(value) not in map(repr, defaults.get(name, [None])):
            raise OptionError(
                f'{name}= is not an option of method="evidence", which tunes one weight for each axis and coefficient; leave '
                f'it out, or tune by held-out loss (method="validation").'
            )
    splits, sample, held_out = 5 if folds is None else folds, Sample([model], train, "train"), None
    everything = sample
    if validation is not None:
        held_out = Sample([model], validation, "validation")
        everything = joined(sample, held_out, [model])
    rounds = rounds_of(sample, held_out, splits, random_state, guard and not by_evidence)
    with listening(verbose):
        if by_evidence:
            tuned = tune_by_evidence(model, rounds, splits, everything, clock, guard)
        else:
            steps = {"max_iter": max_iter, "patience": patience}
            tuned = tune_by_validation(model, rounds, everything, clock, steps, n_jobs, **options)
    tuned.status, tuned.seconds = clock.status, clock.seconds
    if guard:
        other = {"model": clone(model), "verbose": False, "guard": False}
        tuned.unguarded_call = partial(tune, **arguments | other)
    return tuned


@dataclass
class Rounds:
    """Pairs of positions (training records, held-out records), and which pairs each round tunes on and leaves out."""

    train: Sample  # has the training records
    held_out: Sample  # has the held-out records: the same, or validation records
    pairs: list  # one for each fold
    in_time: bool  # whether the folds, and so the rounds, follow one another in time
    rounds: list  # for each round the pairs that it tunes on, and the pairs that it leaves out
    #: The records from which the graph of a candidate is learned in the end.
    learned_from = property(lambda self: self.train.part(self.pairs[0][0] if len(self.pairs) == 1 else None))

    def parts(self, pairs):
        """Training records and held-out records of some pairs."""
        return [(self.train.part(a), self.held_out.part(b)) for a, b in pairs]


def rounds_of(train, validation, folds, random_state, guard=True):
    """Rounds that split a validation set, or the folds of the training records; none without a guard."""
    if validation is None:
        pairs = train.splits(folds, random_state)
        order = in_order_of_time(pairs)
        pairs = pairs if order is None else [pairs[k] for k in order]
    else:
        pairs, order = [(np.arange(len(train)), np.arange(len(validation)))], None
    held_out, count, rounds = train if validation is None else validation, min(ROUNDS, len(pairs)), []
    if guard and len(pairs) == 1:
        # Each round leaves out a third of the held-out records.
        inside, held = pairs[0]
        if len(held) < 2:
            raise DataError(
                f"{held_out.where} holds out {len(held)} records, but tuning needs two at least: one tunes, one judges."
            )
        splits = StrataKFold(min(ROUNDS, len(held)), random_state=random_state)
        splits = splits.split(np.zeros(len(held)), groups=held_out.part(held).labels)
        rounds = [([(inside, held[a])], [(inside, held[b])]) for a, b in splits]
    elif guard and order is not None:
        # Each round tunes on one more origin than the last and leaves out the next; later records take no part.
        if len(pairs) < 3:
            raise DataError(
                f"the folds follow one another in time, and tuning needs three at least: one tunes, one says how far to go, one "
                f"judges; there are {len(pairs)}. Give more origins, or a single one, whose held-out records are split."
            )
        rounds = [(pairs[:k], [pairs[k]]) for k in range(1, len(pairs))][-ROUNDS:]
    elif guard:
        # Each round leaves out a third of the folds, and removes the records that they hold out from all other folds.
        for number in range(count):
            left_out = pairs[number::count]
            hidden = np.unique(np.concatenate([held for _, held in left_out]))
            others = [pair for k, pair in enumerate(pairs) if k % count != number]
            tuning = [(np.setdiff1d(a, hidden), np.setdiff1d(b, hidden)) for a, b in others]
            rounds.append(([(a, b) for a, b in tuning if len(a) and len(b)], left_out))
        if not all(tuning for tuning, _ in rounds):
            raise DataError(
                "the folds hold out the same records, so that none is left to judge; give folds whose held-out records "
                "differ, or a single one, whose held-out records are then split."
            )
    return Rounds(train, held_out, pairs, order is not None, rounds)


def in_order_of_time(pairs):
    """The order in which folds follow one another in time; None where they do not.

    No fold trains on records that it or a later one holds out, some fold trains on an earlier one's, and none is held out twice.
    """
    held = [np.unique(b) for _, b in pairs]
    uses = np.array([[np.isin(b, a, assume_unique=True).any() for b in held] for a, _ in pairs])
    # The later a fold, the more of the others' held-out records it trains on.
    order = np.argsort(uses.sum(axis=1), kind="stable")
    uses = uses[np.ix_(order, order)]
    twice = len(np.unique(np.concatenate(held))) < sum(map(len, held))
    return order if uses.any() and not np.triu(uses).any() and not twice else None
