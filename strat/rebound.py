"""A program bound to records for many values of its hyperparameters."""

import numpy as np


class Rebound:
    """What a program was bound to last, bound again only when a hyperparameter in it has another value.

    Parameters
    ----------
    program : Program
        Its hyperparameters decide.
    bind : callable
        ``bind(values)``, with values of hyperparameters by name.
    """

    def __init__(self, program, bind):
        self.parameters, self.bind = program.hyperparameters, bind
        self._key = self._bound = None

    def __call__(self, values):
        """What ``bind(values)`` returns."""
        key = tuple(_bytes(values.get(p.name(), p.value)) for p in self.parameters)
        if key != self._key or self._bound is None:
            self._bound, self._key = self.bind(values), key
        return self._bound


def _bytes(value):
    value = value.toarray() if hasattr(value, "toarray") else value
    return None if value is None else np.asarray(value, dtype=float).tobytes()
