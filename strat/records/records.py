"""The arguments of fit, predict and score, read and checked once: records, strata and weights."""

from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.sparse as sp

from strat.errors import DataError, DataWarning, ShapeError
from strat.oracles.base import host, is_foreign
from strat.records.labels import as_frame, named_columns, no_such_column, plain, read_labels, split_positions
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
    """Records as arrays: one for each data Parameter, by `read_records`, the strata, and weights of shape (N,).

    ``columns`` has the column names of the arguments that were DataFrames, by Parameter name.
    """

    arrays: list
    strata: Strata
    weight: np.ndarray
    columns: dict
    #: The number of records of positive weight in each stratum (K,), and the mask of the strata that have any.
    counts = property(lambda self: np.bincount(self.strata.index, self.weight > 0, self.strata.K))
    filled = property(lambda self: self.counts > 0)

    @classmethod
    def read(
        cls, parameters, data, strata, where, declared=None, nodes=None, weight=None, columns=None, part=None
    ):
        """Read the user's arguments of fit, predict or score; `where` names the method in messages.

        Strata are those of `strata`, or of the `declared` columns of the first data argument; `nodes` has all of them in order.
        `columns` are the names of columns at fit, which must be the same here. `part` is set if these are only a part of all
        records: to True, or to the `Device` that keeps them.
        """
        names, data, strata = [p.name() for p in parameters], tuple(map(as_frame, data)), as_frame(strata)
        _warn_of_order(dict(zip(names, data, strict=False)) | {"strata": strata, "sample_weight": weight})
        data, labels = _without_strata(parameters, data, strata, declared, where)
        present = {n: list(d.columns) for n, d in zip(names, data, strict=False) if hasattr(d, "columns")}
        for name, listed in present.items():
            _check_columns(name, listed, (columns or {}).get(name, listed))
        arrays = read_records(parameters, data, where, None if part is True else part)
        N = arrays[0].shape[0] if arrays else len(labels)
        if len(labels) != N:
            transposed = N and all(isinstance(label, tuple) and len(label) == N for label in labels.values)
            raise ShapeError(
                f"strata has {len(labels)} labels, but there are {N} records; give one label per record"
                f"{', such as list(zip(*strata))' if transposed else ''}."
            )
        if N == 0 and not part:
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
            f"{parameters[0].name()} was declared with {wanted} numbers per record, so that the column {texts[0]!r}, which "
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
    first, reference = next(iter(indexes.items()), (None, None))
    for name, index in indexes.items():
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
    kinds = ("has", "did not have", listed, fitted), ("lacks", "had", fitted, listed)
    differs = [
        f"{verb} the column{'s' * (len(names) > 1)} {_first_of(names)}, which it {when} at fit"
        for verb, when, some, others in kinds
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

    float64 and float32 arrays are kept; computations convert float32 to float64, piece by piece.
    """
    check_count(parameters, data, where)
    read = read_array if device is None else partial(read_there, device)
    arrays = [read(p.name(), p.shape, d) for p, d in zip(parameters, data, strict=True)]
    for p, array in zip(parameters, arrays, strict=True):
        _check_attributes(p, array)
        if array.shape[0] != arrays[0].shape[0]:
            raise ShapeError(
                f"{p.name()} has {array.shape[0]} records, but {parameters[0].name()} has {arrays[0].shape[0]}. "
                f"Rows of every argument are the same records."
            )
    return arrays


def _check_attributes(parameter, array):
    """Raise a DataError where records violate the declared attributes of their Parameter."""
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
    """Check that there is one argument for each Parameter; `where` names the caller in messages."""
    if len(data) == len(parameters):
        return
    if not parameters and where == "predict":
        raise DataError("predict uses no data of records: give it the strata alone, predict(strata=z).")
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


#: The fourth power of a larger number, summed over records, leaves the range of floating point.
LARGEST = 1e60


def read_array(name, shape, data):
    """An argument for a Parameter of a shape, one row for each record: float64, float32 or sparse, and finite."""
    columns = [str(c) for c in data.columns] if hasattr(data, "columns") else None
    if sp.issparse(data):
        return _read_sparse(name, shape, data)
    array = _as_float(name, host(data), columns)
    if array.ndim == len(shape) + 2 and array.shape[-1] == 1 and array.shape[1:-1] == shape:
        array = array[..., 0]
    if array.ndim == 0 or array.shape[1:] != shape:
        hint = ""
        if len(shape) == 1 and array.ndim == 2:
            hint = f" Declare cp.Parameter({array.shape[1]}, name={name!r}) if a record has so many numbers."
        elif len(shape) == 1 and array.ndim == 1 and np.isin(array, np.arange(shape[0])).all():
            hint = f" Give numbers of classes as one-hot rows: np.eye({shape[0]})[{name}]."
        elif array.shape == shape:
            one = f"{name}[None]" if shape else f"[{name}]"
            hint = f" If it is one record, pass {one}, and its stratum as a list of one label."
        rows = f"(N, {', '.join(map(str, shape))})" if shape else "(N,)"
        raise ShapeError(
            f"{name} was declared with shape {shape}, so its argument must have shape {rows} with one row for "
            f"each of N records, but it has shape {array.shape}.{hint}"
        )
    # NaN fails both comparisons.
    if array.size and not (float(array.min()) >= -LARGEST and float(array.max()) <= LARGEST):
        bad, column = np.argwhere(~(np.abs(array.astype(float)) <= LARGEST)), ""
        if array.ndim == 2:
            column = f"column {columns[bad[0, 1]]!r} of " if columns else f"column {bad[0, 1]} of "
        _refuse(name, bad[:, 0], array[tuple(bad[0])], column)
    return array


def read_there(device, name, shape, data):
    """As `read_array`, but on a `Device`; an array that is there already is not copied."""
    if is_foreign(data) and data.ndim and tuple(data.shape[1:]) == shape and data.shape[0]:
        array, xp = device.array(data), device.xp
        if float(xp.min(array)) >= -LARGEST and float(xp.max(array)) <= LARGEST:
            return array
    array = read_array(name, shape, data)
    if sp.issparse(array):
        raise DataError(f"{name} is sparse, but records on a device are dense: leave out device=.")
    return device.array(array)


def _read_sparse(name, shape, data):
    csr = sp.csr_array(data)
    if csr.dtype.kind not in "fiub":
        raise DataError(f"{name} holds {csr.dtype} values; records must be real numbers.")
    csr = csr.astype(float)
    if len(shape) > 1 or csr.shape[1] != int(np.prod(shape, dtype=int)):
        raise ShapeError(f"{name} was declared with shape {shape}, but the matrix has shape {csr.shape}.")
    if not shape:
        return read_array(name, shape, csr.toarray())
    good = np.abs(csr.data) <= LARGEST
    if not good.all():
        records = np.repeat(np.arange(csr.shape[0]), np.diff(csr.indptr))[~good]
        _refuse(name, records, csr.data[~good][0], f"column {csr.indices[~good][0]} of ")
    csr.sum_duplicates()
    return csr


def _as_float(name, data, columns=None):
    if isinstance(data, np.ma.MaskedArray):
        data = data.astype(float).filled(np.nan) if np.ma.is_masked(data) else data.data
    if hasattr(data, "to_numpy") and not isinstance(data, np.ndarray):
        frame, data = data, data.to_numpy()
        if data.dtype.kind == "O" and hasattr(frame, "isna"):  # pandas.NA and None are missing numbers
            data = np.where(frame.isna(), np.nan, data)
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise ShapeError(f"{name} is ragged: its records do not all have the same shape.") from error
    if array.dtype.kind in "fiub":
        return np.asarray(array, dtype=np.float32 if array.dtype == np.float32 else float, order="C")
    if array.dtype.kind != "O":
        index = (0,) * array.ndim
        raise DataError(_no_number(name, index, array[index] if array.size else array.dtype, columns))
    for index, value in np.ndenumerate(array):
        with suppress(TypeError, ValueError):
            if not isinstance(value, (str, bytes, complex)):  # text is no number, even if it reads like one
                float(value)
                continue
        raise DataError(_no_number(name, index, value, columns))
    return array.astype(float, order="C")


def _no_number(name, index, value, columns=None):
    where, way = f"record {index[0] if index else 0}", ""
    if columns and len(index) == 2:
        where = f"{where}, column {columns[index[1]]!r}"
        way = " Name the column in strata= where it holds strata, or leave it out."
    return (
        f"{name} holds {plain(value)!r} in {where}; records must be real numbers. Encode categories as numbers, "
        f"and drop or fill what is missing.{way}"
    )


def _refuse(name, records, value, column):
    """Raise the error about a value that is not finite or too large, found first in `records`."""
    count = len(np.unique(records))
    more = f" ({count} records are affected)" if count > 1 else ""
    kind, way = "NaN" if np.isnan(value) else "an infinite value", "Drop these records or fill the values"
    if np.isfinite(value):
        kind, way = f"the value {value:.3g}, too large to compute with,", "Change the unit"
    raise DataError(f"{name} has {kind} in {column}record {records[0]}{more}. {way}.")
