"""Which held-out records are tuned on and which are left out, round by round."""

from dataclasses import dataclass

import numpy as np

from strat.errors import DataError
from strat.records.sample import Sample, strata_folds
from strat.records.splitters import StrataKFold

#: Rounds, each of which leaves out its own records.
ROUNDS = 3


@dataclass
class Rounds:
    """Pairs of positions (training records, held-out records), and which of them each round tunes on and leaves out."""

    train: Sample  # has the training records
    held_out: Sample  # has the held-out records: the same, or validation records
    pairs: list  # one for each fold
    in_time: bool  # whether the folds, and so the rounds, follow one another in time
    rounds: list  # for each round the pairs that it tunes on, and the pairs that it leaves out

    @property
    def where(self):
        """The name of the argument with the held-out records, for messages."""
        return self.held_out.where

    def parts(self, pairs):
        """Training records and held-out records of some pairs."""
        return [(self.train.part(a), self.held_out.part(b)) for a, b in pairs]

    @property
    def learned_from(self):
        """The records from which the graph of a candidate is learned in the end."""
        return self.train.part(self.pairs[0][0] if len(self.pairs) == 1 else None)


def rounds_of(train, validation, folds, random_state, guard=True):
    """Rounds that split a validation set, or the folds of the training records; none without a guard."""
    if validation is None:
        pairs = train.splits(folds, strata_folds(random_state))
        order = in_order_of_time(pairs)
        pairs = pairs if order is None else [pairs[k] for k in order]
    else:
        pairs, order = [(np.arange(len(train)), np.arange(len(validation)))], None
    held_out, count, rounds = train if validation is None else validation, min(ROUNDS, len(pairs)), []
    if guard and len(pairs) == 1:  # each round leaves out a third of the held-out records
        inside, held = pairs[0]
        if len(held) < 2:
            raise DataError(
                f"{held_out.where} holds out {len(held)} records, but tuning needs two at least: one tunes, one judges."
            )
        splits = StrataKFold(min(ROUNDS, len(held)), random_state=random_state)
        splits = splits.split(np.zeros(len(held)), groups=held_out.part(held).labels)
        rounds = [([(inside, held[a])], [(inside, held[b])]) for a, b in splits]
    elif (
        guard and order is not None
    ):  # each tunes on one origin more and leaves out the next; later records take no part
        if len(pairs) < 3:
            raise DataError(
                f"the folds follow one another in time, and tuning needs three at least: one tunes, one says how far to go, "
                f"one judges; there are {len(pairs)}. Give more origins, or a single one, whose held-out records are "
                f"then split."
            )
        rounds = [
            (pairs[:k], [pairs[k]]) for k in range(len(pairs) - min(ROUNDS, len(pairs) - 1), len(pairs))
        ]
    elif (
        guard
    ):  # each leaves out a third of the folds, and the records that they hold out from all other folds
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

    They do where no fold trains on records that it or a later fold holds out, some fold trains on records that an earlier
    one holds out, and no record is held out twice.
    """
    held = [np.unique(b) for _, b in pairs]
    uses = np.array([[np.isin(b, a, assume_unique=True).any() for b in held] for a, _ in pairs])
    # The later a fold, the more of the others' held-out records it trains on.
    order = np.argsort(uses.sum(axis=1), kind="stable")
    uses = uses[np.ix_(order, order)]
    twice = len(np.unique(np.concatenate(held))) < sum(map(len, held))
    return order if uses.any() and not np.triu(uses).any() and not twice else None
