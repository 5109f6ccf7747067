"""Progress of a run: log lines every so often, and a bar on a terminal."""

import logging
import sys
from contextlib import ExitStack, contextmanager, suppress

logger = logging.getLogger("strat")
SECONDS = 2.0  # between two log lines


@contextmanager
def listening(verbose, stream=True):
    """If `verbose`, let the logger "strat" pass INFO messages inside; with `stream`, to stderr if it has no handler."""
    level, handler = logger.level, None
    if verbose and not logger.isEnabledFor(logging.INFO):
        logger.setLevel(logging.INFO)
    if verbose and stream and not logger.hasHandlers():
        handler = logging.StreamHandler()
        logger.addHandler(handler)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


class Progress(ExitStack):
    """Context in which `update` reports, if `verbose`: by a bar on a terminal with tqdm, else by lines to the logger."""

    def __init__(self, name, max_iter, verbose):
        super().__init__()
        self.name, self.max_iter, self.verbose = name, max_iter, verbose
        self.bar, self.reported = None, -SECONDS

    def __enter__(self):
        if self.verbose and sys.stderr.isatty():
            with suppress(ImportError):
                from tqdm import tqdm

                bar = tqdm(total=self.max_iter, desc=self.name, file=sys.stderr, leave=False)
                self.bar = self.enter_context(bar)
        self.enter_context(listening(self.verbose, stream=self.bar is None))
        return self

    def update(self, state, last=False):
        """Report a state every so often, and the last one."""
        if self.verbose and (last or state.seconds - self.reported >= SECONDS):
            self.reported = state.seconds
            residual = "" if state.residual is None else f"  residual {max(state.residual.values()):.1e}"
            text = f"iteration {state.iteration}  objective {state.objective:.9g}{residual}"
            self.step(state.iteration, f"{text}  {state.seconds:.1f} s")

    def step(self, done, text):
        """Report that `done` steps are complete, with a text on the last."""
        if not self.verbose:
            return
        if self.bar is not None:
            self.bar.update(done - self.bar.n)
            self.bar.set_postfix_str(text)
        logger.info("%s  %s", self.name, text)
