"""The engine that keeps records on a device, such as a GPU, as arrays of a library of the array API standard."""

from functools import cache, partial

import numpy as np

from strat.errors import OptionError, first_line, optional
from strat.oracles.base import compat, is_elsewhere, is_foreign, namespace
from strat.oracles.shards import Local, LocalSum


class Device(Local):
    """The engine that keeps records on the device of an array, and sums over them there in float64."""

    def __init__(self, array):
        self.xp, self.device = namespace(array), compat().device(array)

    def array(self, values):
        """Numbers as an array on the device, of float32 if that is what they are, or else of float64."""
        xp, foreign = self.xp, is_foreign(values)
        dtype = xp.float32 if values.dtype == (xp.float32 if foreign else np.float32) else xp.float64
        values = values if foreign else np.require(values, requirements=["C", "W"])  # torch takes no other
        return xp.asarray(values, dtype=dtype, device=self.device)

    def rows(self, array, places):
        """Some rows of an array on the device, as (len(places), size)."""
        found = self.xp.take(array, self.xp.asarray(places, device=self.device), axis=0)
        return self.xp.reshape(found, (len(places), -1))

    def start(self, make, chunks, K):
        """The sum over ``make(chunk)``, made once and kept."""
        shards = [cache(partial(make, chunk)) for chunk in chunks()]
        return LocalSum(lambda: shards, K)


def device_of(device, data, engine=None):
    """The `Device` that the arguments of ``fit`` mean: by default that of data in memory that NumPy cannot read."""
    if engine is not None:
        raise OptionError("device= and engine= both say where records are kept; pass only one of them.")
    found = next(filter(is_foreign, data), None)
    xp = namespace(optional("torch", "device=", "device").empty(0) if found is None else found)
    try:
        device = device or compat().device(next(filter(is_elsewhere, data)))
        return Device(xp.empty(0, dtype=xp.float64, device=device))
    except Exception as error:  # each library has its own
        message = (
            f"device={device!r} cannot be used with {xp.__name__}, or has no float64: {first_line(error)}"
        )
        raise OptionError(message) from None
