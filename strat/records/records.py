"""Record data as arrays: one entry for each declared Parameter, checked once, with errors that say where."""

import numpy as np
import scipy.sparse as sp

from strat.errors import DataError, ShapeError

#: The fourth power of a larger number, summed over records, leaves the range of floating point.
LARGEST = 1e60


def read_records(parameters, data, where="the data"):
    """Arrays of the records.

    Parameters
    ----------
    parameters : sequence of cvxpy.Parameter
        One record's data, in the order of the arguments.
    data : sequence of array-like
        Rows are records. Arrays, lists, Series and DataFrames (by position), SciPy sparse matrices.
    where : str
        What is being read, for messages.

    Returns
    -------
    list of ndarray or csr_array
        (N, *shape) float64, or (N, size) CSR.

    Raises
    ------
    DataError
        For a wrong number of arguments, text, complex numbers, None, NaN or infinity.
    ShapeError
        Where an argument does not have the declared shape, or another number of records than the first.
    """
    check_count(parameters, data, where)
    arrays = [_read(p.name(), p.shape, d) for p, d in zip(parameters, data, strict=True)]
    for p, array in zip(parameters, arrays, strict=True):
        _check_attributes(p, array)
    for p, array in zip(parameters[1:], arrays[1:], strict=True):
        if array.shape[0] != arrays[0].shape[0]:
            raise ShapeError(
                f"{p.name()} has {array.shape[0]} records, but {parameters[0].name()} has {arrays[0].shape[0]}. "
                f"Rows of every argument are the same records."
            )
    return arrays


#: What a declared attribute allows.
_ALLOWED = {
    "nonneg": ("at least 0", lambda v: v >= 0),
    "pos": ("at least 0", lambda v: v >= 0),
    "nonpos": ("at most 0", lambda v: v <= 0),
    "neg": ("at most 0", lambda v: v <= 0),
    "boolean": ("0 or 1", lambda v: (v == 0) | (v == 1)),
    "integer": ("whole numbers", lambda v: v == np.round(v)),
}


def _check_attributes(parameter, array):
    """Raise DataError where records break what their Parameter was declared to be."""
    values = array.data if sp.issparse(array) else array
    for name, (words, allowed) in _ALLOWED.items():
        if parameter.attributes.get(name) is not True or allowed(values).all():
            continue
        bad = np.argwhere(~allowed(array.toarray() if sp.issparse(array) else array))
        raise DataError(
            f"{parameter.name()} was declared {name}=True, so its values are {words}, but record {bad[0, 0]} has "
            f"{values[~allowed(values)][0]:g} ({len(np.unique(bad[:, 0]))} of {array.shape[0]} records are affected). "
            f"Correct them, or declare the Parameter without {name}."
        )


def check_count(parameters, data, where):
    """Check that there is one argument for each Parameter; `where` is who asks, for messages."""
    if len(data) != len(parameters):
        names = ", ".join(p.name() for p in parameters) or "none"
        raise DataError(
            f"{where} needs {len(parameters)} data argument{'s' * (len(parameters) != 1)} ({names}), "
            f"but {len(data)} {'was' if len(data) == 1 else 'were'} given. They come in the order of the "
            f"declaration's data=(…), and strata go in strata=."
        )


def read_vector(name, values, N):
    """A vector with one finite number for each of N records, such as sample_weight."""
    try:
        shape = np.shape(values)
    except ValueError as error:
        raise ShapeError(
            f"{name} is ragged, but it must hold one number for each of the {N} records."
        ) from error
    if not shape:
        raise ShapeError(f"{name} is {values!r}, but it must hold one number for each of the {N} records.")
    if len(shape) > 2 or (len(shape) == 2 and shape[1] != 1):
        raise ShapeError(
            f"{name} has shape {shape}, but it must hold one number for each of the {N} records."
        )
    vector = _read(name, (), values)
    if len(vector) != N:
        raise ShapeError(f"{name} has {len(vector)} entries, but there are {N} records.")
    return vector


def _read(name, shape, data):
    columns = [str(c) for c in data.columns] if hasattr(data, "columns") else None
    if sp.issparse(data):
        return _read_sparse(name, shape, data)
    array = _as_float(name, data)
    wanted = (f"N, {', '.join(map(str, shape))}" if shape else "N,") if len(shape) != 1 else f"N, {shape[0]}"
    if array.ndim == len(shape) + 2 and array.shape[-1] == 1 and array.shape[1:-1] == shape:
        array = array[..., 0]
    if array.ndim == 0 or array.shape[1:] != shape:
        hint = ""
        if len(shape) == 1 and array.ndim == 2:
            hint = f" Declare cp.Parameter({array.shape[1]}, name={name!r}) if a record has {array.shape[1]} numbers."
        elif len(shape) == 1 and array.ndim == 1 and np.isin(array, np.arange(shape[0])).all():
            hint = f" Give numbers of classes as one-hot rows: np.eye({shape[0]})[{name}]."
        raise ShapeError(
            f"{name} was declared with shape {shape}, so its argument must have shape ({wanted}) with one row for "
            f"each of N records, but it has shape {array.shape}.{hint}"
        )
    _check_finite(name, array, columns)
    return array


def _read_sparse(name, shape, data):
    csr = sp.csr_array(data)
    if csr.dtype.kind not in "fiub":
        raise DataError(f"{name} holds {csr.dtype} values; records must be real numbers.")
    csr = csr.astype(float)
    size = int(np.prod(shape, dtype=int))
    if len(shape) > 1 or csr.shape[1] != size:
        raise ShapeError(
            f"{name} was declared with shape {shape}, but the sparse matrix has shape {csr.shape}."
        )
    if not shape:
        return _read(name, shape, csr.toarray())
    good = np.abs(csr.data) <= LARGEST
    if not good.all():
        records = np.repeat(np.arange(csr.shape[0]), np.diff(csr.indptr))[~good]
        _refuse(name, records, csr.data[~good][0], f"column {csr.indices[~good][0]} of ")
    csr.sum_duplicates()
    return csr


def _as_float(name, data):
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
    if array.dtype.kind == "O":
        for index, value in np.ndenumerate(array):
            if value is None or isinstance(value, (str, bytes, complex)):
                raise DataError(_kind(name, index, value))
        try:
            array = array.astype(float)
        except (TypeError, ValueError) as error:
            index, value = next((k, v) for k, v in np.ndenumerate(array) if not _is_number(v))
            raise DataError(_kind(name, index, value)) from error
    if array.dtype.kind not in "fiub":
        index = (0,) * array.ndim
        value = array[index] if array.size else array.dtype
        raise DataError(_kind(name, index, value))
    return np.asarray(array, dtype=float, order="C")


def _is_number(value):
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _kind(name, index, value):
    record = index[0] if index else 0
    return (
        f"{name} holds {value!r} in record {record}; records must be real numbers. Encode categories as numbers, "
        f"and drop or fill what is missing."
    )


def _check_finite(name, array, columns):
    good = np.abs(array) <= LARGEST
    if good.all():
        return
    bad = np.argwhere(~good)
    column = ""
    if array.ndim == 2:
        column = f"column {columns[bad[0, 1]]!r} of " if columns else f"column {bad[0, 1]} of "
    _refuse(name, bad[:, 0], array[tuple(bad[0])], column)


def _refuse(name, records, value, column):
    """Raise the error about a value that is not finite or too large, the first of those in `records`."""
    count = len(np.unique(records))
    more = f" ({count} records are affected)" if count > 1 else ""
    kind, way = "NaN" if np.isnan(value) else "an infinite value", "Drop these records or fill the values"
    if np.isfinite(value):
        kind, way = f"the value {value:.3g}, too large to compute with,", "Change the unit"
    raise DataError(f"{name} has {kind} in {column}record {records[0]}{more}. {way}.")
