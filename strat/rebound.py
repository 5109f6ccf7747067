"""A program bound to records for many values of its hyperparameters."""

from collections import OrderedDict

import numpy as np


class Rebound:
    """What a program was bound to, bound again only for values of its hyperparameters that are not kept.

    Parameters
    ----------
    program : Program
        Its hyperparameters decide.
    bind : callable
        ``bind(values)``, with values of hyperparameters by name.
    keep : int
        For how many values the answer is kept.
    """

    def __init__(self, program, bind, keep=1):
        self.parameters, self.bind, self.keep = program.hyperparameters, bind, keep
        self._bound = OrderedDict()

    def __call__(self, values):
        """What ``bind(values)`` returns."""
        key = tuple(_bytes(values.get(p.name(), p.value)) for p in self.parameters)
        if key not in self._bound:
            self._bound[key] = self.bind(values)
            while len(self._bound) > self.keep:
                self._bound.popitem(last=False)
        self._bound.move_to_end(key)
        return self._bound[key]


def _bytes(value):
    value = value.toarray() if hasattr(value, "toarray") else value
    return None if value is None else np.asarray(value, dtype=float).tobytes()
