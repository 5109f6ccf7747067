"""Splitters of records for scikit-learn: folds that spread every stratum evenly, and origins that roll through time."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.model_selection import BaseCrossValidator

from strat.errors import DataError, OptionError, check_whole
from strat.records.labels import read_labels


class StrataSplitter(BaseCrossValidator):
    """Base class: the strata are the ``groups`` of ``split``, or columns of X named in the constructor."""

    __metadata_request__split = {"groups": True}

    def split(self, X: ArrayLike, y: Any = None, groups: Any = None) -> Iterator:
        """Yield training and held-out positions.

        Parameters
        ----------
        X : array-like
            The records; only their number matters, and the columns that ``strata`` names.
        y : object
            Not used.
        groups : (N,) sequence, optional
            Label of each record, or names of columns of X.

        Yields
        ------
        train, test : ndarray of int
            Positions of records.
        """
        if self.strata is None and groups is None:
            raise DataError(
                f"{type(self).__name__} splits by strata, but none were given: pass groups=, one label per record, "
                f"or name columns of a DataFrame X in {type(self).__name__}(strata=…)."
            )
        N = None if X is None else X.shape[0] if hasattr(X, "shape") else len(X)
        for train, test in self._parts(read_labels(groups, X, N, declared=self.strata), X):
            yield np.flatnonzero(train), np.flatnonzero(test)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Give the number of splits.

        Parameters
        ----------
        X, y, groups : object
            Not used.

        Returns
        -------
        int
            The number of splits.
        """
        return self.n_splits


class StrataKFold(StrataSplitter):
    """K folds of equal size over which the records of every stratum are spread evenly.

    Where a stratum has two records or more, every training part has some of them. The only record of a stratum is held
    out once like any other; a model with a graph then predicts for it from its neighbours.

    Parameters
    ----------
    n_splits : int
        Number of folds, at least 2.
    strata : str or list of str, optional
        Columns of a DataFrame X that hold the strata, where ``groups`` is not given.
    random_state : int
        Seed: which records of a stratum go to which fold.

    Examples
    --------
    >>> import strat
    >>> folds = strat.StrataKFold(3)
    >>> z = ["a", "a", "a", "b", "b", "c"]
    >>> [[z[i] for i in test] for _, test in folds.split(z, groups=z)]
    [['a', 'b'], ['a', 'b'], ['a', 'c']]
    """

    def __init__(self, n_splits: int = 5, *, strata: Any = None, random_state: int = 0) -> None:
        self.n_splits, self.strata, self.random_state = n_splits, strata, random_state

    def _parts(self, labels, X):
        check_whole("n_splits", self.n_splits, 2)
        N, n = len(labels), self.n_splits
        if n > N:
            raise DataError(f"{N} records cannot be spread over {n} folds; choose at most {N}.")
        rng = np.random.default_rng(self.random_state)
        # Dealing out the records of all strata in one sequence spreads each stratum and keeps the folds equal in size.
        order = rng.permutation(N)
        order = order[np.argsort(labels.codes[order], kind="stable")]
        fold = np.empty(N, dtype=int)
        fold[order] = np.arange(N) % n
        for k in range(n):
            yield fold != k, fold == k


class RollingOrigin(StrataSplitter):
    """Train on everything up to an origin in time, test on what follows; the origin rolls forward.

    The last ``n_splits * horizon`` points in time are tested, each once and ``horizon`` at a time, by fits to all records
    before them.

    Parameters
    ----------
    n_splits : int
        Number of origins, at least 1.
    time : int, str or callable, optional
        Where a record's point in time is: the position in its label, a tuple; the name of a column of X, or of a factor
        of the models' graph in ``search``, ``tune`` and ``compare``; or a function of the label. By default the whole
        label is the point in time.
    horizon : int
        Number of points in time tested after each origin.
    strata : str or list of str, optional
        Columns of a DataFrame X that hold the strata, where ``groups`` is not given.

    Examples
    --------
    >>> import strat
    >>> z = [("Ohio", 2008), ("Iowa", 2012), ("Ohio", 2012), ("Ohio", 2016)]
    >>> [(train.tolist(), test.tolist()) for train, test in strat.RollingOrigin(2, time=1).split(z, groups=z)]
    [([0], [1, 2]), ([0, 1, 2], [3])]
    """

    def __init__(
        self,
        n_splits: int = 5,
        *,
        time: int | str | Callable | None = None,
        horizon: int = 1,
        strata: Any = None,
    ) -> None:
        self.n_splits, self.time, self.horizon, self.strata = n_splits, time, horizon, strata

    def _parts(self, labels, X):
        check_whole("n_splits", self.n_splits, 1)
        check_whole("horizon", self.horizon, 1)
        if isinstance(self.time, str) and self.time in getattr(X, "columns", ()):
            labels = read_labels(X[self.time])
            times = labels.values
        else:
            times = [self._time_of(label) for label in labels.values]
        try:
            points = sorted(set(times))
        except TypeError as error:
            raise DataError(f"the points in time cannot be put in order: {error}.") from None
        tested = self.n_splits * self.horizon
        if tested >= len(points):
            raise DataError(
                f"{self.n_splits} origins with horizon {self.horizon} need more than {tested} points in time, but the "
                f"labels have {len(points)}; choose fewer origins."
            )
        rank = {t: r for r, t in enumerate(points)}
        when = np.array([rank[t] for t in times])[labels.codes]
        for origin in range(len(points) - tested, len(points), self.horizon):
            yield when < origin, (when >= origin) & (when < origin + self.horizon)

    def _time_of(self, label):
        if self.time is None or callable(self.time):
            return label if self.time is None else self.time(label)
        if isinstance(label, tuple):
            with suppress(TypeError, IndexError):
                return label[self.time]
        raise OptionError(
            f"time={self.time!r} is not a position in the label {label!r}, a column of X or a factor of a model's graph; "
            f"give one of these, or a function of the label."
        )
