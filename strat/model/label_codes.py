"""Labels 0 and 1 in a loss for labels -1 and 1: records that count for nothing, found before they mislead."""

import warnings

import numpy as np

from strat.errors import DataWarning
from strat.records.strata import Strata

#: So many records labelled 0 are looked at.
LOOKED_AT = 20


def warn_of_zeros(base, records, values):
    """Warn where the loss of records labelled 0 is one number other than 0, whatever the parameters.

    A mask may be 0 too, but then the loss is 0.

    Parameters
    ----------
    base : BaseModel
        The declaration.
    records : Records
        What was given to fit.
    values : dict
        Hyperparameters by name that go before the Parameters' own.
    """
    for parameter, array in zip(base.data, records.arrays, strict=True):
        if (
            parameter.shape != ()
            or not np.all((array == 0) | (array == 1))
            or not 0 < array.sum() < len(array)
        ):
            continue
        zero = np.flatnonzero(array == 0)
        some = zero[:: -(-len(zero) // LOOKED_AT)]
        strata = Strata(records.strata.labels, records.strata.index[some])
        losses = base.loss_program.evaluation([a[some] for a in records.arrays], strata, values)
        theta = np.random.default_rng(0).uniform(0.1, 0.9, (records.strata.K, base.layout.n))
        # Three points: a loss with a flat part, or an even one, has the same value at two of them.
        one, *others = (losses(point) for point in (theta, -theta, 2 * theta))
        if np.all(one != 0) and np.isfinite(one).all() and all(np.array_equal(one, o) for o in others):
            name = parameter.name()
            warnings.warn(
                f"{name} is 0 or 1, and the loss of the {len(zero)} records where it is 0 does not depend on the "
                f"parameters: they count for nothing. If {name} is a label of a loss for -1 and 1, pass 2 * {name} - 1.",
                DataWarning,
                stacklevel=5,
            )
