"""What a user passes to fit, predict and score, read and checked once: records, strata and weights."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from strat.errors import DataError, DataWarning, ShapeError
from strat.oracles.device import Device, host
from strat.records.arrays import read_array
from strat.records.labels import named_columns, no_such_column, read_labels, split_positions
from strat.records.strata import Strata

#: What a declared attribute allows.
_ALLOWED = {
    "nonneg": ("at least 0", lambda v: v >= 0),
    "pos": ("at least 0", lambda v: v >= 0),
    "nonpos": ("at most 0", lambda v: v <= 0),
    "neg": ("at most 0", lambda v: v <= 0),
    "boolean": ("0 or 1", lambda v: (v == 0) | (v == 1)),
    "integer": ("whole numbers", lambda v: v % 1 == 0),
}


@dataclass
class Records:
    """Records as arrays: one for each data Parameter as from `read_records`, the strata, and weights of shape (N,).

    ``columns`` has the column names of the arguments that were DataFrames, by Parameter name.
    """

    arrays: list
    strata: Strata
    weight: np.ndarray
    columns: dict

    @property
    def filled(self):
        """Mask (K,) of the strata with records of positive weight."""
        return np.bincount(self.strata.index, self.weight > 0, self.strata.K) > 0

    @classmethod
    def read(
        cls, parameters, data, strata, where, declared=None, nodes=None, weight=None, columns=None, part=None
    ):
        """Read the user's arguments of fit, predict or score; `where` is the method, for messages.

        Strata are those of `strata`, or of the `declared` columns of the first data argument; `nodes` has all of them in order.
        `columns` are the names of columns at fit, which must be the same here. A `part` is read of more records: True,
        or the `Device` that keeps them.
        """
        names = [p.name() for p in parameters]
        given = dict(zip(names, data, strict=False))
        _warn_of_order({**given, "strata": strata, "sample_weight": weight})
        data, labels = _without_strata(parameters, data, strata, declared, where)
        present = {n: list(d.columns) for n, d in zip(names, data, strict=False) if hasattr(d, "columns")}
        for name, listed in present.items():
            _check_columns(name, listed, (columns or {}).get(name, listed))
        arrays = read_records(parameters, data, where, part if isinstance(part, Device) else None)
        N = arrays[0].shape[0] if arrays else len(labels)
        if len(labels) != N:
            transposed = N and all(isinstance(label, tuple) and len(label) == N for label in labels.values)
            raise ShapeError(
                f"strata has {len(labels)} labels, but there are {N} records; give one label a record"
                f"{', such as list(zip(*strata))' if transposed else ''}."
            )
        if N == 0:
            raise DataError(f"{where} was given no records; there is nothing to work on.")
        return cls(arrays, Strata.read(labels, nodes=nodes), read_weight(weight, N, part), present)


def _without_strata(parameters, data, strata, declared, where):
    """The data without the columns that hold strata, and the records' labels."""
    split = split_positions(data[0], declared) if data else None
    if split is not None:
        return (split[1], *data[1:]), read_labels(split[0] if strata is None else strata)
    source = declared if strata is None else strata
    if source is None:  # the strata were forgotten, or passed as one more data argument
        check_count(parameters, data, where)
    frame = data[0] if data else None
    names = named_columns(source, frame)
    if strata is None and declared is not None and names is None:
        wrong = no_such_column(declared, frame, f"the first argument of {where}")
        raise DataError(f"the model was declared with strata={declared!r}, but {wrong}")
    labels = read_labels(source, frame)
    named, always = set(names or ()), {declared} if isinstance(declared, str) else set(declared or ())
    always &= set(getattr(frame, "columns", ()))
    if not named | always:
        return data, labels
    wanted = int(np.prod(parameters[0].shape, dtype=int)) if parameters else 0
    # Columns that only this call names are features too where the model needs all columns of the frame.
    spare = strata is None or frame.shape[1] - len(always - named) > wanted
    texts = [] if spare else [c for c in named - always if frame[c].dtype.kind not in "biuf"]
    if texts:
        raise DataError(
            f"{parameters[0].name()} was declared with {wanted} numbers a record, so that the column {texts[0]!r}, which "
            f"holds the strata, is needed as a feature too, but it holds no numbers. Declare cp.Parameter("
            f"{frame.shape[1] - len(named | always)}, name={parameters[0].name()!r}), or give numbers."
        )
    rest = frame.drop(columns=[c for c in frame.columns if c in always or (c in named and spare)])
    if not rest.shape[1] and len(data) == len(parameters) + 1:
        return data[1:], labels  # the frame holds nothing but strata, for a model without x
    return ((rest, *data[1:]) if rest.shape[1] < frame.shape[1] else data), labels


def _warn_of_order(arguments):
    """Warn where pandas objects have the same index in different orders: rows are matched by position, not by index."""
    indexes = {name: value.index for name, value in arguments.items() if hasattr(value, "iloc")}
    first = next(iter(indexes), None)
    for name, index in indexes.items():
        reference = indexes[first]
        reordered = len(index) == len(reference) and not reference.equals(index)
        if reordered and reference.is_unique and set(reference) == set(index):
            DataWarning.warn(
                f"{name} has the index of {first} in another order, but rows are matched by position. Where they should "
                f"be matched by index, pass {name}.loc[{first}.index]."
            )


def _check_columns(name, listed, fitted):
    """Raise a ShapeError where a DataFrame has other columns than at fit, or in another order."""
    if listed == fitted:
        return
    differs = [
        f"{verb} the column{'s' * (len(names) > 1)} {_first_of(names)}, which it {when} at fit"
        for verb, when, some, others in (
            ("has", "did not have", listed, fitted),
            ("lacks", "had", fitted, listed),
        )
        if (names := [c for c in some if c not in others])
    ]
    order = f"has the columns {_first_of(listed)}, but at fit it had {_first_of(fitted)}"
    way = f": {name}[{fitted[:6]!r}{', …' * (len(fitted) > 6)}]" if set(fitted) <= set(listed) else ""
    raise ShapeError(
        f"{name} {', and '.join(differs) or order}. Give the same columns in the same order{way}, or an array."
    )


def _first_of(names):
    return ", ".join(map(str, names[:6])) + (", …" if len(names) > 6 else "")


def read_records(parameters, data, where="the data", device=None):
    """Arrays of the records: (N, *shape) floats, on a `Device` if one is given, or (N, size) CSR where the argument is sparse.

    float64 and float32 arrays stay as they are; float32 becomes float64 where records are computed with, piece by piece.
    """
    check_count(parameters, data, where)
    arrays = [read_array(p.name(), p.shape, d, device) for p, d in zip(parameters, data, strict=True)]
    for p, array in zip(parameters, arrays, strict=True):
        _check_attributes(p, array)
        if array.shape[0] != arrays[0].shape[0]:
            raise ShapeError(
                f"{p.name()} has {array.shape[0]} records, but {parameters[0].name()} has {arrays[0].shape[0]}. "
                f"Rows of every argument are the same records."
            )
    return arrays


def _check_attributes(parameter, array):
    """Raise a DataError where records break what their Parameter was declared to be."""
    values = array.data if sp.issparse(array) else array
    for name, (words, allowed) in _ALLOWED.items():
        if parameter.attributes.get(name) is not True or np.all(host(allowed(values))):
            continue
        array, values = host(array), host(values)
        bad = np.argwhere(~allowed(array.toarray() if sp.issparse(array) else array))
        raise DataError(
            f"{parameter.name()} was declared {name}=True, so its values are {words}, but record {bad[0, 0]} has "
            f"{values[~allowed(values)][0]:g} ({len(np.unique(bad[:, 0]))} of {array.shape[0]} records are affected). "
            f"Correct them, or declare the Parameter without {name}."
        )


def check_count(parameters, data, where):
    """Check that there is one argument for each Parameter; `where` is the caller, for messages."""
    if len(data) == len(parameters):
        return
    if not parameters:
        raise DataError(
            f"{where} was given {len(data)} data arguments, but the declaration has no data of records. Write the loss of "
            f"one record with cp.Parameter for its data, and list these: BaseModel(…, data=(x, y))."
        )
    raise DataError(
        f"{where} needs {len(parameters)} data argument{'s' * (len(parameters) != 1)} "
        f"({', '.join(p.name() for p in parameters)}), but {len(data)} {'was' if len(data) == 1 else 'were'} given. They come "
        f"in the order of the declaration's data=(…), and strata go in strata=."
    )


def read_weight(sample_weight, N, part=False):
    """Checked weights of N records, 1 by default; they may all be 0 where the records are a `part` of more."""
    if sample_weight is None:
        return np.broadcast_to(1.0, N)
    try:
        shape = sample_weight.shape if hasattr(sample_weight, "shape") else np.asarray(sample_weight).shape
        found = f"has shape {shape}"
    except ValueError:
        shape, found = None, "is ragged"
    if shape not in ((N,), (N, 1)):
        raise ShapeError(f"sample_weight {found}, but it must hold one number for each of the {N} records.")
    weight = np.asarray(read_array("sample_weight", (), sample_weight), dtype=float)
    if (weight < 0).any():
        record = int(np.flatnonzero(weight < 0)[0])
        raise DataError(
            f"sample_weight is {weight[record]:g} in record {record}; weights must be at least 0 (0 leaves the record out)."
        )
    if not (weight.any() or part):
        raise DataError("all weights in sample_weight are zero, so nothing is left; give some record weight.")
    return weight
