"""What a computation would take, against the memory of the machine."""

import os

from strat.errors import OptionError


def check_memory(what, size, way="a sparser graph takes less"):
    """Raise an OptionError where something of `size` bytes cannot fit into the memory of the machine.

    Parameters
    ----------
    what : str
        What takes the memory, for the message.
    size : float
        Bytes.
    way : str
        The way out.
    """
    try:
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on every system
        return
    if size > whole:
        raise OptionError(
            f"{what} would take {size / 1e9:,.0f} GB of memory, and the machine has {whole / 1e9:,.0f} GB: {way}."
        )
