"""Checkpoints: the whole state of a run in one npz file, written so that a kill never leaves half a file."""

import os
import time
import zipfile
from pathlib import Path

import numpy as np

from strat.errors import OptionError

SECONDS = 10.0  # between two writes


class Checkpoint:
    """A checkpoint file; without a path, all methods do nothing.

    Parameters
    ----------
    path : path or None
    fingerprint : str
        Identifies declaration, data and solver: only a file with the same one is resumed.
    """

    def __init__(self, path, fingerprint):
        if not isinstance(path, str | os.PathLike | None):
            raise OptionError(f"checkpoint = {path!r} is no path. Give the name of a file, or None.")
        self.path = None if path is None else Path(path)
        if self.path is not None and not self.path.parent.is_dir():
            raise OptionError(
                f"checkpoint = {str(path)!r} is in a folder that does not exist. Make it, or give another path."
            )
        self.fingerprint = fingerprint
        self.written = time.monotonic()

    def load(self):
        """The saved state as a dict of arrays, or None where there is no file."""
        if self.path is None or not self.path.exists():
            return None
        try:
            with np.load(self.path, allow_pickle=False) as file:
                state = dict(file)
        except (OSError, EOFError, ValueError, zipfile.BadZipFile):
            state = {}
        if str(state.get("fingerprint", "")) != self.fingerprint or "fingerprint" not in state:
            raise OptionError(
                f"checkpoint = {str(self.path)!r} holds no state of this fit (declaration, data, graph and "
                "steps must be the same). Give another path, or remove the file to start afresh."
            )
        return state

    def save(self, state, force=False):
        """Write the state (a function without arguments that returns it) if the last write is long ago."""
        if self.path is None or not (force or time.monotonic() - self.written > SECONDS):
            return
        temporary = self.path.with_name(self.path.name + ".tmp")
        with open(temporary, "wb") as file:
            np.savez(file, fingerprint=self.fingerprint, **state())
        os.replace(temporary, self.path)
        self.written = time.monotonic()

    def remove(self):
        """Delete the file: the fit is done."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
