"""Constants of a model by their names in ``get_params``, read from a grid."""

from itertools import product

import numpy as np

from strat.errors import OptionError
from strat.model.estimator import StratifiedModel


def names_of(model):
    """The names of a model's constants in ``get_params``."""
    names = []
    if not isinstance(model, StratifiedModel):
        return names
    if not model.shared:
        if model.graph is not None:
            names += ["scale", *(f"scale__{factor}" for factor in model._scales())]
        names += [f"graph_regularizer__{name}" for name in model.graph_regularizer.get_params()]
    return names + [f"base__{name}" for name in model.base.hyperparameters]


def full_name(model, key):
    """The name in ``get_params`` of a constant such as ``lambda1`` or ``NAME``, None where the model has no such constant."""
    names = names_of(model)
    return next((name for name in (key, f"graph_regularizer__{key}", f"base__{key}") if name in names), None)


def read_grid(grid, models):
    """A grid as a list of dicts, or an OptionError for a name that no model has, or values that are no list."""
    grids = [grid] if isinstance(grid, dict) else grid
    if not isinstance(grids, (list, tuple)) or not grids or not all(isinstance(g, dict) and g for g in grids):
        raise OptionError(
            'grid must be a dict {"scale__FACTOR": [values to try], …} or a list of such dicts.'
        )
    for key, values in (item for g in grids for item in g.items()):
        if isinstance(values, (str, bytes)) or np.ndim(values) == 0 or not len(values):
            raise OptionError(f"grid[{key!r}] must be a list of values to try, not {values!r}.")
        if not any(full_name(model, key) for model in models):
            known = dict.fromkeys(name for model in models for name in names_of(model))
            raise OptionError(
                f"grid: no model has a constant {key!r}; known are {', '.join(known) or 'none'}."
            )
    return list(grids)


def grid_points(model, grids, prefix=""):
    """The part of a grid that concerns a model: distinct dicts of constants by full name.

    There is one empty dict where no constant concerns it. `prefix` restricts the constants to those whose full name
    begins so.
    """
    points = []
    for grid in grids:
        named = {full_name(model, key): values for key, values in grid.items()}
        named = {name: values for name, values in named.items() if name and name.startswith(prefix)}
        points += [dict(zip(named, values, strict=True)) for values in product(*named.values())]
    return [point for k, point in enumerate(points) if point not in points[:k]]
