"""Labels: one hashable label per record, read from whatever a user has; and the factors along coordinates of tuples."""

import re
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain
from numbers import Integral, Real

import networkx as nx
import numpy as np

from strat.errors import DataError, ShapeError, optional, type_name
from strat.oracles.base import host


@dataclass(frozen=True)
class RecordLabels:
    """The labels of N records, each distinct label stored once.

    ``values`` lists the distinct labels in the order in which they first occur, as plain Python objects; ``codes``, of
    shape (N,), has the position in ``values`` of each record's label.
    """

    values: list
    codes: np.ndarray

    def __len__(self):
        return len(self.codes)

    def __iter__(self):
        return iter(self.tolist())

    def tolist(self):
        """One label per record."""
        return [self.values[code] for code in self.codes.tolist()]

    def take(self, index):
        """The labels of some records."""
        codes = self.codes[index]
        found = _factorize_numbers(codes) or _factorize(codes.tolist())
        return RecordLabels([self.values[code] for code in found.values], found.codes)


def as_frame(data):
    """A table of polars, Arrow and other libraries as a pandas DataFrame; anything else as it is."""
    if hasattr(data, "collect_schema") and not hasattr(data, "__arrow_c_stream__"):
        raise DataError(f"{type_name(data)} has not been computed: pass what its collect() returns.")
    # The `columns` of an Arrow table are arrays.
    names = getattr(data, "column_names", getattr(data, "columns", None))
    if names is None or hasattr(data, "iloc") or not hasattr(data, "__arrow_c_stream__"):
        return data
    frame = optional("pandas", f"a {type_name(data)}", "pandas").DataFrame
    return frame({name: data[name].to_numpy() for name in names})


def named_columns(strata, frame):
    """The columns of the first data argument that a user's ``strata=`` names, in its order; None where it holds labels."""
    names = list(strata) if isinstance(strata, list | tuple) else [strata]
    texts = all(isinstance(name, str) for name in names)
    if not (names and texts and set(getattr(frame, "columns", ())).issuperset(names)):
        return None
    if not isinstance(strata, str) and len(names) == len(frame):
        if len(set(names)) < len(names):
            return None  # labels of all records
        if frame[names].isin([0, 1]).all(axis=None):
            raise DataError(
                f"strata={names} may be labels of the {len(names)} records, or columns of X. Pass np.array(strata) if they "
                f"are labels, or X[strata] if they are columns."
            )
    return names


def split_positions(frame, declared):
    """Columns of a matrix that a model's ``strata=`` gives by position, and the rest; None where it gives no positions."""
    positions = declared if isinstance(declared, list | tuple) else [declared]
    if not positions or not all(isinstance(p, Integral) and not isinstance(p, bool) for p in positions):
        return None
    frame = frame if hasattr(frame, "shape") else np.asarray(frame)
    width = frame.shape[1] if len(frame.shape) == 2 else 0
    if not all(-width <= p < width for p in positions):
        raise DataError(
            f"the strata are declared as the columns {positions} of X, but X has {width} columns (shape {frame.shape}). "
            f"Give a matrix with these columns."
        )
    others = [k for k in range(width) if k not in {p % width for p in positions}]
    if hasattr(frame, "iloc"):
        labels, rest = frame.iloc[:, positions].to_numpy(dtype=object), frame.iloc[:, others]
    elif hasattr(frame, "toarray"):
        columns = frame.tocsc()
        labels, rest = columns[:, positions].toarray(), columns[:, others].tocsr()
    else:
        labels, rest = frame[:, positions], frame[:, others]
    return (labels if len(positions) > 1 else labels[:, 0]), rest


def read_labels(strata, frame=None, n_records=None, declared=None):
    """The `RecordLabels` of records.

    `strata` has one hashable label per record, where rows of several columns become tuples, or names columns of the first
    data argument, `frame`, that hold the labels. Where it is None, the `declared` columns do, by name or position.
    """
    if isinstance(strata, RecordLabels):
        return strata
    if strata is None and declared is not None:
        split = split_positions(frame, declared)
        strata, frame = (declared, frame) if split is None else (split[0], None)
    if strata is None:
        raise DataError(
            "strata: no strata were given. Pass strata=, one label per record, or the name of the column of X that holds them."
        )
    columns = named_columns(strata, frame)
    texts = isinstance(strata, list | tuple) and all(isinstance(name, str) for name in strata)
    # Whether a list that is not as long as the frame, and so cannot hold labels, names some of its columns.
    some = texts and not set(getattr(frame, "columns", ())).isdisjoint(strata) and len(strata) != len(frame)
    if columns is not None:
        if repeated := [name for name in columns if list(frame.columns).count(name) > 1]:
            raise DataError(f"strata: {repeated[0]!r} names more than one column of X. Rename them.")
        strata = frame[columns] if len(columns) > 1 else frame[columns[0]]
    elif isinstance(strata, str | bytes) or some:
        raise DataError(f"strata={strata!r}: {no_such_column(strata, frame, 'X')}")
    strata = host(strata)
    labels = _factorize_numbers(strata) or _factorize(label_list(strata))
    if n_records is not None and len(labels) != n_records:
        raise ShapeError(f"strata: {len(labels):,} labels for {n_records:,} records. Each needs one label.")
    return labels


def label_list(labels):
    """One hashable label per record, rows of several columns as tuples."""
    columns = labels.T if isinstance(labels, np.ndarray) and labels.ndim == 2 else None
    if hasattr(labels, "columns"):
        names = list(labels.columns)
        if not names or len(set(names)) < len(names):
            raise DataError(f"strata: the columns {names} are not distinct names. Rename them.")
        columns = [labels[name] for name in names]
    if columns is not None:
        columns = [_items(column) for column in columns]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    if hasattr(labels, "toarray") or isinstance(labels, dict | set | frozenset):
        raise DataError(f"strata: {type_name(labels)} has no order of records. Pass an array or a list.")
    if isinstance(labels, np.ndarray) and labels.ndim != 1:
        raise DataError(f"strata: an array of shape {labels.shape} holds no labels. Pass (N,), or (N, m).")
    try:
        items = _items(labels)
    except TypeError:
        raise DataError(
            f"strata: {type_name(labels)} holds no labels. Pass one label per record, in a list."
        ) from None
    if items and isinstance(items[0], list | np.ndarray):
        items = [tuple(np.asarray(row, dtype=object).tolist()) for row in items]
    return items


def all_plain(labels):
    """Whether labels are plain text or whole numbers, or tuples of them, so that no label needs a closer look."""
    kinds = set(map(type, labels))
    if kinds == {tuple}:
        kinds = set(map(type, chain.from_iterable(labels)))
    return kinds <= {str, int}


def are_numbers(labels):
    """Whether all labels are real numbers."""
    return all(isinstance(label, Real) and not isinstance(label, bool) for label in labels)


def plain(label):
    """A label with NumPy scalars turned into Python ones, also in tuples; instants finer than microseconds stay NumPy's."""
    if getattr(label, "nanosecond", 0) and label.tzinfo is None:  # pandas'
        return label.to_datetime64()
    if isinstance(label, np.datetime64):
        # Python's dates hold microseconds; a finer instant stays as it is.
        exact = label.astype("datetime64[us]")
        return exact.item() if exact == label else label
    if isinstance(label, np.generic):
        return label.item()
    return tuple(plain(part) for part in label) if type(label) is tuple else label


def is_missing(label):
    """Whether a label, or a part of a tuple, is None, NaN, NaT or pandas' NA."""
    if label is None:
        return True
    if type(label) is tuple:
        return any(is_missing(part) for part in label)
    try:
        return bool(label != label)
    except (TypeError, ValueError):  # pandas.NA has no truth value
        return True


def _factorize_numbers(column):
    """`_factorize` of whole numbers by a table from the least number to the largest; None if it is large, or for others."""
    whole = getattr(getattr(column, "dtype", None), "kind", "?") in "iu" and not np.ma.is_masked(column)
    numbers = np.asarray(column if whole else ())
    if numbers.dtype.kind not in "iu" or numbers.ndim != 1 or not numbers.size:
        return None
    N, low, width = len(numbers), int(numbers.min()), int(numbers.max()) - int(numbers.min()) + 1
    if width > N + 1000:
        return None
    above = numbers.astype(np.int64) - numbers.min().astype(np.int64)  # right modulo 2^64
    first = np.full(width, N)
    first[above[::-1]] = np.arange(N - 1, -1, -1)  # of several values for one index NumPy keeps the last
    order = np.argsort(first)
    present = order[: np.count_nonzero(first < N)]
    return RecordLabels([low + k for k in present.tolist()], np.argsort(order)[above])


def _factorize(labels):
    try:
        table = {label: code for code, label in enumerate(dict.fromkeys(labels))}
        codes = np.fromiter(map(table.__getitem__, labels), dtype=np.intp, count=len(labels))
    except TypeError:
        for row, label in enumerate(labels):
            with suppress(TypeError):
                hash(label)
                continue
            raise DataError(
                f"strata: the label of record {row} is {type_name(label)}, which is not hashable. Use text, numbers or tuples."
            ) from None
    if all_plain(table):
        return RecordLabels(list(table), codes)
    if missing := [code for label, code in table.items() if is_missing(label)]:
        rows = np.flatnonzero(np.isin(codes, missing))
        others = f" (and {len(rows) - 1:,} more)" if len(rows) > 1 else ""
        raise DataError(
            f"strata: record {rows[0]}{others} has no label but {labels[rows[0]]!r}. Give it a label, or drop the record."
        )
    return RecordLabels([plain(label) for label in table], codes)


def _items(column):
    """One column as a list of Python objects."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "mM":
        exact = column.astype(f"{column.dtype.kind}8[us]")  # tolist() turns finer units into integers
        if not ((exact == column) | np.isnat(column)).all():
            return [plain(label) for label in column]
        column = exact
    read = next((name for name in ("tolist", "to_list", "to_pylist") if hasattr(column, name)), None)
    items = list(column) if read is None else getattr(column, read)()
    if not isinstance(items, list):
        raise TypeError("a scalar")
    return items


def no_such_column(strata, frame, what):
    """A message about columns that `strata` names and a data argument lacks, with advice."""
    way = "Name a column, or pass one label per record."
    if not hasattr(frame, "columns"):
        numbers = "declare the columns by number, such as strata=[0, 1], as in scikit-learn's bags, which pass arrays"
        return f"{what} is not a DataFrame. Pass one label per record, or {numbers}."
    columns = [str(column) for column in frame.columns]
    names = [strata] if isinstance(strata, str | bytes) else strata
    missing = [str(name) for name in names if str(name) not in columns]
    meant = [[c for c in columns if c.endswith(f"_{m}")] or get_close_matches(m, columns, 1) for m in missing]
    meant = " and ".join(repr(found[0]) for found in meant if found)
    shown = ", ".join(columns[:8]) + (", …" if len(columns) > 8 else "")
    return (
        f"{what} has no column {' and '.join(map(repr, missing))}, only {shown}. "
        f"{f'Did you mean {meant}? ' if meant else ''}{way}"
    )


def changed_axis(u, v):
    """The only coordinate in which two labels differ; None where there are several, or the labels are of other kinds."""
    if not type(u) is type(v) is tuple:
        return None if type(u) is tuple or type(v) is tuple else 0
    changed = [axis for axis, (a, b) in enumerate(zip(u, v, strict=False)) if a != b]
    return changed[0] if len(changed) == 1 and len(u) == len(v) else None


def axis_factors(*graphs):
    """The factor of the edges along each coordinate, ``{axis: name}``, where it has a name given by the user."""
    names = {}
    for graph in (graph for graph in graphs if isinstance(graph, nx.Graph)):
        for u, v, factor in graph.edges(data="factor"):
            axis = changed_axis(u, v)
            if factor and axis is not None and not re.fullmatch(r"factor\d+", str(factor)):
                names[axis] = str(factor)
    return names
