"""Progress through the package's logger, which a user who asks for it sees."""

import logging

from strat.tuning.descent import logger


class Listening:
    """Context in which the logger "strat" lets information through, to stderr where nobody else listens.

    Parameters
    ----------
    verbose : bool
        Otherwise nothing changes.
    """

    def __init__(self, verbose):
        self.verbose, self.handler = verbose, None

    def __enter__(self):
        if not self.verbose:
            return self
        self.level = logger.level
        if not logger.isEnabledFor(logging.INFO):
            logger.setLevel(logging.INFO)
        if not logger.hasHandlers():
            self.handler = logging.StreamHandler()
            logger.addHandler(self.handler)
        return self

    def __exit__(self, *exception):
        if not self.verbose:
            return
        logger.setLevel(self.level)
        if self.handler is not None:
            logger.removeHandler(self.handler)
