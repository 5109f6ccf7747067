"""What all losses do with their arguments: check them, and document them."""

import functools
import inspect
from collections.abc import Callable
from typing import TypeVar

import cvxpy as cp
import numpy as np

from strat.errors import DeclarationError, OptionError, ShapeError, type_name
from strat.oracles.base import floats

F = TypeVar("F", bound=Callable)
#: What examples declare that declare nothing.
DECLARED = """>>> theta, x = cp.Variable(3, name="theta"), cp.Parameter(3, name="x")
>>> b, y = cp.Variable(name="b"), cp.Parameter(name="y")
"""


def named_loss(check: Callable, **arguments: str) -> Callable[[F], F]:
    """Make a loss of a function whose docstring has three parts: summary, formula and example.

    `check` looks at the arguments, and `arguments` say of each its type and, after a colon, its meaning.
    """

    def decorate(f):
        @functools.wraps(f)
        def checked(*args, **options):
            given = inspect.signature(f).bind(*args, **options).arguments
            check(f.__name__, given)
            return f(**given)

        if f.__doc__:  # python -OO leaves none
            summary, formula, example = inspect.getdoc(f).split("\n\n")
            example = example if "Variable" in example else DECLARED + example
            parameters = [f"{name} : " + text.replace(": ", "\n    ", 1) for name, text in arguments.items()]
            checked.__doc__ = "\n".join(
                [f"{summary}\n\nParameters\n----------", *parameters, "\nReturns\n-------\ncvxpy.Expression"]
                + [f"    {formula}\n\nExamples\n--------\n>>> import cvxpy as cp, strat\n{example}\n"]
            )
        return checked

    return decorate


def _shapes(loss, given, *names):
    """The shapes of some arguments by name, which are expressions or numbers."""
    for name in names:
        if not isinstance(given[name], cp.Expression) and np.asarray(given[name]).dtype.kind not in "fiub":
            raise DeclarationError(
                f"{name} of losses.{loss} must be a CVXPY expression, such as a Parameter or x @ theta, but it is "
                f"{type_name(given[name])}."
            )
    return {name: np.shape(given[name]) for name in names}


def alike(loss, given):
    """Target and prediction have one shape: broadcasting would add terms in silence."""
    u, v = _shapes(loss, given, "y", "z").values()
    if u != v and not (np.prod(u) == np.prod(v) == 1) and not (loss == "pinball" and u == ()):
        raise ShapeError(
            f"losses.{loss} needs y and z of one shape, but y has shape {u} and z has {v}. Declare the data of one "
            f"record with the shape of its prediction."
        )


def scalars(loss, given):
    """All arguments are one number of one record each."""
    for name, shape in _shapes(loss, given, *given).items():
        if np.prod(shape) != 1:
            raise ShapeError(
                f"losses.{loss} is of one number: {name} must be a scalar, but it has shape {shape}. The loss is that of "
                f"one record; for several outputs sum it: sum(losses.{loss}(…[j], …[j]) for j in range({shape[0]}))."
            )


def vectors(loss, given):
    """Arguments other than matrices are vectors of one length d, and matrices are symmetric, (d, d)."""
    shapes = _shapes(loss, given, *(given.keys() - {"S", "R"}))
    if any(len(shape) != 1 for shape in shapes.values()) or len(set(shapes.values())) > 1:
        shown = " and ".join(f"{name} of shape {shapes[name]}" for name in given if name in shapes)
        raise ShapeError(f"losses.{loss} needs vectors of one length (m,), but it was given {shown}.")
    (size,), *_ = shapes.values()
    for name, shape in _shapes(loss, given, *(given.keys() & {"S", "R"})).items():
        if shape != (size, size):
            raise ShapeError(f"losses.{loss} needs {name} of shape {(size, size)}, but it has shape {shape}.")
        if not cp.Expression.cast_to_const(given[name]).is_symmetric():
            raise DeclarationError(
                f"losses.{loss} needs a symmetric {name}: declare it as cp.Variable(({size}, {size}), PSD=True)."
            )


def number(loss, name, value, high=np.inf):
    """Return a constant, an array for a list, or raise where it is not between 0 and `high`."""
    if isinstance(value, cp.Expression) and (high < np.inf or value.is_nonneg()):
        return value
    array = floats(value)
    if not np.all((array >= 0) & (array <= high) & np.isfinite(array)):
        range_ = "between 0 and 1 or a Parameter" if high == 1 else "at least 0 or a Parameter(nonneg=True)"
        raise OptionError(f"{name} of losses.{loss} must be a number {range_}, but it is {value!r}.")
    return float(array) if array.ndim == 0 else array
