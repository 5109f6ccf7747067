"""Which records tune and which judge: rounds that hold a third of the validation records out of everything."""

import numpy as np

from strat.errors import DataError
from strat.records.splitters import StrataKFold
from strat.selection.tuning.inner import Inner, Objective, Task

#: Rounds, each with its own records that judge.
ROUNDS = 3


class Split:
    """One training set and one validation set; the validation records are split in as many parts as there are rounds.

    Parameters
    ----------
    train, held : Part
        The records.
    where : str
        The name of the argument with the validation records, for messages.
    random_state : int
        Seed of the split.
    """

    in_time = False

    def __init__(self, train, held, where, random_state):
        self.train, self.held, self.where = train, held, where
        self.count = min(ROUNDS, len(held))
        if self.count < 2:
            raise DataError(
                f"{where} has {len(held)} records, but tuning needs two at least: one tunes, one judges."
            )
        spread = StrataKFold(self.count, random_state=random_state)
        zeros = np.zeros(len(held))
        self.parts = [(_only(held, a), _only(held, b)) for a, b in spread.split(zeros, groups=held.labels)]

    def round(self, number, branch):
        """Objectives of the records that tune and of those that judge."""
        return tuple(branch.objective([(self.train, part)], self.where) for part in self.parts[number])

    def whole(self, branch):
        """The objective of all validation records."""
        return branch.objective([(self.train, self.held)], self.where)


class Folds:
    """Several folds; a round leaves the held-out records of a third of the folds out of all that it does.

    Parameters
    ----------
    sample : Sample
        All records.
    pairs : list of pairs
        Positions (training, held out).
    """

    where, in_time = "train", False

    def __init__(self, sample, pairs):
        self.sample, self.pairs = sample, pairs
        self.count, self.train = min(ROUNDS, len(pairs)), sample.part()

    def round(self, number, branch):
        """Objectives of the folds that tune and of those that judge."""
        judges = self.pairs[number :: self.count]
        hidden = np.unique(np.concatenate([held for _, held in judges]))
        tunes = [(np.setdiff1d(a, hidden), np.setdiff1d(b, hidden)) for a, b in self.pairs]
        tunes = [
            pair for k, pair in enumerate(tunes) if k % self.count != number and len(pair[0]) and len(pair[1])
        ]
        if not tunes:
            raise DataError(
                "the folds hold out the same records, so that none is left to judge; give folds whose held-out records "
                "differ, or a single one, whose held-out records are then split."
            )
        return tuple(branch.objective(self._parts(pairs), self.where) for pairs in (tunes, judges))

    def whole(self, branch):
        """The objective of all folds."""
        return branch.objective(self._parts(self.pairs), self.where)

    def _parts(self, pairs):
        return [(self.sample.part(a), self.sample.part(b)) for a, b in pairs]


class Origins(Folds):
    """Folds in the order of time; the records that judge a round come after all that it tunes on.

    Round after round, one origin more takes part; the next one judges.

    Parameters
    ----------
    sample : Sample
        All records.
    pairs : list of pairs
        Positions (training, held out) in the order of time.
    """

    in_time = True

    def __init__(self, sample, pairs):
        super().__init__(sample, pairs)
        if len(pairs) < 3:
            raise DataError(
                f"the folds follow one another in time, and tuning needs three at least: one tunes, one says how far to go, "
                f"one judges; there are {len(pairs)}. Give more origins, or a single one, whose held-out records are "
                f"then split."
            )
        self.count = min(ROUNDS, len(pairs) - 1)

    def round(self, number, branch):
        """Objectives of the origins that tune and of the one that judges."""
        judge = len(self.pairs) - self.count + number
        groups = self.pairs[:judge], self.pairs[judge : judge + 1]
        return tuple(branch.objective(self._parts(pairs), self.where) for pairs in groups)


def folds_of(sample, pairs):
    """The folds of given pairs, in the order of time where they have one."""
    order = in_order_of_time(pairs)
    return Folds(sample, pairs) if order is None else Origins(sample, [pairs[k] for k in order])


def in_order_of_time(pairs):
    """The order in which folds follow one another in time; None where they do not.

    They do where every fold's held-out records are left alone by the folds before, and some train a later fold.
    """
    held = [np.unique(b) for _, b in pairs]
    uses = np.array([[np.isin(one, a, assume_unique=True).any() for one in held] for a, _ in pairs])
    order = np.argsort(
        uses.sum(axis=1), kind="stable"
    )  # the later a fold, the more of the others' records it knows
    uses = uses[np.ix_(order, order)]
    twice = len(np.unique(np.concatenate(held))) < sum(map(len, held))
    return order if uses.any() and not np.triu(uses).any() and not twice else None


class Branch:
    """One way to a graph: the model's own, or a learned candidate; fits to a training part are shared by its tasks.

    Parameters
    ----------
    model : StratifiedModel
        The start.
    stages : list of Stage
        The way.
    graph_of : callable
        ``graph_of(part)`` gives the graph, for a candidate learned from these records.
    space_of : callable
        ``space_of(prior)`` gives the variables.
    notes : Counter
        Takes texts of warnings.
    """

    def __init__(self, model, stages, graph_of, space_of, notes):
        self.model, self.stages, self.notes = model, stages, notes
        self.graph_of, self.space_of = graph_of, space_of
        self.known = {}

    def objective(self, pairs, where):
        """Mean loss over pairs (training part, held-out part)."""
        tasks = []
        for train, held in pairs:
            inner, space = self._inner(train)
            tasks.append(Task(inner, space, held, where))
        return Objective(tasks, self.notes)

    def space(self, part):
        """The variables of the graph learned from a training part."""
        return self._inner(part)[1]

    def _inner(self, part):
        key = part.index.tobytes()
        if key not in self.known:
            prior = self.graph_of(part)
            inner, space = Inner(self.model, prior, part), self.space_of(prior)
            inner.check(space.at(space.start))
            self.known[key] = inner, space
        return self.known[key]


def _only(part, index):
    mask = np.zeros(len(part), dtype=bool)
    mask[index] = True
    return part.only(mask)
