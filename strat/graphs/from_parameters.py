"""Graphs from the parameters of separately fitted strata."""

import numbers
import warnings

import numpy as np
from scipy.spatial.distance import pdist, squareform

from strat.compiler.coupling import by_factor
from strat.errors import DataError, DataWarning, OptionError
from strat.graphs.families import complete, node_list, weighted
from strat.graphs.features import check_tau, knn, typical
from strat.records.strata import some_of

_OPTIONS = {"exponential": ("tau",), "knn": ("k",), "entropy": ("sigma",)}


def from_parameters(
    theta,
    kernel="exponential",
    *,
    k=None,
    tau=None,
    sigma=None,
    counts=None,
    shrink=None,
    min_records=0,
    scaling=None,
    labels=None,
    name=None,
):
    """Join strata whose separately fitted parameters are near: the paper's second choice of W0.

    With d_ij = ‖theta_i − theta_j‖² (weighted as a model's ``couple`` says) the weights are exp(−tau √d_ij)
    (``"exponential"``), 1 where either stratum is among the other's k nearest (``"knn"``), or exp(−d_ij / (2 sigma²))
    (``"entropy"``: the weights that the entropy regularizer learns for these parameters).

    Parameters of strata with few records say little. Where the records are counted, each stratum's parameters are
    first drawn to the mean over all records: theta_k ← (n_k theta_k + s mean) / (n_k + s), n_k its number of records.

    Parameters
    ----------
    theta : fitted model, dict, DataFrame or array_like
        A model, best one of ``strat.separate``; or its parameters, ``{variable: (K, *shape)}`` or ``(K, n)``.
    kernel : {"exponential", "knn", "entropy"}
        How distance becomes weight.
    k : int, optional
        Neighbours, for ``"knn"``; log2(K), rounded up, by default.
    tau : float, optional
        Rate, for ``"exponential"``; by default the median distance gives weight 1/2.
    sigma : float, optional
        Width, for ``"entropy"``; by default the median distance gives weight 1/2.
    counts : (K,) array_like, optional
        Records of each stratum; a model that was fitted here knows its own.
    shrink : float, optional
        The s above, in records. By default the number of parameters of a stratum where the counts are known and no
        graph took part in the fit, else 0.
    min_records : int
        Strata with fewer records get no edges, with a DataWarning that names them; they stay nodes.
    scaling : {"none", "variable", "coordinate"}, optional
        Divide nothing, each variable, or each single parameter by its standard deviation over the strata. By default
        "variable" where there are several, but "none" where tau, sigma or the model's ``couple`` is given: these are
        in the parameters' units.
    labels : sequence, optional
        The nodes; by default the model's strata, the index of a DataFrame, or 0, …, K - 1.
    name : str, optional
        The name of the graph, kept as the edge attribute ``factor``.

    Returns
    -------
    networkx.Graph
        One node a stratum.

    References
    ----------
    Cheng, Zhang, Agrawal and Boyd, "Joint Graph Learning and Model Fitting in Laplacian Regularized Stratified
    Models", Section 3.1, example choices of W0; the entropy graph is in Section 4.

    Examples
    --------
    >>> import cvxpy as cp, strat
    >>> theta, y = cp.Variable(name="theta"), cp.Parameter(name="y")
    >>> base = strat.BaseModel(cp.square(y - theta), data=(y,))
    >>> separate = strat.separate(base).fit([1.0, 1.2, 4.0], strata=["a", "b", "c"])
    >>> list(strat.graphs.from_parameters(separate, "knn", k=1).edges)
    [('a', 'b'), ('b', 'c')]
    """
    if kernel not in _OPTIONS:
        raise OptionError(f'kernel is {kernel!r}, but it is one of "exponential", "knn", "entropy".')
    for option, value in {"k": k, "tau": tau, "sigma": sigma}.items():
        if value is not None and option not in _OPTIONS[kernel]:
            raise OptionError(
                f"{option} is no option of kernel={kernel!r}, which takes {_OPTIONS[kernel][0]}."
            )
    nodes, blocks = _read(theta, labels)
    coupled = bool(getattr(getattr(theta, "base", None), "couple", None))
    if coupled and by_factor(theta.base.couple):
        raise OptionError(
            "the model's couple has weights by factor of its graph, so that there is no one distance between strata. Give the "
            "parameters as an array, (K, n), with labels=."
        )
    if coupled:
        couple = np.sqrt(theta.base.couple_weights(theta.values))
        ends = np.cumsum([block.shape[1] for block in blocks])[:-1]
        blocks = [block * root for block, root in zip(blocks, np.split(couple, ends), strict=True)]
    counts = _counts(theta, counts, len(nodes))
    size = sum(block.shape[1] for block in blocks)
    strength = _strength(theta, shrink, counts, size)
    blocks = [_shrunk(block, counts, strength) for block in blocks]
    if scaling is None:
        has_unit = coupled or tau is not None or sigma is not None
        scaling = "none" if has_unit or len(blocks) == 1 else "variable"
    points = np.concatenate(_scaled(blocks, scaling), axis=1)
    few = _few(nodes, counts, min_records)
    kept = [label for label, drop in zip(nodes, few.tolist(), strict=True) if not drop]
    graph = _joined(kept, points[~few], kernel, k, tau, sigma, name)
    if few.any():
        whole = weighted(nodes, [], 1.0, name)  # nodes in the order of the strata
        whole.add_edges_from(graph.edges(data=True))
        graph = whole
    return graph


def _joined(nodes, points, kernel, k, tau, sigma, name):
    """The graph on the strata whose parameters are to be trusted."""
    if len(nodes) < 2:
        return weighted(nodes, [], 1.0, name)
    distances = pdist(points)
    if kernel == "knn":
        k = int(np.ceil(np.log2(len(nodes)))) if k is None else k
        graph = knn(squareform(distances), k, metric="precomputed")
        return weighted(nodes, [(nodes[i], nodes[j]) for i, j in graph.edges], 1.0, name)
    if kernel == "exponential":
        rate = np.log(2) / typical(distances) if tau is None else check_tau(tau)
        return complete(nodes, np.exp(-rate * distances), name)
    if sigma is not None and (not isinstance(sigma, numbers.Real) or not 0 < sigma < np.inf):
        raise OptionError(f"sigma is {sigma!r}, but it is a finite number above 0.")
    rate = np.log(2) / typical(distances) ** 2 if sigma is None else 0.5 / sigma**2
    return complete(nodes, np.exp(-rate * distances**2), name)


def _read(theta, labels):
    """The nodes, and one (K, size) array a variable."""
    values = getattr(theta, "theta_", theta)
    if values is theta and hasattr(theta, "fit"):
        raise DataError("theta is a model that is not fitted. Call fit first.")
    arrays = list(values.values()) if isinstance(values, dict) else [values]
    try:
        arrays = [np.asarray(array, dtype=float) for array in arrays]
    except (TypeError, ValueError):
        raise DataError(
            "theta holds something other than numbers. Pass one row of parameters a stratum."
        ) from None
    if not arrays or any(array.ndim == 0 or len(array) != len(arrays[0]) for array in arrays):
        shapes = ", ".join(str(array.shape) for array in arrays) or "no variable"
        raise DataError(
            f"theta has the shape {shapes}. Pass (K, *shape) for each variable, one row a stratum."
        )
    if not all(np.isfinite(array).all() for array in arrays):
        raise DataError("theta holds NaN or infinite values. Distances need finite numbers.")
    K = len(arrays[0])
    if labels is None:
        has_index = hasattr(values, "index") and not callable(values.index)
        labels = getattr(theta, "strata_", values.index if has_index else K)
    nodes = node_list(labels)
    if len(nodes) != K:
        raise DataError(f"there are {len(nodes):,} labels for {K:,} strata. Give one label a row of theta.")
    return nodes, [array.reshape(K, -1) for array in arrays]


def _counts(theta, counts, K):
    """Records of each stratum, or None where nothing tells them."""
    if counts is None:
        records = getattr(theta, "_training", None)
        if records is None:
            return None
        return np.bincount(records.strata.index[records.weight > 0], minlength=K).astype(float)
    try:
        counts = np.asarray(counts, dtype=float)
    except (TypeError, ValueError):
        counts = np.zeros(0)
    if counts.shape != (K,) or not np.isfinite(counts).all() or (counts < 0).any():
        raise DataError(f"counts must hold {K:,} finite numbers of at least 0, one a stratum.")
    return counts


def _strength(theta, shrink, counts, size):
    """The number of records that the mean parameters are worth."""
    if shrink is None:
        W = getattr(theta, "W_", None)
        coupled = W is not None and abs(W).sum() > 0
        return 0.0 if counts is None or coupled else float(size)
    if isinstance(shrink, bool) or not isinstance(shrink, numbers.Real) or not 0 <= shrink < np.inf:
        raise OptionError(f"shrink is {shrink!r}, but it is a finite number of records, at least 0.")
    if shrink > 0 and counts is None:
        raise OptionError(
            "shrink needs the records of each stratum: pass counts=, or a model that was fitted here."
        )
    return float(shrink)


def _shrunk(block, counts, strength):
    """Parameters drawn to their mean over all records."""
    if strength == 0 or not counts.any():
        return block
    mean = counts @ block / counts.sum()
    return mean + (counts / (counts + strength))[:, None] * (block - mean)


def _scaled(blocks, scaling):
    """The variables, each divided by its standard deviation over the strata as `scaling` says."""
    if scaling == "none":
        return blocks
    if scaling == "coordinate":
        return [block / _nonzero(block.std(axis=0)) for block in blocks]
    if scaling == "variable":
        return [block / _nonzero(np.sqrt(block.var(axis=0).sum())) for block in blocks]
    raise OptionError(f'scaling is {scaling!r}, but it is one of "none", "variable", "coordinate".')


def _nonzero(size):
    return np.where(size > 0, size, 1.0)


def _few(nodes, counts, min_records):
    """Mask of the strata with too few records, which a warning names."""
    if isinstance(min_records, bool) or not isinstance(min_records, numbers.Real) or not min_records >= 0:
        raise OptionError(f"min_records is {min_records!r}, but it is a number of records, at least 0.")
    if not min_records:
        return np.zeros(len(nodes), dtype=bool)
    if counts is None:
        raise OptionError(
            "min_records needs the records of each stratum: pass counts=, or a model fitted here."
        )
    few = counts < min_records
    if few.any():
        names = some_of([label for label, drop in zip(nodes, few.tolist(), strict=True) if drop])
        warnings.warn(
            f"{few.sum():,} of {len(nodes):,} strata have fewer than {min_records:g} records and get no edges: {names}. "
            "Lower min_records, or add edges for them by hand.",
            DataWarning,
            stacklevel=3,
        )
    return few
