"""Tune a prior graph and hyperparameters: rounds that choose, a guard, and a last descent on all validation records."""

import warnings
from collections import Counter
from functools import partial

import numpy as np

from strat.errors import ConvergenceWarning, OptionError
from strat.graphs.reading import read_graph
from strat.model.fit import check_options
from strat.records.sample import Sample, strata_folds
from strat.selection.tuning import arguments as asked
from strat.selection.tuning.by_evidence import tune_by_evidence
from strat.selection.tuning.choice import guard, point
from strat.selection.tuning.descent import Clock, OutOfTime, logger
from strat.selection.tuning.learned import learned_graph, named_candidates
from strat.selection.tuning.outcome import outcome
from strat.selection.tuning.path import Stage, walk
from strat.selection.tuning.rounds import Branch, Split, folds_of
from strat.selection.tuning.space import Space
from strat.solvers.progress import Listening

#: Share of the time limit for the rounds; the rest is for the last descent.
FOR_ROUNDS = 0.7


def tune(
    model,
    train,
    validation=None,
    *,
    folds=None,
    wrt=("scale",),
    edges="prior",
    tie=None,
    penalty=None,
    candidates=(),
    max_iter=50,
    patience=5,
    time_limit=None,
    random_state=0,
    verbose=False,
    method="validation",
):
    """Tune a prior graph by the loss of held-out records, and keep the start where that does not help.

    The mean validation loss is minimised through the fit, by its derivative (``strat.hypergradient``) and projected
    L-BFGS: in the logarithms of the factors' scales and of positive hyperparameters, and in edge weights at least 0.
    Edge weights begin with one scale for each factor, and are then set free with an ever weaker pull towards it.

    Rounds decide how far to go. Each holds a third of the validation records out of everything and measures them after
    every step; what has the lowest loss over all rounds is chosen, no tuning among the choices. A choice made without a
    third's records is measured on that third, record by record against the start. Only where it gains more than the
    standard error of that difference are all validation records used for a last descent, and is the result not the start.
    Folds that follow one another in time, such as rolling origins, are judged in that order: what tunes and what chooses
    comes before what judges.

    Parameters
    ----------
    model : StratifiedModel
        The start: ``strat.lrsm(base, graph)`` with a loss that has second derivatives. It is not changed.
    train : tuple
        ``(*data, strata)``.
    validation : tuple, optional
        ``(*data, strata)``: records to tune on, which no fit sees until the last. The rounds split them.
    folds : int, splitter or iterable of pairs, optional
        In place of `validation`: folds of `train`, such as ``RollingOrigin(6, time=1)``. 5 by default; the rounds hold a
        third of the folds out. Every fold needs a fit for each evaluation.
    wrt : sequence of {"scale", "W0"} or cvxpy.Parameter
        What to tune: the scales of the graph's factors, single edges, hyperparameters (or their names) of the loss,
        the regularizer, the constraints or ``couple``.
    edges : {"prior", "two-hop", "all"}, list of label pairs, or graph
        The edges that "W0" tunes: the graph's own; those and the neighbours' neighbours; all pairs; others. They start
        at weight 0 where the graph has none. The graph's other edges stay.
    tie : str, optional
        An edge attribute: edges of one value share a multiplier, those without it are one group.
    penalty : float or sequence, optional
        Pull towards the start: times the start's loss times the mean squared change of a weight, in units of the mean
        weight. Several are a path from strong to weak. By default (1, 0.1, 0.01, 0.001) for "W0", else 0. Where edges
        are tuned, the scales are free of it: it holds on to the ratios of the weights.
    candidates : sequence or dict, optional
        Graphs to try beside the tuned one, each with its scale tuned: "knn", "exponential" and "entropy" are kernels on
        the parameters of the start's fit, "joint" and models that learn W give their W; or graphs.
    max_iter : int
        Most steps of a descent.
    patience : int
        A round ends where its held-out loss has not fallen for so many steps.
    time_limit : float, optional
        Seconds. The best so far is returned, and where Ctrl-C is pressed.
    random_state : int
        Seed of the splits.
    verbose : bool
        Report each step through ``logging.getLogger("strat")``.
    method : {"validation", "evidence"}
        "evidence" is experimental: from constants that were chosen by cross-validation, a few steps to a higher marginal
        likelihood of the training records (Laplace's approximation) in the weights of all pairs of axis and coefficient:
        first products of the factors' scales and the coefficients' weights in ``couple``, then a table, ``couple`` by
        factor. The loss is read as minus a log likelihood. Held-out records have the last word as above, on the products
        and then on the table; where folds follow one another in time, the standard error is over folds, of which three
        are the least. Takes no `wrt`, `edges`, `tie`, `penalty`, `candidates`.

    Returns
    -------
    Tuned
        ``model`` (refitted to all records), ``W0``, ``parameters``, ``improved``, ``before``, ``after``, ``history``;
        it prints.

    Raises
    ------
    NoOracleError
        If the loss has no second derivatives.
    OptionError, GraphError, DataError
        Where the arguments have no meaning: also for a model that learns W.

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
    asked.checked_model(model)
    check_options(model)
    asked.checked_counts(max_iter, patience, time_limit)
    if validation is not None and folds is not None:
        raise OptionError("give validation= or folds=, not both: records to tune on, or folds of train.")
    given = {"wrt": wrt, "edges": edges, "tie": tie, "penalty": penalty, "candidates": candidates}
    if asked.by_evidence(method, given):
        with Listening(verbose):
            return tune_by_evidence(model, train, validation, folds, time_limit, random_state)
    clock = Clock(time_limit)
    names = asked.checked_names(model, wrt, edges, tie)
    stages = _stages(names, asked.checked_penalties(penalty, names))
    candidates = named_candidates(candidates)
    prior = read_graph(model.graph)
    asked.check_scale(prior, names, model.scale)
    wide, varied = asked.widened(prior, edges) if "W0" in names else (prior, None)
    group = asked.tied(model.graph, wide, tie) if tie is not None else None
    sample = Sample([model], train, "train")
    others = None if validation is None else Sample([model], validation, "validation")
    split = _split(sample, others, 5 if folds is None else folds, random_state)
    common = tie is not None and "scale" not in names  # factors' multipliers would part what is tied
    space, notes = Space(model, wide, names, varied, group, common=common), Counter()
    branches = {"model": Branch(model, stages, lambda part: wide, lambda graph: space, notes)}
    for name, one in candidates.items():
        branches[name] = Branch(
            model,
            [_scaling(names)],
            lambda part, one=one: learned_graph(one, model, prior, part),
            partial(_scaled_space, model, names),
            notes,
        )
    run = _Run(split, branches, clock, {"max_iter": max_iter, "patience": patience})
    with Listening(verbose):
        history, x, branch = [split.whole(branches["model"])(space.start)[0]], space.start, "model"
        rounds = run.rounds()
        told = guard(rounds, split.in_time)
        if told.improved:
            branch = told.choice[0]
            x, after = run.last(told.choice, rounds)
            if after and after[-1] < history[0]:
                history += after
            else:
                told.improved, x, branch = False, space.start, "model"
        tuned = outcome(model, names, split, branches, branch, told, rounds, x, history, sample, others)
    if notes:
        text, count = notes.most_common(1)[0]
        warnings.warn(
            f"tune: {count} evaluations came with a warning: {text}", ConvergenceWarning, stacklevel=2
        )
    tuned.status, tuned.seconds = run.status, clock.seconds
    return tuned


class _Run:
    """The rounds and the last descent, cut short by the clock or by Ctrl-C."""

    def __init__(self, split, branches, clock, options):
        self.split, self.branches, self.clock, self.options = split, branches, clock, options
        self.status = "finished"

    def rounds(self):
        """The paths of every branch in every round that was begun, as far as they went."""
        rounds = []
        try:
            for number in range(self.split.count):
                rounds.append({})
                for name, branch in self.branches.items():
                    path = rounds[-1][name] = []
                    self._walk_round(path, number, name, branch)
        except OutOfTime:
            self.status = "time_limit"
        except KeyboardInterrupt:
            self.status = "interrupted"
        rounds = [{name: path for name, path in one.items() if path} for one in rounds]
        return [one for one in rounds if "model" in one]

    def _walk_round(self, path, number, name, branch):
        try:
            objective, judge = self.split.round(number, branch)
            label = f"round {number + 1} of {self.split.count}  {name}"
            check = partial(self.clock.check, FOR_ROUNDS)
            walk(path, objective, branch.stages, judge=judge, check=check, label=label, **self.options)
        except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            if name == "model":
                raise
            path.clear()  # one candidate's failure is no choice
            logger.warning("tune: the candidate %s failed (%s: %s)", name, type(error).__name__, error)

    def last(self, choice, rounds):
        """Where all validation records lead, and the mean loss after each accepted step.

        Where there is no time, it is the mean of where the rounds were.
        """
        name, *until = choice
        branch, path = self.branches[name], []
        objective = self.split.whole(branch)
        if self.status != "interrupted":
            try:
                options = {
                    "until": tuple(until),
                    "check": self.clock.check,
                    "label": "all records",
                    **self.options,
                }
                walk(path, objective, branch.stages, **options)
            except OutOfTime:
                self.status = "time_limit"
            except KeyboardInterrupt:
                self.status = "interrupted"
        if len(path) > 1 or (path and self.status == "finished"):
            first = 1 if name == "model" else 0
            return path[-1].x, [p.value for p in path[first:]]
        x = np.mean([point(one, choice).x for one in rounds], axis=0)
        return x, [objective(x)[0]]


def _split(sample, others, folds, random_state):
    """What tunes and what judges."""
    if others is not None:
        return Split(sample.part(), others.part(), "validation", random_state)
    pairs = sample.splits(folds, strata_folds(random_state))
    if len(pairs) == 1:
        train, held = (sample.part(index) for index in pairs[0])
        return Split(train, held, "the fold", random_state)
    return folds_of(sample, pairs)


def _scaled_space(model, names, graph):
    """The variables of a candidate, whose edges differ from one training part to the other: its scale."""
    others = [name for name in names if name not in ("W0", "scale")]
    return Space(model, graph, ["scale", *others], np.zeros(len(graph.i), dtype=bool), scale=1.0)


def _scaling(names):
    """The descent in the factors' scales, and in whatever else is no edge."""
    return Stage("scale", ("scale", *(name for name in names if name not in ("W0", "scale"))))


def _stages(names, penalties):
    if "W0" not in names:
        return [Stage(", ".join(names), tuple(names), penalty) for penalty in penalties]
    # The scales stay free, so that the penalty holds on to the ratios of the start's weights, not to their size.
    moves = tuple(dict.fromkeys(["scale", *names]))
    return [_scaling(names), *(Stage("edges", moves, penalty) for penalty in penalties)]
