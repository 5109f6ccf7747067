"""How exact a weight must be for a stratum without records: Theorem 1 of the paper."""

import numpy as np
from numpy.typing import ArrayLike

from strat.errors import OptionError

RANGES = {
    "share": "above 0 and at most 1",
    "ratio": "above 0",
    "delta": "at least 0",
    "delta_center": "at least 0",
}


def sensitivity_bound(
    share: ArrayLike, ratio: ArrayLike, delta: ArrayLike, delta_center: ArrayLike
) -> np.ndarray:
    """Bound the relative change of one edge weight under which a stratum without records stays accurate.

    Stratum k has no records and no regularizer, so that its parameters are the mean of its neighbours', weighted by the
    edges' weights. One of them, W_ik, becomes W_ik + ε, ε > 0. If before and after the other strata's parameters are
    accurate to a relative ``delta`` and those of k to ``delta_center``, then

        ε / W_ik ≤ 2 (δ + δ' + δ p A) / ((1 − (1 + 2δ) p − δ) A − 1 + p − 2 (δ + δ')) / p,

    p = W_ik / Σ_j W_jk being the neighbour's share of the weight and A = ‖θ*_i‖ / max_{j≠i} ‖θ*_j‖ how much larger its true
    parameters are than all others. The bound falls like δ' / A: the larger the imbalance, the more exactly W must be known.

    Parameters
    ----------
    share : float or array_like, between 0 and 1
        p, the neighbour's share of the weight at the stratum.
    ratio : float or array_like, > 0
        A, the ratio of norms.
    delta : float or array_like, at least 0
        δ, the relative accuracy of the other strata.
    delta_center : float or array_like, at least 0
        δ', the relative accuracy of the stratum without records.

    Returns
    -------
    float or ndarray
        The bound on ε / W_ik; inf where the denominator is not positive, so that the theorem says nothing.

    References
    ----------
    Cheng, Zhang, Agrawal and Boyd, "Joint Graph Learning and Model Fitting in Laplacian Regularized Stratified
    Models", Theorem 1.

    Examples
    --------
    >>> import strat
    >>> strat.sensitivity_bound(share=0.1, ratio=[2.0, 10.0, 100.0], delta=0.0, delta_center=0.05).round(3)
    array([1.25 , 0.125, 0.011])
    """
    values = []
    for name, value in {"share": share, "ratio": ratio, "delta": delta, "delta_center": delta_center}.items():
        try:
            array = np.asarray(value, dtype=float)
        except (TypeError, ValueError):
            array = np.array(np.nan)
        if not np.isfinite(array).all():
            raise OptionError(f"{name} is {value!r}, but it must be a finite number, or an array of them.")
        valid = (array >= 0) & ((array > 0) | name.startswith("delta")) & ((array <= 1) | (name != "share"))
        if not valid.all():
            raise OptionError(f"{name} is {array[~valid].flat[0]:g}, but it must be {RANGES[name]}.")
        values.append(array)
    try:
        p, A, delta, center = np.broadcast_arrays(*values)
    except ValueError:
        shapes = [value.shape for value in values]
        raise OptionError(f"{', '.join(RANGES)} have shapes {shapes}, which do not go together.") from None
    numerator = 2 * (delta + center + delta * p * A)
    denominator = (1 - (1 + 2 * delta) * p - delta) * A - 1 + p - 2 * (delta + center)
    bound = np.full(numerator.shape, np.inf)
    np.divide(numerator, denominator * p, out=bound, where=denominator > 0)
    return float(bound) if bound.ndim == 0 else bound
