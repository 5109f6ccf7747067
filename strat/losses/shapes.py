"""The checks of the arguments of losses: shapes, symmetry and the ranges of constants."""

import cvxpy as cp
import numpy as np

from strat.errors import DeclarationError, OptionError, ShapeError, type_name


def same_shape(loss, **arguments):
    """Raise unless both arguments have one shape: broadcasting would add terms in silence."""
    (first, u), (second, v) = _shapes(loss, arguments).items()
    if u != v and not (np.prod(u) == np.prod(v) == 1):
        raise ShapeError(
            f"losses.{loss} needs {first} and {second} of one shape, but {first} has shape {u} and {second} has "
            f"{v}. Declare the data of one record with the shape of its prediction."
        )


def scalars(loss, **arguments):
    """Raise unless the arguments are scalars: one number of one record each."""
    for name, shape in _shapes(loss, arguments).items():
        if np.prod(shape) != 1:
            raise ShapeError(
                f"losses.{loss} is of one number: {name} must be a scalar, but it has shape {shape}. The loss is that of "
                f"one record; for several outputs sum it: sum(losses.{loss}(…[j], …[j]) for j in range({shape[0]}))."
            )


def vectors(loss, **arguments):
    """Raise unless the arguments are vectors of one length."""
    shapes = _shapes(loss, arguments)
    if any(len(shape) != 1 for shape in shapes.values()) or len(set(shapes.values())) > 1:
        shown = " and ".join(f"{name} of shape {shape}" for name, shape in shapes.items())
        raise ShapeError(f"losses.{loss} needs vectors of one length (m,), but it was given {shown}.")


def symmetric(loss, name, value, size):
    """Raise unless the argument is a symmetric (size, size) expression."""
    shape = _shapes(loss, {name: value})[name]
    if shape != (size, size):
        raise ShapeError(f"losses.{loss} needs {name} of shape ({size}, {size}), but it has shape {shape}.")
    if not cp.Expression.cast_to_const(value).is_symmetric():
        raise DeclarationError(
            f"losses.{loss} needs a symmetric {name}: declare it as cp.Variable(({size}, {size}), PSD=True)."
        )


def number(loss, name, value, low, high=np.inf):
    """Return the constant, an array for a list, or raise where it is out of its range."""
    if isinstance(value, cp.Expression):
        if low >= 0 and np.isinf(high) and not value.is_nonneg():
            raise OptionError(
                f"{name} of losses.{loss} must be at least 0: declare cp.Parameter(nonneg=True, …)."
            )
        return value
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        array = np.array(np.nan)
    if not np.all((array >= low) & (array <= high) & np.isfinite(array)):
        words = f"at least {low:g}" if np.isinf(high) else f"between {low:g} and {high:g}"
        raise OptionError(
            f"{name} of losses.{loss} must be a number {words} or a Parameter, but it is {value!r}."
        )
    return float(array) if array.ndim == 0 else array


def _shapes(loss, arguments):
    """The shapes of the arguments by name, which are expressions or numbers."""
    for name, value in arguments.items():
        if not isinstance(value, cp.Expression) and np.asarray(value).dtype.kind not in "fiub":
            raise DeclarationError(
                f"{name} of losses.{loss} must be a CVXPY expression, such as a Parameter or x @ theta, but it is "
                f"{type_name(value)}."
            )
    return {name: np.shape(value) for name, value in arguments.items()}
