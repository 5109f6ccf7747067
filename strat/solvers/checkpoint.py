"""Checkpoints: the whole state of a run in one file, from which only the same fit resumes."""

import time

from strat.errors import DataWarning, OptionError
from strat.records.archive import as_path, fingerprint, read_archive, write_archive

FORMAT = 5  # to be raised when the entries of a state change, or their meaning
SECONDS = 10.0  # between two writes


class Checkpoint:
    """A checkpoint file for one `fit`, known by its fingerprint; without a path, all methods do nothing."""

    def __init__(self, path, fit):
        self.path = None if path is None else as_path(path, "checkpoint")
        if self.path is not None and not self.path.parent.is_dir():
            where = "is in a folder that does not exist. Make it, or give another path."
            raise OptionError(f"checkpoint = {str(path)!r} {where}")
        self.fingerprint = None if path is None else fingerprint(FORMAT, fit)
        self.written = time.monotonic()

    def load(self):
        """The saved state as a dict of arrays, or None where there is no file."""
        if self.path is None:
            return None
        try:
            state = read_archive(self.path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise self.refusal(error) from error
        if str(state.pop("fingerprint", None)) != self.fingerprint:
            raise self.refusal(
                "it is of another declaration, constants, data, graph, start or solver, or another version's"
            )
        return state

    def refusal(self, why):
        """The error for a file that holds no state of this fit."""
        way = "Give another path, or remove the file to start afresh."
        return OptionError(f"checkpoint = {str(self.path)!r} holds no state of this fit: {why}. {way}")

    def save(self, state, force=False):
        """Write what ``state()`` returns, if the last write was more than SECONDS ago or if `force`."""
        if self.path is None or not (force or time.monotonic() - self.written > SECONDS):
            return
        self.written = time.monotonic()
        try:
            write_archive(self.path, {"fingerprint": self.fingerprint, **state()})
        except OSError as error:
            self._warn("written", error)

    def remove(self):
        """Delete the file: the fit is done."""
        try:
            if self.path is not None:
                self.path.unlink(missing_ok=True)
        except OSError as error:
            self._warn("removed", error)

    def _warn(self, done, error):
        DataWarning.warn(
            f"checkpoint = {str(self.path)!r} cannot be {done} ({error.strerror or error}). The fit goes on without it; "
            f"to keep its state, make room or give a path in a folder where you may write."
        )
