"""The codes of labels: the values of a data Parameter that a loss is meant for, found by evaluating it far from the origin."""

from weakref import WeakKeyDictionary

import numpy as np

from strat.errors import DataWarning
from strat.records.strata import Strata

#: Losses are evaluated at these multiples of DIRECTIONS directions; one unbounded below is linear at the far multiples.
STEPS, DIRECTIONS = np.outer([1.0, 1e8], [-2.0, -1.0, 1.0, 2.0]), 8
#: The label values that are tried, and the labels that a loss is meant for if it is bounded below for some of these alone.
CODES = np.array([-1.0, 0.0, 1.0, 2.0])
BOUNDED = {(0.0, 1.0): (0, 1), (0.0, 1.0, 2.0): (0, np.inf), (-1.0, 0.0, 1.0): (-1, 1), (1.0,): "one-hot"}
#: Rounding error allowed in labels and shares, and in losses relative to their size.
ROUNDING = 1e-6

_KNOWN = WeakKeyDictionary()


def label_codes(program, values, records):
    """``{position of a data Parameter: "signs", (low, high) or "one-hot"}`` for those that are labels.

    "signs" marks a loss of a margin, y times a prediction: it is constant and not 0 where y is 0, and does not grow with the
    prediction where y is 1. The other losses are bounded below only for labels in a range, as logistic(m) - y m is for y
    between 0 and 1. `values` are hyperparameters by name, and `records` are arrays, of which only matrices are used. The
    codes do not depend on either, and are cached.
    """
    labels = [i for i, p in enumerate(program.data) if p.ndim < 2]
    if program in _KNOWN or not labels:
        return _KNOWN.get(program, {})
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(DIRECTIONS, program.layout.n))
    directions[::2] = np.abs(directions[::2])  # along which all scores of a softmax fall together
    points = np.multiply.outer(STEPS, directions).reshape(-1, program.layout.n)
    shape = (len(points), len(labels), len(CODES))
    # Every point has one record for each code of each label; all other data are the same.
    arrays = []
    for i, (p, record) in enumerate(zip(program.data, records, strict=True)):
        one = record[:1] if p.ndim > 1 else rng.uniform(0.2, 0.8, (1, *p.shape))
        # Vectors sum to 1, as shares of classes do, for which a softmax loss is bounded below.
        one = one / one.sum() if p.ndim == 1 else one
        array = np.repeat(one, np.prod(shape), axis=0)
        if i in labels:
            own = array.reshape(*shape, -1)[:, labels.index(i)]
            own[..., 0], own[..., 1:] = CODES, 0.0
        arrays.append(array)
    strata = Strata(list(range(len(points))), np.repeat(np.arange(len(points)), shape[1] * shape[2]))
    losses = program.evaluation(arrays, strata, values)(points).reshape(*STEPS.shape, DIRECTIONS, *shape[1:])
    near, far = np.moveaxis(losses, 1, -1)
    # Where losses fall without bound towards either side.
    size = np.abs(np.where(np.isfinite(far), far, 0.0)).max(axis=-1, keepdims=True)
    ends, before = far[..., [0, 3]], far[..., [1, 2]]
    falls, found = ((ends < -ROUNDING * size) & (ends < 1.5 * before)).any(axis=-1), {}
    for k, i in enumerate(labels):
        bounded, vector = ~falls[:, k].any(axis=0), program.data[i].ndim == 1
        kind = BOUNDED.get(tuple(CODES[bounded]))
        if bounded.all() and not vector:
            # A margin's loss is constant but not 0 for the code 0, and does not grow towards one side for the code 1.
            zero, one, side = near[:, k, 1], near[:, k, 2], ends[:, k, 2].min(axis=1)
            falling = np.all(side <= one.min(axis=1)) and one.min() < one.max()
            if falling and np.isfinite(zero).all() and zero.min() == zero.max() != 0:
                kind = "signs"
        if kind is not None and (vector or kind != "one-hot"):
            found[i] = kind
    _KNOWN[program] = found
    return found


def warn_of_label_codes(codes, parameters, arrays, weight):
    """Warn where labels of records with positive weight are not those that the loss is meant for; `codes` by `label_codes`."""
    labels = {i: arrays[i] if weight.all() else arrays[i][weight > 0] for i in codes}
    signs = [i for i, kind in codes.items() if kind == "signs"]
    # Where a product of several data multiplies the prediction, one of them is the label.
    if any({labels[i].min(), labels[i].max()} <= {-1.0, 1.0} for i in signs):
        signs = []
    for i, kind in codes.items():
        alone = kind != "signs" or i in signs[-1:]
        if alone and (text := _wrong(kind, parameters[i].name(), labels[i])):
            DataWarning.warn(text)


def _wrong(kind, name, label):
    """The warning about labels of a kind, or None."""
    low, high = float(label.min()), float(label.max())
    if kind == "one-hot":
        total = np.asarray(label.sum(axis=1)).ravel()
        worst = total[np.abs(total - 1).argmax()]
        if low >= -ROUNDING and abs(worst - 1) <= ROUNDING:
            return None
        return (
            f"the loss is one for classes as rows of zeros with a single 1, but {name} has entries from {low:g} to "
            f"{high:g}, and rows that add up to {worst:g}: there it falls without bound as the parameters grow. Pass "
            f"np.eye({label.shape[1]})[…], indexed by the numbers of the classes."
        )
    least, most = (-1, 1) if kind == "signs" else kind
    inside = low >= least - ROUNDING and high <= most + ROUNDING
    if inside and (kind != "signs" or {low, high} <= {-1.0, 1.0}):
        return None
    two = low < high and bool(np.all((label == low) | (label == high)))
    found = f"{name} is {f'{low:g} or {high:g}' if two else f'from {low:g} to {high:g}'}"
    recoded = f"Pass np.where({name} == {high:g}, 1, {least})."
    if kind == "signs":
        if not two or low % 1 or high % 1:  # a measured number, such as a difference of scores
            return None
        nothing = ", and records where it is 0 count for nothing" if 0 in (low, high) else ""
        if (low, high) == (0, 1):
            recoded += " Or write the loss for 0 and 1, as scikit-learn numbers the classes in a stack: logistic(u) - y * u."
        return f"{found}, but the loss is one for the labels -1 and 1{nothing}. {recoded}"
    wanted = "counts of at least 0" if most == np.inf else f"labels {least} and 1, or numbers between them"
    return (
        f"{found}, but the loss is one for {wanted}: where {name} is {low if low < least else high:g}, it falls without "
        f"bound as the parameters grow. {recoded if two else 'Correct these records, or change the loss.'}"
    )
