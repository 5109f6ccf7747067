"""What a computation would take, against the memory of the machine."""

import os

from strat.errors import OptionError


def check_memory(what, size, way="a sparser graph takes less"):
    """Raise an OptionError where `size` bytes for `what` cannot fit into the machine's memory; `way` is the way out."""
    try:
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on every system
        return
    if size > whole:
        raise OptionError(
            f"{what} would take {size / 1e9:,.0f} GB of memory, and the machine has {whole / 1e9:,.0f} GB: {way}."
        )
