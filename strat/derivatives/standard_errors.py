"""How sure the parameters are: covariances by the Laplace approximation at a fit.

With H the Hessian of the losses and of the smooth regularizer, P the weights of `couple` and W the fitted graph, the
covariance is the inverse of H + G(W) ⊗ P (a Laplacian for each coefficient where P differs by factor), of which only the
strata's own blocks are computed. A regularizer with kinks, bounds and constraints act through their prox: its Jacobian J
at θ − t∇ is symmetric with eigenvalues from 0 to 1; where it is 0 the parameters are held fixed (a zero of the l1 norm, an
active bound), elsewhere (1/λ − 1)/t is the curvature.
"""

import warnings

import numpy as np
import scipy.sparse as sp

from strat.derivatives.linearization import hessian_blocks
from strat.errors import DataWarning, NoOracleError, OptionError
from strat.model.estimator import check_fitted
from strat.model.export import fitted_couple, training_records
from strat.oracles.selected_inverse import inverse_entries
from strat.oracles.sum import Weighted
from strat.problem.edges import EdgeList
from strat.problem.edges.laplacians import Laplacians
from strat.records.strata import some_of
from strat.solvers.prox_slope import ProxSlope

SUSPECT = 1e9  # variance times curvature above this asks whether anything determines the parameter
RIDGE = 1e-12  # relative; a variance that follows it is infinite


def standard_errors(model, dispersion=1.0):
    """Standard errors of the parameters by the Laplace approximation at the fit, W as it is.

    The objective, divided by ``dispersion``, is read as minus a log posterior density: loss as minus a log likelihood,
    regularizer and Laplacian as minus a log prior. The standard errors are the square roots of the diagonal of its
    inverse Hessian; they are exact for a Gaussian model. They know nothing of the uncertainty of a learned graph.

    Parameters
    ----------
    model : StratifiedModel
        A fitted model whose loss has second derivatives.
    dispersion : float
        What the objective is to be divided by. A loss ``square(y - prediction)`` is minus a log likelihood, up to
        constants, for noise of variance 1/2; for variance v give ``2 * v``.

    Returns
    -------
    dict
        ``{variable: (K, *shape)}``. nan where a parameter is held at a kink or a bound, so that the approximation says
        nothing; inf, with a DataWarning, where neither records nor graph nor regularizer determine it.

    Raises
    ------
    NoOracleError
        If the loss has no second derivatives.
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
    variance = np.einsum("kaa->ka", C)
    errors = np.where(free, np.sqrt(variance), np.nan)
    return model.base.layout.unpack(errors)


def covariances(model, dispersion=1.0):
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
        One matrix a stratum, over its variables raveled one after the other in the order of ``base.variables``. 0 where
        a parameter is held at a kink or a bound, inf on the diagonal where nothing determines it.

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
    """Covariances (K, n, n), and which parameters are not held, (K, n)."""
    check_fitted(model, what)
    if (
        isinstance(dispersion, bool)
        or not isinstance(dispersion, (int, float))
        or not 0 < dispersion < np.inf
    ):
        raise OptionError(
            f"dispersion is {dispersion!r}, but the objective is divided by a finite number above 0."
        )
    theta, loss, regularizer, constraints, laplacian = _problem(model)
    K, n = theta.shape
    hessian, degrees = hessian_blocks(loss, theta), laplacian.diagonal().reshape(K, n)
    gradient = loss.value_and_gradient(theta)[1] + (laplacian @ theta.reshape(-1)).reshape(K, n)
    if regularizer.has("hessian_operator"):
        hessian = hessian + hessian_blocks(regularizer, theta)
        gradient = gradient + regularizer.value_and_gradient(theta)[1]
        prox = constraints.prox
    else:
        prox = regularizer.prox
    own = np.maximum(np.einsum("kaa->k", hessian) / n, 0.0) + degrees.mean(axis=1)
    t = 1 / np.where(own > 0, own, 1.0)
    slope = ProxSlope(prox, theta - t[:, None] * gradient, t)
    U = (
        np.broadcast_to(np.eye(n), (K, n, n))
        if slope.U is None
        else np.where(np.abs(slope.U) > 1e-9, slope.U, 0.0)
    )
    bases = [U[k][:, slope.free[k]] for k in range(K)]
    curvature = [slope.curvature[k][slope.free[k]] for k in range(K)]
    U = sp.csr_array(sp.block_diag(bases, format="csr"))
    A = sp.csr_array(sp.block_diag(list(hessian), format="csr")) + laplacian
    A = sp.csr_array(U.T @ A @ U) + sp.diags_array(np.concatenate(curvature))
    starts = np.cumsum([0, *(basis.shape[1] for basis in bases)])
    blocks = _inverse_blocks(sp.csr_array((A + A.T) / 2), starts)
    C = np.zeros((K, n, n))
    with np.errstate(invalid="ignore"):
        for k, (basis, block) in enumerate(zip(bases, blocks, strict=True)):
            C[k] = _turned(basis, block)
    free = np.stack([np.any(basis != 0, axis=1) for basis in bases])
    C *= dispersion
    _warn_of_infinite(model, C)
    if model.shared:
        K = len(model.strata_)
        C, free = np.repeat(C, K, axis=0), np.repeat(free, K, axis=0)
    return C, free


def _problem(model):
    """theta (K, n), the oracles of loss, regularizer and constraints, G(W) ⊗ P, (K n, K n)."""
    base, values, records = model.base, model.values, training_records(model, "standard_errors")
    theta, W, strata, weight = model._flat(), sp.csr_array(model.W_), records.strata, 1.0
    if model.shared:
        weight = len(theta) if model.regularizer_weight is None else model.regularizer_weight
        theta, W, strata = theta[:1], sp.csr_array((1, 1)), strata.merged()
    loss = base.loss_program.bind_records(records.arrays, strata, records.weight, values)
    if not loss.has("hessian_operator"):
        raise NoOracleError(
            f"standard errors need second derivatives of the loss, but {loss.missing('hessian_operator')}.\n"
            "Smooth the loss (smoothing=1e-3 on the BaseModel), or resample the records."
        )
    regularizer = base.regularizer_program.bind_regularizer(values)
    regularizer = regularizer if weight == 1 else Weighted(regularizer, weight)
    constraints = base.regularizer_program.bind_constraints(values)
    edges = EdgeList(W.shape[0], *sp.triu(W, 1).tocoo().coords)
    laplacian = Laplacians(edges, edges.from_matrix(W), fitted_couple(model, *edges.ends)).matrix()
    return theta, loss, regularizer, constraints, laplacian


def _inverse_blocks(A, starts):
    """The diagonal blocks of the inverse of A, inf on the diagonal where A is singular."""
    sizes = np.diff(starts)
    M = int(starts[-1])
    if not M:
        return [np.zeros((0, 0)) for _ in sizes]
    columns = np.concatenate(
        [np.tile(np.arange(a, b), b - a) for a, b in zip(starts[:-1], starts[1:], strict=True)]
    )
    rows = np.repeat(np.arange(M), np.repeat(sizes, sizes))
    on_diagonal = rows == columns
    diagonal = A.diagonal()
    try:
        _, values = inverse_entries(A, starts, rows, columns)
        suspect = np.max(values[on_diagonal] * diagonal) > SUSPECT
    except np.linalg.LinAlgError:
        suspect = True
    if suspect:
        size = np.where(
            diagonal > RIDGE * diagonal.max(), diagonal, diagonal.max() if diagonal.any() else 1.0
        )
        _, near = inverse_entries(A + sp.diags_array(10 * RIDGE * size), starts, rows, columns)
        _, values = inverse_entries(A + sp.diags_array(RIDGE * size), starts, rows, columns)
        loose = values[on_diagonal] > 1.5 * near[on_diagonal]
        values[loose[rows] | loose[columns]] = 0.0
        values[on_diagonal] = np.where(loose, np.inf, values[on_diagonal])
    cuts = np.cumsum(sizes**2)[:-1]
    return [part.reshape(s, s) for part, s in zip(np.split(values, cuts), sizes, strict=True)]


def _turned(basis, block):
    """basis block basisᵀ, where a block may hold inf on its diagonal."""
    infinite = np.isinf(np.diag(block))
    if not infinite.any():
        return basis @ block @ basis.T
    finite = np.where(np.isinf(block), 0.0, block)
    result = basis @ finite @ basis.T
    touched = np.any(basis[:, infinite] != 0, axis=1)
    result[touched, :], result[:, touched] = 0.0, 0.0
    result[touched, touched] = np.inf
    return result


def _warn_of_infinite(model, C):
    infinite = np.isinf(np.einsum("kaa->ka", C))
    if not infinite.any():
        return
    strata = [model.strata_[k] for k in np.flatnonzero(infinite.any(axis=1)).tolist()]
    warnings.warn(
        f"{int(infinite.sum()):,} parameters in {len(strata):,} strata ({some_of(strata)}) have infinite standard errors: "
        "neither records nor graph nor regularizer determine them. Add a ridge or edges, or leave out what is "
        "redundant, such as one class of a softmax.",
        DataWarning,
        stacklevel=4,
    )
