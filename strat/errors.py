"""Exceptions and warnings of the package.

Every message says what is wrong, where, why, and what to do about it.
"""

import os
import sys
import warnings
from importlib import import_module
from math import inf
from numbers import Integral, Real


class StratError(ValueError):
    """Base class of every error that the package raises on purpose."""


class DeclarationError(StratError):
    """The loss, regularizer, constraints or data were declared in a way that has no meaning."""


class NotConvexError(StratError):
    """An expression is not convex in the variables by CVXPY's rules."""


class NotPerRecordError(StratError):
    """The loss is not the loss of one record: it would couple records."""


class ShapeError(StratError):
    """An expression or an array does not have the shape that the declaration requires."""


class DataError(StratError):
    """Records, weights or strata hold a value that cannot be used."""


class GraphError(StratError):
    """A graph, its labels or its weights cannot be used."""


class NoOracleError(StratError):
    """A solver or a caller needs an oracle that a piece of the program does not have."""


class OptionError(StratError):
    """An option of a model, solver or function is out of its range."""


class StratWarning(UserWarning):
    """Base class of the warnings."""

    @classmethod
    def warn(cls, message):
        """Issue a warning that points to the user's line: the first frame outside the package."""
        frame, level = sys._getframe(1), 2
        while frame.f_back and frame.f_globals["__name__"].startswith("strat."):
            frame, level = frame.f_back, level + 1
        warnings.warn(message, cls, stacklevel=level)


class ConvergenceWarning(StratWarning):
    """A solver stopped before it reached its tolerance."""


class CollapseWarning(StratWarning):
    """A learned graph pulled all strata to one common model."""


class DataWarning(StratWarning):
    """The data are usable, but something about them deserves attention."""


def type_name(value):
    """The type of a value with its article, for messages: "a dict", "an ndarray"."""
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' or name.startswith('ndarray') else 'a'} {name}"


def first_line(error):
    """An exception's type and the first line of its message."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def check_whole(name, value, least):
    """Raise an OptionError unless an argument is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise OptionError(f"{name} must be a whole number of at least {least}, not {value!r}.")


def check_memory(what, size, way="a sparser graph takes less"):
    """Raise an OptionError if `size` bytes for `what` exceed the machine's memory; `way` says what helps."""
    try:
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on every system
        return
    if size > whole:
        raise OptionError(
            f"{what} would take {size / 1e9:,.0f} GB of memory, and the machine has {whole / 1e9:,.0f} GB: {way}."
        )


def is_nonnegative(value):
    """Whether an option is a finite number of at least 0."""
    return isinstance(value, Real) and not isinstance(value, bool) and 0 <= value < inf


def optional(module, what, extra):
    """Import `module`, which `what` needs and which the package's extra `extra` installs."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f'{what} needs {module}: pip install "strat[{extra}]".') from error
