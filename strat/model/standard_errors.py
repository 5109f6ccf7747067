"""How certain the parameters are: covariances by the Laplace approximation at a fit.

They are the strata's own blocks of Q (Qᵀ (H + C + G(W) ⊗ diag(couple)) Q)⁻¹ Qᵀ, the inverse of the reduced Hessian. Where
the regularizer or a constraint holds a parameter fixed (a zero of the l1 norm, an active bound), Q leaves it out.
"""

from contextlib import suppress
from typing import Any

import numpy as np
import scipy.sparse as sp

from strat.errors import DataWarning, NoOracleError, OptionError, is_nonnegative
from strat.model.hypergradient import FittedModel
from strat.model.linearization import Linearization, block_diagonal
from strat.oracles.sparse_cholesky import inverse_entries
from strat.records.strata import some_of

SUSPECT = 1e9  # with a larger product of variance and curvature, a parameter may be undetermined
RIDGE = 1e-12  # relative; a variance that falls as this ridge grows is infinite


def standard_errors(model: Any, dispersion: float = 1.0) -> dict:
    """Standard errors of the parameters by the Laplace approximation at the fit, with W held fixed.

    The objective, divided by ``dispersion``, is read as minus a log posterior density: loss as minus a log likelihood,
    regularizer and Laplacian as minus a log prior. The standard errors are the square roots of the diagonal of its
    inverse Hessian; they are exact for a Gaussian model. They do not include the uncertainty of a learned graph.

    Parameters
    ----------
    model : StratifiedModel
        A fitted model whose loss has second derivatives.
    dispersion : float
        The divisor of the objective. A loss ``square(y - prediction)`` is minus a log likelihood, up to constants, for
        noise of variance 1/2; for variance v give ``2 * v``.

    Returns
    -------
    dict
        ``{variable: (K, *shape)}``. nan where a parameter is held at a kink or a bound and the approximation does not
        apply; inf, with a DataWarning, where neither records nor graph nor regularizer determine it, or where it grows
        without bound, as for separable data.

    Raises
    ------
    NoOracleError
        If the loss has no second derivatives, or rounding leaves the Hessian without an inverse.
    OptionError
        If the model was loaded from a file, which does not hold the records, or the system is dense and too large.

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> theta, y = cp.Variable(name="theta"), cp.Parameter(name="y")
    >>> base = strat.BaseModel(cp.square(y - theta) / 2, data=(y,))
    >>> model = strat.separate(base).fit([1.0, 1.0, 1.0, 1.0, 4.0], strata=[0, 0, 0, 0, 1])
    >>> strat.standard_errors(model)["theta"].round(3)
    array([0.5, 1. ])
    """
    C, free = _covariances(model, dispersion, "standard_errors")
    return model.base.layout.unpack(np.where(free, np.sqrt(np.einsum("kaa->ka", C)), np.nan))


def covariances(model: Any, dispersion: float = 1.0) -> np.ndarray:
    """Covariances of each stratum's parameters by the Laplace approximation at the fit.

    Parameters
    ----------
    model : StratifiedModel
        As in ``standard_errors``.
    dispersion : float
        As in ``standard_errors``.

    Returns
    -------
    (K, n, n) ndarray
        One matrix per stratum, over its variables, flattened one after the other in the order of ``base.variables``.
        Entries are 0 where a parameter is held at a kink or a bound, and inf on the diagonal where nothing determines it.

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> theta, y = cp.Variable(2, name="theta"), cp.Parameter(2, name="y")
    >>> base = strat.BaseModel(cp.sum_squares(y - theta) / 2, data=(y,))
    >>> model = strat.separate(base).fit([[1.0, 0.0], [0.0, 1.0]], strata=["a", "a"])
    >>> strat.covariances(model).round(3)
    array([[[0.5, 0. ],
            [0. , 0.5]]])
    """
    return _covariances(model, dispersion, "covariances")[0]


def _covariances(model, dispersion, what):
    """Covariances (K, n, n), and which parameters are not held fixed, (K, n)."""
    fitted = FittedModel(model, what, shared=True)
    if not (is_nonnegative(dispersion) and dispersion):
        raise OptionError(f"dispersion is {dispersion!r}, but it is a finite number above 0.")
    linearization = Linearization(fitted.problem(), fitted.theta, fitted.w, polish=False)
    hessian, units = linearization.hessian, linearization.units
    K, n = fitted.theta.shape
    Q, A = hessian.deviations()
    same_stratum = sp.coo_array(abs(Q).T @ block_diagonal(np.ones((K, n, n))) @ abs(Q))
    rows, columns = (index.astype(np.intp) for index in same_stratum.coords)
    entries, unbounded = _inverse(A, rows, columns)
    C = np.zeros((K, n, n))
    covariance = sp.coo_array(Q @ sp.csr_array((entries, (rows, columns)), shape=(Q.shape[1],) * 2) @ Q.T)
    row, column = covariance.coords
    own = row // n == column // n
    row, column = row[own], column[own]
    C[row // n, row % n, column % n] = dispersion / units.worth * covariance.data[own]
    C *= np.multiply.outer(units.unit, units.unit)
    free, infinite = ((abs(Q) @ some).reshape(K, n) > 0 for some in (np.ones(Q.shape[1]), unbounded))
    infinite |= model._running
    C[infinite[:, :, None] | infinite[:, None, :]] = 0.0
    np.einsum("kaa->ka", C)[infinite] = np.inf
    if model.shared:
        C, free, infinite = (np.repeat(array, len(model.strata_), axis=0) for array in (C, free, infinite))
    if kinks := hessian.free.kinks.sum():
        what = "touches a bound or constraint that exerts no force, or lies on a kink; move it a little"
        DataWarning.warn(f"standard errors mean nothing in {kinks:,} of {K:,} strata, where the fit {what}.")
    if strata := [model.strata_[k] for k in np.flatnonzero(infinite.any(axis=1)).tolist()]:
        DataWarning.warn(
            f"{int(infinite.sum()):,} parameters in {len(strata):,} strata ({some_of(strata)}) have infinite standard errors: "
            "neither records nor graph nor regularizer determine them. Add a ridge or edges, or leave out what is "
            "redundant, such as one class of a softmax."
        )
    return C, free


def _inverse(A, rows, columns):
    """Entries of the inverse of A, and a mask of the unknowns with infinite variance, where A is singular."""
    diagonal, on_diagonal = A.diagonal(), rows == columns
    if not len(diagonal):
        return np.zeros(0), np.zeros(0, dtype=bool)
    with suppress(np.linalg.LinAlgError):
        entries = inverse_entries(A, rows, columns)[1]
        if not np.max(entries[on_diagonal] * diagonal[rows[on_diagonal]]) > SUSPECT:
            return entries, np.zeros(len(diagonal), dtype=bool)
    size = np.where(diagonal > RIDGE * diagonal.max(), diagonal, diagonal.max() or 1.0)
    ridges = sp.diags_array(10 * RIDGE * size), sp.diags_array(RIDGE * size)
    try:
        large, entries = (inverse_entries(A + ridge, rows, columns)[1] for ridge in ridges)
    except np.linalg.LinAlgError:
        raise NoOracleError(
            "rounding leaves the Hessian at the fit without an inverse. Fit in other units, or add a ridge to the regularizer."
        ) from None
    unbounded = np.zeros(len(diagonal), dtype=bool)
    unbounded[rows[on_diagonal]] = entries[on_diagonal] > 1.5 * large[on_diagonal]
    entries[unbounded[rows] | unbounded[columns]] = 0.0
    return entries, unbounded
