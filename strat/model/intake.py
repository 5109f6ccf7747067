"""What a user passes to fit, predict and score, read once: records, strata, weights."""

import warnings
from dataclasses import dataclass, field

import numpy as np

from strat.compiler.program import read_weight
from strat.errors import DataError, DataWarning, ShapeError
from strat.records.labels import named_columns, read_labels
from strat.records.records import check_count, read_records
from strat.records.strata import Strata


@dataclass
class Records:
    """Records as arrays.

    Attributes
    ----------
    arrays : list of arrays
        One for each data Parameter.
    strata : Strata
    weight : (N,) ndarray
    columns : dict
        Column names of the arguments that were DataFrames, by Parameter name.
    """

    arrays: list
    strata: Strata
    weight: np.ndarray
    columns: dict = field(default_factory=dict)


def read(parameters, data, strata, where, *, declared=None, nodes=None, sample_weight=None, columns=None):
    """Read the arguments of fit, predict or score.

    Parameters
    ----------
    parameters : sequence of cvxpy.Parameter
    data : tuple
        The data arguments.
    strata : object
        Labels, or names of columns of the first argument; None for those that were declared.
    where : str
        Who asks, for messages.
    declared : str or list of str, optional
        Columns of the first argument that always hold the strata.
    nodes : list, optional
        The strata in order.
    sample_weight : (N,) array-like, optional
    columns : dict, optional
        Column names at fit, which those here must equal.

    Returns
    -------
    Records
    """
    named = [(p.name(), d) for p, d in zip(parameters, data, strict=False)]
    _warn_of_order([*named, ("strata", strata), ("sample_weight", sample_weight)])
    data, labels = _split(parameters, data, strata, declared, where)
    arrays = read_records(parameters, data, where)
    N = arrays[0].shape[0] if arrays else len(labels)
    if len(labels) != N:
        raise DataError(
            f"strata has {len(labels)} labels, but there are {N} records; give one label a record"
            f"{_columns_hint(labels, N)}."
        )
    if N == 0:
        raise DataError(f"{where} was given no records; there is nothing to work on.")
    weight = np.ones(N) if sample_weight is None else read_weight(sample_weight, N)
    seen = {p.name(): list(d.columns) for p, d in zip(parameters, data, strict=True) if hasattr(d, "columns")}
    for name, names in seen.items():
        if columns and columns.get(name, names) != names:
            raise ShapeError(
                f"{name} has the columns {_listed(names)}, but at fit it had {_listed(columns[name])}. "
                f"Give the same columns in the same order, or an array."
            )
    return Records(arrays, Strata.read(labels, nodes=nodes), weight, seen)


def _split(parameters, data, strata, declared, where):
    """The data without the columns that hold strata, and the records' labels."""
    source = declared if strata is None else strata
    if source is None:  # strata were forgotten, or given as one more data argument
        check_count(parameters, data, where)
    frame = data[0] if data else None
    names = named_columns(source, frame) if source is not None else None
    if strata is None and declared is not None and names is None:
        raise DataError(
            f"the model was declared with strata={declared!r}, so the first argument of {where} must be a DataFrame "
            f"with that column, or strata= must be given."
        )
    labels = read_labels(source, frame)
    named = set(names or ())
    always = {declared} if isinstance(declared, str) else set(declared or ())
    always &= set(getattr(frame, "columns", ()))
    if named | always:
        wanted = int(np.prod(parameters[0].shape, dtype=int)) if parameters else 0
        # Columns that only this call names stay where the model wants as many as there are.
        spare = strata is None or frame.shape[1] - len(always - named) > wanted
        without = frame.drop(columns=[c for c in frame.columns if c in always or (c in named and spare)])
        if not without.shape[1] and len(data) == len(parameters) + 1:
            data = data[1:]  # a frame that holds nothing but strata, for a model without x
        elif without.shape[1] < frame.shape[1]:
            data = (without, *data[1:])
    return data, labels


def _warn_of_order(arguments):
    """Warn where pandas objects have one index in two orders: they were meant to be matched by it, and are not."""
    indexes = {name: value.index for name, value in arguments if hasattr(value, "iloc")}
    first, *others = indexes or [None]
    for name in others:
        one, other = indexes[first], indexes[name]
        if len(one) == len(other) and not one.equals(other) and one.is_unique and set(one) == set(other):
            warnings.warn(
                f"{name} has the index of {first} in another order, but rows are matched by position. Where they should "
                f"be matched by index, pass {name}.loc[{first}.index].",
                DataWarning,
                stacklevel=6,
            )


def _columns_hint(labels, N):
    columns = labels.values if N else []
    return (
        ", such as list(zip(*strata))" if all(isinstance(c, tuple) and len(c) == N for c in columns) else ""
    )


def _listed(names):
    shown = ", ".join(map(str, names[:6]))
    return shown + (", …" if len(names) > 6 else "")
