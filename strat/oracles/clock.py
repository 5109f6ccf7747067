"""The time by which the computation that is going on has to end, for all that takes long inside it."""

import math
import time
from contextlib import contextmanager
from contextvars import ContextVar

_END = ContextVar("end", default=math.inf)


class OutOfTime(Exception):
    """The time has run out within a step; what was reached before it counts."""


class Lost(Exception):
    """What holds the records is lost; what was reached before it counts."""


@contextmanager
def within(seconds, started=None):
    """Let the computation inside end so many seconds (None for any) after `started`, by ``time.perf_counter()``, or now."""
    started = time.perf_counter() if started is None else started
    end = math.inf if seconds is None else started + seconds
    token = _END.set(min(end, _END.get()))
    try:
        yield
    finally:
        _END.reset(token)


def seconds_left():
    """Seconds until the end; none or fewer where it has passed."""
    return _END.get() - time.perf_counter()
