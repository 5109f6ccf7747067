"""Labels as JSON and back: text, bytes, numbers, dates, pandas' periods and intervals, and tuples and sets of them."""

import datetime
from functools import partial

import numpy as np

from strat.errors import OptionError, optional

_pandas = partial(optional, "pandas", "a label of pandas' types", "pandas")
#: What reads the text of each type that JSON lacks.
_READERS = {
    "date": datetime.date.fromisoformat,
    "datetime": datetime.datetime.fromisoformat,
    "datetime64": np.datetime64,
    "bytes": bytes.fromhex,
    "period": lambda text: _pandas().Period(ordinal=int(text.split()[0]), freq=text.split()[1]),
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
    if isinstance(label, bytes):
        return {"bytes": bytes(label).hex()}
    kind = type(label).__name__ if type(label).__module__.startswith("pandas") else ""
    if kind == "Period":
        return {"period": f"{label.ordinal} {label.freqstr}"}
    if kind == "Interval":
        return {"interval": [encoded(label.left), encoded(label.right), label.closed]}
    if isinstance(label, np.generic):
        label = label.item()
    if label is not None and not isinstance(label, (str, int, float, bool)):
        raise OptionError(
            f"the stratum label {label!r} cannot be stored; use numbers, text, dates, periods, intervals or tuples of them."
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
    if kind == "interval" and isinstance(value, list) and len(value) == 3:
        ends = map(decoded, value[:2])
        ends = (end if isinstance(end, int | float) else _pandas().Timestamp(end) for end in ends)
        return _pandas().Interval(*ends, closed=value[2])
    raise ValueError(f"{entry!r:.60} is no label of a known type")
