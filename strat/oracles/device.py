"""Arrays of any library of the array API standard (data-apis.org/array-api), such as torch tensors on a GPU."""

from functools import cache, partial

import numpy as np

from strat.errors import OptionError, first_line, optional
from strat.oracles.shards import Local, LocalSum

HOST = 1  # DLPack's number of the memory that NumPy reads


def compat():
    """The package that gives every library the names of the standard."""
    return optional("array_api_compat", "records on a device", "device")


def is_foreign(array):
    """Whether something is an array of another library than NumPy, and no column of a table."""
    if isinstance(array, np.ndarray):
        return False
    return hasattr(array, "__dlpack_device__") and not hasattr(array, "to_numpy")


def is_elsewhere(array):
    """Whether something is an array in memory that NumPy cannot read."""
    return is_foreign(array) and array.__dlpack_device__()[0] != HOST


def namespace(array):
    """The functions of an array's library."""
    return compat().array_namespace(array) if is_foreign(array) else np


def host(array):
    """The array in NumPy."""
    if not is_foreign(array):
        return array
    return np.from_dlpack(compat().to_device(array, "cpu") if is_elsewhere(array) else array)


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
    """The `Device` that the arguments of ``fit`` mean; None where the records are in memory that NumPy reads."""
    there = next(filter(is_elsewhere, data), None)
    if device is None and there is None:
        return None
    if engine is not None:
        raise OptionError("device= and engine= both say where records are kept; pass only one of them.")
    found = next(filter(is_foreign, data), None)
    xp = namespace(optional("torch", "device=", "device").empty(0) if found is None else found)
    try:
        return Device(xp.empty(0, dtype=xp.float64, device=device or compat().device(there)))
    except Exception as error:  # each library has its own
        raise OptionError(
            f"device={device!r} cannot be used with {xp.__name__}, or has no float64: {first_line(error)}"
        ) from None
