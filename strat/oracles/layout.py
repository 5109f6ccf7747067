"""Where each variable lies in the flat parameter vector of a stratum."""

import numpy as np

from strat.errors import DataError, OptionError, ShapeError


class Layout:
    """Variables of one stratum, flattened in C order and concatenated; `shapes` are their shapes by name, in order."""

    def __init__(self, shapes):
        self.shapes = {name: tuple(shape) for name, shape in shapes.items()}
        sizes = [int(np.prod(shape, dtype=int)) for shape in self.shapes.values()]
        ends = np.cumsum([0, *sizes]).tolist()
        self.slices = dict(zip(self.shapes, map(slice, ends, ends[1:]), strict=True))
        self.n = ends[-1]

    def unpack(self, theta):
        """(K, n) array to ``{name: (K, *shape)}``; the arrays are copies."""
        parts = {name: theta[:, place].copy() for name, place in self.slices.items()}
        return {name: part.reshape(len(theta), *self.shapes[name]) for name, part in parts.items()}

    def pack(self, theta):
        """``{name: (K, *shape)}``, or the bare array of the only variable, to (K, n)."""
        if not isinstance(theta, dict):
            if len(self.shapes) != 1:
                raise ShapeError(
                    f"there are {len(self.shapes)} variables ({', '.join(self.shapes)}); give a dict with an array "
                    f"(K, *shape) for each, not one bare array."
                )
            theta = {next(iter(self.shapes)): theta}
        self.check_names(theta)
        if missing := [name for name in self.shapes if name not in theta]:
            raise ShapeError(f"no value was given for the variable {missing[0]!r}; give a (K, *shape) array.")
        arrays = {name: _numbers(name, theta[name]) for name in self.shapes}
        counts = {a.shape[0] if a.ndim else None for a in arrays.values()}
        for name, array in arrays.items():
            if array.ndim == 0 or array.shape[1:] != self.shapes[name] or len(counts) > 1:
                whole = ", ".join(["K", *map(str, self.shapes[name])])
                raise ShapeError(
                    f"theta[{name!r}] has shape {array.shape}, but the variable has shape {self.shapes[name]}: "
                    f"expected ({whole}), one entry for each of the K strata, the same K for all variables."
                )
        return np.concatenate([a.reshape(len(a), -1) for a in arrays.values()], axis=1)

    def check_names(self, theta):
        """Raise OptionError for a name that is not a variable."""
        if unknown := [name for name in theta if name not in self.shapes]:
            names = ", ".join(self.shapes)
            raise OptionError(f"{unknown[0]!r} is not a variable of the model; its variables are {names}.")


def _numbers(name, values):
    try:
        array = np.asarray(values)
        array = array.astype(float) if array.dtype.kind in "fiubO" else None
    except (TypeError, ValueError):
        array = None
    if array is None:
        raise DataError(f"theta[{name!r}] holds something that is no real number; give an array of numbers.")
    if not np.isfinite(array).all():
        raise DataError(f"theta[{name!r}] holds NaN or infinite values; a point must be finite.")
    return array
