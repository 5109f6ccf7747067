"""A user's records, to be split into parts."""

import copy
import warnings

import numpy as np
import scipy.sparse as sp

from strat.errors import DataError, OptionError, ShapeError, check_whole, optional, type_name
from strat.oracles.base import host, is_foreign
from strat.records.labels import as_frame, axis_factors, named_columns, read_labels
from strat.records.records import read_weight


def computed(*arguments):
    """The arguments, with Dask collections computed, so that records can be taken by position."""
    lazy = any(hasattr(argument, "__dask_graph__") for argument in arguments)
    return optional("dask", "a Dask collection", "dask").compute(*arguments) if lazy else arguments


class Sample:
    """The arguments ``(*data, strata)`` of a fit, in the form in which they came; `where` names them in messages.

    Strata may be left out where the models were declared with them. ``labels`` has the label of each record, ``by_column``
    says whether columns of the first data argument hold them, and ``weight`` (N,) is None where no weights are given.
    """

    def __init__(self, models, arguments, where, sample_weight=None):
        self.where, self.models = where, models
        if not isinstance(arguments, (tuple, list)):
            raise DataError(f"{where} must be a tuple (*data, strata), not {type_name(arguments)}.")
        *arguments, sample_weight = computed(*arguments, sample_weight)
        declared = [m.strata for m in models if m.strata is not None]
        names = [p.name() for p in models[0].base.data]
        if declared and len(arguments) == len(names):
            arguments = (*arguments, None)
        if len(arguments) != len(names) + 1:
            raise DataError(
                f"{where} must hold the data arguments ({', '.join(names) or 'none'}) and then the strata, "
                f"{len(names) + 1} entries, but it has {len(arguments)}."
            )
        *data, self.strata = map(as_frame, arguments)
        self.data, frame = tuple(data), data[0] if data else None
        self.by_column = self.strata is None or named_columns(self.strata, frame) is not None
        self.labels = read_labels(self.strata, frame, declared=declared[0] if declared else None)
        for argument, name in zip(data, names, strict=True):
            if length(argument) != len(self.labels):
                found = f"{name} has {length(argument)} records"
                raise ShapeError(f"{where}: {found}, but the strata have {len(self.labels)} labels.")
        self.weight = None if sample_weight is None else read_weight(sample_weight, len(self.labels))

    def __len__(self):
        return len(self.labels)

    def part(self, index=None):
        """The records at some positions, all by default, as a sample; its ``data`` and ``strata`` are as ``fit`` takes them."""
        part, rows = copy.copy(self), slice(None) if index is None else index
        part.index = np.arange(len(self))[rows]
        part.data = tuple(take(argument, rows) for argument in self.data)
        part.labels = self.labels.take(rows)
        part.weight = None if self.weight is None else self.weight[rows]
        part.strata = self.strata if self.by_column else part.labels
        return part

    def splits(self, folds, random_state=0):
        """Pairs of training and held-out positions, checked.

        `folds` is a whole number, for `StrataKFold`; a splitter, whose ``split(X, y, groups=strata)`` gives the pairs; or the
        pairs themselves, of positions or masks.
        """
        if isinstance(folds, (int, np.integer)) and not isinstance(folds, bool):
            # scikit-learn's model_selection takes a while to import
            from strat.records.splitters import StrataKFold

            check_whole("folds", folds, 2)
            folds = StrataKFold(int(folds), random_state=random_state)
        if isinstance(getattr(folds, "time", None), str):  # a RollingOrigin's, perhaps a factor of the graph
            factors = axis_factors(*(getattr(model, "graph", None) for model in self.models))
            folds, whole = copy.copy(folds), not isinstance(next(iter(self.labels.values), None), tuple)
            axes = [None if whole else axis for axis, name in factors.items() if name == folds.time]
            folds.time = axes[0] if axes else folds.time
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The groups parameter is ignored")
            if hasattr(folds, "split") and not isinstance(folds, str):
                from sklearn.model_selection import BaseCrossValidator

                X = self.data[0] if self.data else np.zeros(len(self))
                y = self.data[-1] if len(self.data) > 1 else None
                own = isinstance(folds, BaseCrossValidator) and not hasattr(folds, "strata")
                folds = folds.split(X, y, self.labels.codes if own else self.labels.tolist())
            pairs = [tuple(pair) for pair in folds] if hasattr(folds, "__iter__") else [()]
        if not pairs or not all(len(pair) == 2 for pair in pairs):
            raise OptionError("folds must be a number, a splitter, or pairs of positions; so must splits.")
        pairs = [(self._positions(train), self._positions(test)) for train, test in pairs]
        if not all(len(train) and len(test) for train, test in pairs):
            raise OptionError("a fold has no records to train on, or none to hold out.")
        if any(np.isin(test, train).any() for train, test in pairs):
            raise OptionError("a fold holds out records that it trains on; the two must be disjoint.")
        return pairs

    def _positions(self, index):
        index = np.asarray(index)
        if index.dtype == bool and index.shape == (len(self),):
            return np.flatnonzero(index)
        whole = index.ndim == 1 and (index.dtype.kind in "iu" or not index.size)
        if not whole or (index.size and not (index.min() >= 0 and index.max() < len(self))):
            raise OptionError(f"a fold must hold positions, whole numbers from 0 to {len(self) - 1}.")
        return index.astype(np.intp)


def joined(first, second, models):
    """All records of two samples of the same models."""
    data = tuple(map(_stacked, first.data, second.data))
    alike = first.by_column and second.by_column and first.strata == second.strata
    strata = first.strata if alike else first.labels.tolist() + second.labels.tolist()
    return Sample(models, (*data, strata), f"{first.where} and {second.where}")


def take(argument, index):
    """Some records of one data argument, as the same kind of object."""
    if hasattr(argument, "iloc"):
        return argument.iloc[index]
    if sp.issparse(argument):
        return argument.tocsr()[index]
    if is_foreign(argument) and isinstance(index, slice) and argument.ndim:
        return host(argument, (slice(*index.indices(argument.shape[0])), ...))
    if isinstance(argument, str):
        why = f"the data argument {argument!r} is text, not one number per record; names alone are for fit(…, chunks=frame)"
        raise DataError(f"{why}. Pass the column, as frame[{argument!r}].")
    if isinstance(argument, list):  # kept a list, as its labels may be of several kinds
        return argument[index] if isinstance(index, slice) else [argument[k] for k in index]
    return np.atleast_1d(np.asarray(host(argument)))[index]


def _stacked(first, second):
    """Two arguments of one kind, one below the other."""
    if hasattr(first, "iloc") and hasattr(second, "iloc"):
        import pandas as pd  # whoever passes a DataFrame has it

        return pd.concat([first, second])
    if sp.issparse(first) or sp.issparse(second):
        return sp.vstack([sp.csr_array(first), sp.csr_array(second)]).tocsr()
    first, second = np.asarray(first), np.asarray(second)
    second = second.reshape(len(second), *first.shape[1:]) if second[:1].size == first[:1].size else second
    return np.concatenate([first, second])


def length(argument):
    """The number of records of one data argument."""
    return argument.shape[0] if hasattr(argument, "shape") and argument.shape else len(argument)
