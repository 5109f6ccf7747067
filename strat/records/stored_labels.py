"""Labels as JSON and back: text, numbers and dates of a fixed list of types, and tuples and sets of them."""

import datetime

import numpy as np

from strat.errors import OptionError

#: What reads the text of each type that JSON lacks.
_READERS = {
    "date": datetime.date.fromisoformat,
    "datetime": datetime.datetime.fromisoformat,
    "datetime64": np.datetime64,
}
_GROUPS = {"tuple": tuple, "frozenset": frozenset}


def encoded(label):
    """A label in JSON's types."""
    if isinstance(label, (tuple, frozenset)):
        return {"tuple" if isinstance(label, tuple) else "frozenset": [encoded(part) for part in label]}
    if isinstance(label, np.datetime64):
        return {"datetime64": str(label)}
    if isinstance(label, datetime.date) and not getattr(label, "nanosecond", 0):
        return {"datetime" if isinstance(label, datetime.datetime) else "date": label.isoformat()}
    if isinstance(label, np.generic):
        label = label.item()
    if label is not None and not isinstance(label, (str, int, float, bool)):
        raise OptionError(
            f"the stratum label {label!r} cannot be stored; use numbers, text, dates or tuples of them."
        )
    return label


def decoded(entry):
    """The label that `encoded` wrote; a ValueError where it wrote no such thing."""
    if not isinstance(entry, dict | list):
        return entry
    kind, value = next(iter(entry.items())) if isinstance(entry, dict) and len(entry) == 1 else ("", None)
    if kind in _GROUPS and isinstance(value, list):
        return _GROUPS[kind](map(decoded, value))
    if kind in _READERS and isinstance(value, str):
        return _READERS[kind](value)
    raise ValueError(f"{entry!r:.60} is no label of a known type")
