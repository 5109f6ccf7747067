"""A program bound to records for many values of its hyperparameters."""

from collections import OrderedDict

import numpy as np


class BindingCache:
    """What a program was bound to, bound again only for values of its hyperparameters that are not kept.

    Parameters
    ----------
    program : Program
        Its hyperparameters decide.
    bind : callable
        ``bind(values)``, with values of hyperparameters by name.
    keep : int
        For how many values the answer is kept.
    answers : OrderedDict, optional
        What another `BindingCache` of the same program and records has kept.
    """

    def __init__(self, program, bind, keep=1, answers=None):
        self.parameters, self.bind, self.keep = program.hyperparameters, bind, keep
        self.answers = OrderedDict(answers or ())

    def __call__(self, values):
        """What ``bind(values)`` returns."""
        key = tuple(_bytes(values.get(p.name(), p.value)) for p in self.parameters)
        if key not in self.answers:
            self.answers[key] = self.bind(values)
            while len(self.answers) > self.keep:
                self.answers.popitem(last=False)
        self.answers.move_to_end(key)
        return self.answers[key]


def _bytes(value):
    value = value.toarray() if hasattr(value, "toarray") else value
    return None if value is None else np.asarray(value, dtype=float).tobytes()
