"""Arrays of records, read from whatever a user passes, and checked."""

from contextlib import suppress

import numpy as np
import scipy.sparse as sp

from strat.errors import DataError, ShapeError
from strat.oracles.device import host, is_foreign

#: The fourth power of a larger number, summed over records, leaves the range of floating point.
LARGEST = 1e60


def read_array(name, shape, data, device=None):
    """An argument for a Parameter of a shape, one row for each record: float64, float32 or sparse, and finite.

    With a `Device` it is an array there, and is not copied where it was one.
    """
    if device is not None:
        if is_foreign(data) and data.ndim and tuple(data.shape[1:]) == shape and data.shape[0]:
            array, xp = device.array(data), device.xp
            if float(xp.min(array)) >= -LARGEST and float(xp.max(array)) <= LARGEST:
                return array
        array = read_array(name, shape, host(data))
        if sp.issparse(array):
            raise DataError(f"{name} is sparse, but records on a device are dense: leave out device=.")
        return device.array(array)
    columns = [str(c) for c in data.columns] if hasattr(data, "columns") else None
    if sp.issparse(data):
        return _read_sparse(name, shape, data)
    array = _as_float(name, data, columns)
    if array.ndim == len(shape) + 2 and array.shape[-1] == 1 and array.shape[1:-1] == shape:
        array = array[..., 0]
    if array.ndim == 0 or array.shape[1:] != shape:
        hint = ""
        if len(shape) == 1 and array.ndim == 2:
            hint = f" Declare cp.Parameter({array.shape[1]}, name={name!r}) if a record has {array.shape[1]} numbers."
        elif len(shape) == 1 and array.ndim == 1 and np.isin(array, np.arange(shape[0])).all():
            hint = f" Give numbers of classes as one-hot rows: np.eye({shape[0]})[{name}]."
        rows = f"(N, {', '.join(map(str, shape))})" if shape else "(N,)"
        raise ShapeError(
            f"{name} was declared with shape {shape}, so its argument must have shape {rows} with one row for "
            f"each of N records, but it has shape {array.shape}.{hint}"
        )
    # NaN fails both.
    if array.size and not (float(array.min()) >= -LARGEST and float(array.max()) <= LARGEST):
        bad, column = np.argwhere(~(np.abs(array.astype(float)) <= LARGEST)), ""
        if array.ndim == 2:
            column = f"column {columns[bad[0, 1]]!r} of " if columns else f"column {bad[0, 1]} of "
        _refuse(name, bad[:, 0], array[tuple(bad[0])], column)
    return array


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
        array = np.asarray(host(data))
    except ValueError as error:
        raise ShapeError(f"{name} is ragged: its records do not all have the same shape.") from error
    if array.dtype.kind in "fiub":
        return np.asarray(array, dtype=np.float32 if array.dtype == np.float32 else float, order="C")
    if array.dtype.kind != "O":
        index = (0,) * array.ndim
        raise DataError(_no_number(name, index, array[index] if array.size else array.dtype, columns))
    for index, value in np.ndenumerate(array):
        if not _is_number(value):
            raise DataError(_no_number(name, index, value, columns))
    return array.astype(float, order="C")


def _is_number(value):
    """Whether a Python object is a real number; text is none, even where it reads like one."""
    with suppress(TypeError, ValueError):
        return not isinstance(value, (str, bytes, complex)) and float(value) is not None
    return False


def _no_number(name, index, value, columns=None):
    where, way = f"record {index[0] if index else 0}", ""
    if columns and len(index) == 2:
        where = f"{where}, column {columns[index[1]]!r}"
        way = " Name the column in strata= where it holds strata, or leave it out."
    return (
        f"{name} holds {value!r} in {where}; records must be real numbers. Encode categories as numbers, "
        f"and drop or fill what is missing.{way}"
    )


def _refuse(name, records, value, column):
    """Raise the error about a value that is not finite or too large, the first of those in `records`."""
    count = len(np.unique(records))
    more = f" ({count} records are affected)" if count > 1 else ""
    kind, way = "NaN" if np.isnan(value) else "an infinite value", "Drop these records or fill the values"
    if np.isfinite(value):
        kind, way = f"the value {value:.3g}, too large to compute with,", "Change the unit"
    raise DataError(f"{name} has {kind} in {column}record {records[0]}{more}. {way}.")
