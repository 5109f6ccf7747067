"""Strata: records grouped by stratum, in the order of the graph's nodes."""

from contextlib import suppress
from datetime import datetime
from difflib import get_close_matches
from functools import cached_property

import numpy as np

from strat.errors import GraphError
from strat.records.labels import read_labels


class NodeList(list):
    """Strata in order, with the position of each."""

    position = cached_property(lambda self: {label: k for k, label in enumerate(self)})


class Strata:
    """The K strata in node order, ``labels``, and the stratum of each record, ``index`` of shape (N,)."""

    K = property(lambda self: len(self.labels))
    N = property(lambda self: len(self.index))
    counts = cached_property(lambda self: np.bincount(self.index, minlength=self.K))  # of records, (K,)

    def __init__(self, labels, index):
        self.labels, self.index = labels, index

    @classmethod
    def read(cls, strata, frame=None, n_records=None, nodes=None):
        """Group records by `RecordLabels`, or by a user's ``strata=`` as for `read_labels`.

        `nodes` are the strata in order; by default the labels seen, sorted.
        """
        records = read_labels(strata, frame, n_records)
        nodes = in_order(records.values) if nodes is None else nodes
        nodes = nodes if isinstance(nodes, NodeList) else NodeList(nodes)
        where = np.array([nodes.position.get(label, -1) for label in records.values], dtype=np.int32)
        if (where < 0).any():
            affected = np.flatnonzero((where < 0)[records.codes])
            label, others = records.values[records.codes[affected[0]]], int((where < 0).sum()) - 1
            more = "is one other label" if others == 1 else f"are {others:,} other labels"
            also = f" (nor {more})" if others else ""
            raise GraphError(
                f"stratum {label!r} is not a node of the graph{also}; {len(affected):,} of {len(records):,} "
                f"record{'s' * (len(records) > 1)} {'is' if len(affected) == 1 else 'are'} affected. "
                f"The graph has {len(nodes):,} nodes, such as {some_of(nodes)}. "
                f"{did_you_mean(label, nodes) or 'Add the node to the graph or drop these records.'}"
            )
        return cls(nodes, where[records.codes])

    @cached_property
    def order(self):
        """The permutation that sorts the records by stratum and keeps their order within one, shape (N,)."""
        small = np.min_scalar_type(self.K)  # numbers of 16 bits are sorted in one pass
        return np.argsort(self.index.astype(small), kind="stable")

    def merged(self, labels=(None,)):
        """The same records, all in the first of the strata `labels`."""
        return Strata(list(labels), self.index * 0)


def in_order(labels):
    """Labels sorted, or in their given order where they cannot be compared."""
    for key in (None, _comparable):
        with suppress(TypeError):
            return sorted(labels, key=key)
    return list(labels)


def _comparable(label):
    """A label with instants in NumPy's type, as Python's cannot hold those finer than microseconds."""
    if isinstance(label, tuple):
        return tuple(map(_comparable, label))
    return np.datetime64(label) if isinstance(label, datetime) and label.tzinfo is None else label


def some_of(labels):
    """A few labels as text: the first two and the last."""
    labels = list(labels)
    if len(labels) > 4:
        return f"{labels[0]!r}, {labels[1]!r}, … {labels[-1]!r}"
    return ", ".join(map(repr, labels))


def _as_text(part):
    """A part of a label as text, with days and starts of periods in one form, whatever their type."""
    return str(getattr(part, "start_time", part)).replace("T", " ").partition(" 00:00")[0]


def did_you_mean(label, nodes):
    """A sentence that suggests the node meant by an unknown label; empty where no node is like it."""
    own, *texts = (tuple(map(_as_text, z if isinstance(z, tuple) else (z,))) for z in (label, *nodes))
    pairs = list(zip(nodes, texts, strict=True))
    twins = [node for node, parts in pairs if parts == own or str(node) == str(label)]
    turned = [node for node, parts in pairs if sorted(parts) == sorted(own)]
    longer = [node for node, parts in pairs if set(own) <= set(parts)]
    close = get_close_matches(str(label), map(str, nodes), 1) if isinstance(label, str) else []
    close = [node for node in nodes if str(node) in close]
    kinds = (
        (twins[:1], " The two differ in type or format: give the labels as the graph has them."),
        (turned[:1], " A label has the parts in the order of the graph's nodes."),
        (longer, " The graph's nodes are tuples: give labels of all parts, as list(zip(a, b)), or columns."),
        (close, ""),
    )
    return next((f"Did you mean {some_of(meant)}?{why}" for meant, why in kinds if meant), "")
