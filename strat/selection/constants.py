"""Constants of a model by name, as ``get_params`` has them, for refits."""

import numpy as np
from sklearn.base import clone

from strat.errors import OptionError


def full_name(model, key):
    """The name of a constant in ``get_params``, None where the model has no such constant.

    Parameters
    ----------
    model : StratifiedModel
        The model.
    key : str
        ``scale``, ``scale__FACTOR``, ``graph_regularizer__lambda1``, ``base__NAME``, or just ``lambda1`` or ``NAME``.

    Returns
    -------
    str or None
        The name.
    """
    own = {f"base__{name}" for name in model.base.hyperparameters}
    if not model.shared:
        own |= {f"graph_regularizer__{name}" for name in model.graph_regularizer.get_params()}
        own |= (
            {"scale", *(f"scale__{factor}" for factor in model._scales())}
            if model.graph is not None
            else set()
        )
    return next((name for name in (key, f"graph_regularizer__{key}", f"base__{key}") if name in own), None)


def for_refit(model, constants):
    """Keywords of ``Refits.fit`` for constants by their full names.

    Parameters
    ----------
    model : StratifiedModel
        The model, whose other constants stay.
    constants : dict
        Values by full name.

    Returns
    -------
    dict
        ``scale``, ``values``, ``graph_regularizer``, where they are needed.
    """
    given, scales, regularizer = {}, {}, {}
    for name, value in constants.items():
        prefix, _, rest = name.partition("__")
        if name == "scale":
            given["scale"] = value
        elif prefix == "scale":
            scales[rest] = value
        elif prefix == "base":
            given.setdefault("values", {})[rest] = value
        else:
            regularizer[rest] = value
    if scales:
        given["scale"] = {**model._scales(), **scales}
    if regularizer:
        given["graph_regularizer"] = clone(model.graph_regularizer).set_params(**regularizer)
    return given


def read_grid(grid, models):
    """A grid as a list of dicts, checked.

    Parameters
    ----------
    grid : dict or list of dict
        Values to try by name, every combination of them; of several dicts, each by itself.
    models : iterable of StratifiedModel
        The models that have these constants.

    Returns
    -------
    list of dict
        The grid.

    Raises
    ------
    OptionError
        For a name that no model has, or values that are no list.
    """
    grids = [grid] if isinstance(grid, dict) else grid
    if not isinstance(grids, (list, tuple)) or not grids or not all(isinstance(g, dict) and g for g in grids):
        raise OptionError(
            'grid must be a dict {"scale__FACTOR": [values to try], …} or a list of such dicts.'
        )
    for key, values in (item for g in grids for item in g.items()):
        if isinstance(values, (str, bytes)) or np.ndim(values) == 0 or not len(values):
            raise OptionError(f"grid[{key!r}] must be a list of values to try, not {values!r}.")
        if not any(full_name(model, key) for model in models):
            known = dict.fromkeys(name for model in models for name in _known(model))
            raise OptionError(
                f"grid: no model has a constant {key!r}; known are {', '.join(known) or 'none'}."
            )
    return list(grids)


def grid_points(model, grids, prefix=""):
    """The part of a grid that concerns a model, in an order in which neighbours differ in one constant.

    Parameters
    ----------
    model : StratifiedModel
        The model.
    grids : list of dict
        Values by name.
    prefix : str
        Only constants whose full name begins so.

    Returns
    -------
    list of dict
        Constants by full name; one empty dict where no constant concerns the model.
    """
    points = []
    for grid in grids:
        named = [(full_name(model, key), list(values)) for key, values in grid.items()]
        points += snake({name: values for name, values in named if name and name.startswith(prefix)})
    return [point for k, point in enumerate(points) if point not in points[:k]]


def snake(grid):
    """Every combination of a dict of lists, each differing from the one before in one value."""
    points = [{}]
    for name, values in grid.items():
        points = [
            {**point, name: value}
            for k, point in enumerate(points)
            for value in (values if k % 2 == 0 else values[::-1])
        ]
    return points


def _known(model):
    names = [
        name for name in model.get_params() if name.startswith(("base__", "scale__", "graph_regularizer__"))
    ]
    return ["scale", *names] if model.graph is not None else names
