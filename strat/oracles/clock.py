"""The deadline of the computation in progress, which all long operations inside it observe."""

import math
import time
from contextlib import contextmanager
from contextvars import ContextVar

from strat.errors import OptionError

_END = ContextVar("end", default=math.inf)


class OutOfTime(Exception):
    """The time has run out within a step; the result reached before the step counts."""


class Lost(Exception):
    """Access to the records is lost; the result reached before counts."""


@contextmanager
def within(seconds, started=None):
    """Give the block a deadline `seconds` (None for none) after `started`, by ``time.perf_counter()``, by default after now."""
    started = time.perf_counter() if started is None else started
    end = math.inf if seconds is None else started + seconds
    token = _END.set(min(end, _END.get()))
    try:
        yield
    finally:
        _END.reset(token)


def seconds_left():
    """Seconds until the deadline; 0 or negative once it has passed."""
    return _END.get() - time.perf_counter()


class Clock:
    """The seconds since the start, and how the work ended: status "finished", "time_limit" or "interrupted"."""

    seconds = property(lambda self: time.time() - self.started)  # the same clock in every process
    #: Seconds that are left, above 0; None without a limit.
    left = property(lambda self: None if self.limit is None else max(self.limit - self.seconds, 1e-3))

    def __init__(self, limit=None):
        if limit is not None and (isinstance(limit, bool | str) or not limit > 0):
            raise OptionError(f"time_limit must be a number of seconds above 0, or None, not {limit!r}.")
        self.started, self.limit, self.status = time.time(), limit, "finished"

    def check(self, share=1.0):
        """Raise OutOfTime where this share of the time limit has passed."""
        if self.limit is not None and self.seconds > share * self.limit:
            raise OutOfTime

    @contextmanager
    def interruptible(self):
        """End the block, and note why, where the time is up or Ctrl-C is pressed."""
        try:
            yield
        except OutOfTime:
            self.status = "time_limit"
        except KeyboardInterrupt:
            self.status = "interrupted"
