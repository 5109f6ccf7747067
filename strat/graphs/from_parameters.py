"""Graphs from the parameters of separately fitted strata."""

import numbers
import warnings
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import pdist

from strat.compiler.coupling import by_factor
from strat.errors import DataError, DataWarning, OptionError
from strat.graphs.families import complete, node_list, row_labels, weighted
from strat.graphs.features import as_floats, check_finite, exponential, is_nonnegative, nearest, typical
from strat.records.strata import some_of

_OPTIONS = {"exponential": "tau", "knn": "k", "entropy": "sigma"}


def from_parameters(
    theta: Any,
    kernel: str = "exponential",
    *,
    k: int | None = None,
    tau: float | None = None,
    sigma: float | None = None,
    counts: ArrayLike | None = None,
    shrink: float | None = None,
    min_records: int = 0,
    scaling: str | None = None,
    labels: Any = None,
    name: str | None = None,
) -> nx.Graph:
    """Join strata whose separately fitted parameters are near: the paper's second choice of W0.

    With d_ij = ‖theta_i − theta_j‖² (weighted as a model's ``couple`` says) the weights are exp(−tau √d_ij)
    (``"exponential"``), 1 where either stratum is among the other's k nearest (``"knn"``), or exp(−d_ij / (2 sigma²))
    (``"entropy"``: the weights that the entropy regularizer learns for these parameters).

    The parameters of strata with few records are mostly noise. If the numbers of records n_k are known, each stratum's
    parameters are first shrunk towards the mean over all records: theta_k ← (n_k theta_k + s mean) / (n_k + s).

    Parameters
    ----------
    theta : fitted model, dict, DataFrame or array_like
        A model, preferably one of ``strat.separate``, or its parameters, ``{variable: (K, *shape)}`` or ``(K, n)``.
    kernel : {"exponential", "knn", "entropy"}
        How distances become weights.
    k : int, optional
        Number of neighbours, for ``"knn"``; log2(K), rounded up, by default.
    tau : float, optional
        Rate, for ``"exponential"``; by default the median distance gives weight 1/2.
    sigma : float, optional
        Width, for ``"entropy"``; by default the median distance gives weight 1/2.
    counts : (K,) array_like, optional
        Number of records of each stratum; by default those of a model that was fitted in this session.
    shrink : float, optional
        The s above, in records. By default the number of parameters of a stratum if the counts are known and the fit
        used no graph, else 0.
    min_records : int
        Strata with fewer records remain nodes but get no edges; a DataWarning names them.
    scaling : {"none", "variable", "coordinate"}, optional
        Divide nothing, each variable, or each single parameter by its standard deviation over the strata. By default
        "variable" if there are several variables, but "none" if tau, sigma or the model's ``couple`` is given, as these
        are in the parameters' units.
    labels : sequence, optional
        The nodes; by default the model's strata, the index of a DataFrame, or 0, …, K - 1.
    name : str, optional
        The name of the graph, kept as the edge attribute ``factor``.

    Returns
    -------
    networkx.Graph
        One node per stratum.

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
        if value is not None and option != _OPTIONS[kernel]:
            raise OptionError(f"{option} is no option of kernel={kernel!r}, which takes {_OPTIONS[kernel]}.")
    nodes, blocks = read_parameters(theta, labels)
    couple = _couple(theta, blocks)
    if couple is not None:
        blocks = [block * np.sqrt(weight) for block, weight in zip(blocks, couple, strict=True)]
    counts = _counts(theta, counts, len(nodes))
    blocks = _shrunk(blocks, counts, _shrinkage(theta, shrink, counts, blocks))
    if scaling is None:
        has_unit = couple is not None or tau is not None or sigma is not None
        scaling = "none" if has_unit or len(blocks) == 1 else "variable"
    points = np.concatenate(_scaled(blocks, scaling), axis=1)
    few = _few(nodes, counts, min_records)
    joined = [label for label, drop in zip(nodes, few, strict=True) if not drop]
    graph = weighted(nodes, [], 1.0, name)  # all nodes, in the order of the strata
    if len(joined) > 1:
        graph.add_edges_from(_joined(joined, points[~few], kernel, k, tau, sigma, name).edges(data=True))
    return graph


def _joined(nodes, points, kernel, k, tau, sigma, name):
    """The graph on the strata whose parameters are to be trusted."""
    if kernel == "knn":
        return nearest(nodes, points, int(np.ceil(np.log2(len(nodes)))) if k is None else k, name=name)
    distances = pdist(points)
    if kernel == "exponential":
        return exponential(nodes, distances, tau, name)
    if sigma is not None and (not isinstance(sigma, numbers.Real) or not 0 < sigma < np.inf):
        raise OptionError(f"sigma is {sigma!r}, but it is a finite number above 0.")
    rate = np.log(2) / typical(distances) ** 2 if sigma is None else 0.5 / sigma**2
    return complete(nodes, np.exp(-rate * distances**2), name)


def read_parameters(theta, labels=None):
    """The nodes, and one (K, size) array per variable."""
    values = getattr(theta, "theta_", theta)
    if values is theta and hasattr(theta, "fit"):
        raise DataError("theta is a model that is not fitted. Call fit first.")
    blocks = values if isinstance(values, dict) else {"theta": values}
    arrays = [as_floats(name, block) for name, block in blocks.items()]
    if not arrays or any(array.ndim == 0 or len(array) != len(arrays[0]) for array in arrays):
        shapes = ", ".join(str(array.shape) for array in arrays) or "no variable"
        raise DataError(
            f"theta has the shape {shapes}. Pass (K, *shape) for each variable, one row per stratum."
        )
    K = len(arrays[0])
    labels = getattr(theta, "strata_", None) if labels is None else labels
    nodes = row_labels(values, K) if labels is None else node_list(labels)
    if len(nodes) != K:
        raise DataError(f"there are {len(nodes):,} labels for {K:,} strata. Give one label per row of theta.")
    arrays = [array.reshape(K, -1) for array in arrays]
    for name, array in zip(blocks, arrays, strict=True):
        check_finite(name, array)
    return nodes, arrays


def _couple(theta, blocks):
    """The weights of a model's distance, one array a variable; None where nothing declares any."""
    base = getattr(theta, "base", None)
    if not getattr(base, "couple", None):
        return None
    if by_factor(base.couple):
        raise OptionError(
            "the model's couple has weights by factor of its graph, so that there is no one distance between strata. Give the "
            "parameters as an array, (K, n), with labels=."
        )
    return np.split(base.couple_weights(theta.values), np.cumsum([block.shape[1] for block in blocks])[:-1])


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
        raise DataError(f"counts must hold {K:,} finite numbers of at least 0, one per stratum.")
    return counts


def _shrinkage(theta, shrink, counts, blocks):
    """The number of records that the mean parameters are worth."""
    if shrink is None:
        W = getattr(theta, "W_", None)
        has_edges = W is not None and abs(W).sum() > 0
        return 0.0 if counts is None or has_edges else sum(block.shape[1] for block in blocks)
    if not is_nonnegative(shrink):
        raise OptionError(f"shrink is {shrink!r}, but it is a finite number of records, at least 0.")
    if shrink > 0 and counts is None:
        raise OptionError(
            "shrink needs the records of each stratum: pass counts=, or a model that was fitted here."
        )
    return shrink


def _shrunk(blocks, counts, shrink):
    """Parameters drawn to their mean over all records."""
    if shrink == 0 or not counts.any():
        return blocks
    means = [counts @ block / counts.sum() for block in blocks]
    share = (counts / (counts + shrink))[:, None]
    return [mean + share * (block - mean) for block, mean in zip(blocks, means, strict=True)]


def _scaled(blocks, scaling):
    """The variables, each divided by its standard deviation over the strata as `scaling` says."""
    if scaling == "none":
        return blocks
    if scaling not in ("variable", "coordinate"):
        raise OptionError(f'scaling is {scaling!r}, but it is one of "none", "variable", "coordinate".')
    variances = [block.var(axis=0) for block in blocks]
    if scaling == "variable":
        variances = [np.full_like(variance, variance.sum()) for variance in variances]
    sizes = [np.sqrt(np.where(variance > 0, variance, 1.0)) for variance in variances]
    return [block / size for block, size in zip(blocks, sizes, strict=True)]


def _few(nodes, counts, min_records):
    """Mask of the strata with too few records, which a warning names."""
    if not is_nonnegative(min_records):
        raise OptionError(f"min_records is {min_records!r}, but it is a number of records, at least 0.")
    if min_records and counts is None:
        raise OptionError(
            "min_records needs the records of each stratum: pass counts=, or a model fitted here."
        )
    few = np.zeros(len(nodes), dtype=bool) if counts is None else counts < min_records
    if few.any():
        names = some_of([label for label, drop in zip(nodes, few, strict=True) if drop])
        warnings.warn(
            f"{few.sum():,} of {len(nodes):,} strata have fewer than {min_records:g} records and get no edges: {names}. "
            "Lower min_records, or add edges for them by hand.",
            DataWarning,
            stacklevel=3,
        )
    return few
