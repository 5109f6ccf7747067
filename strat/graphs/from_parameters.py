"""Graphs from the parameters of separately fitted strata."""

from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import pdist

from strat.compiler.coupling import by_factor
from strat.errors import DataError, DataWarning, OptionError, is_nonnegative
from strat.graphs.families import node_list, row_labels, weighted
from strat.graphs.features import as_floats, exponential, nearest
from strat.oracles.base import floats
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
            raise OptionError(f"kernel={kernel!r} takes {_OPTIONS[kernel]}, not {option}.")
    nodes, blocks = read_parameters(theta, labels)
    points = np.concatenate(blocks, axis=1)
    base = getattr(theta, "base", None)
    couples = bool(getattr(base, "couple", None))
    if couples and by_factor(base.couple):
        raise OptionError(
            "the model's couple has weights by factor of its graph, so that there is no one distance between strata. Give the "
            "parameters as an array, (K, n), with labels=."
        )
    if couples:
        points = points * np.sqrt(base.couple_weights(theta.values))
    if counts is None:  # take those of a model's records, if known
        counts = getattr(theta, "_counts", None)
    else:
        counts = floats(counts)
        if counts.shape != (len(nodes),) or not np.isfinite(counts).all() or (counts < 0).any():
            raise DataError(f"counts must hold {len(nodes):,} finite numbers of at least 0, one per stratum.")
    if shrink is None:
        has_edges = abs(getattr(theta, "W_", np.zeros(1))).sum() > 0
        shrink = 0 if counts is None or has_edges else points.shape[1]
    for option, value in {"shrink": shrink, "min_records": min_records}.items():
        if not is_nonnegative(value):
            raise OptionError(f"{option} is {value!r}, but it is a finite number of records, at least 0.")
        if value and counts is None:
            raise OptionError(f"{option} needs the records of each stratum: pass counts=, or a fitted model.")
    if shrink and counts.any():
        mean = counts @ points / counts.sum()
        points = mean + (counts / (counts + shrink))[:, None] * (points - mean)
    if scaling is None:
        has_unit = couples or tau is not None or sigma is not None
        scaling = "none" if has_unit or len(blocks) == 1 else "variable"
    if scaling not in ("none", "variable", "coordinate"):
        raise OptionError(f'scaling is {scaling!r}, but it is one of "none", "variable", "coordinate".')
    # Parameters are divided by their standard deviation over the strata, or that of their variable.
    variances = points.var(axis=0)
    if scaling == "variable":
        variable = np.repeat(np.arange(len(blocks)), [block.shape[1] for block in blocks])
        variances = np.bincount(variable, variances)[variable]
    if scaling != "none":
        points = points / np.sqrt(np.where(variances > 0, variances, 1.0))
    few = np.zeros(len(nodes), dtype=bool) if counts is None else counts < min_records
    joined = [label for label, drop in zip(nodes, few, strict=True) if not drop]
    if few.any():
        names = some_of([label for label, drop in zip(nodes, few, strict=True) if drop])
        DataWarning.warn(
            f"{few.sum():,} of {len(nodes):,} strata have fewer than {min_records:g} records and get no edges: {names}. "
            "Lower min_records, or add edges for them by hand."
        )
    graph = weighted(nodes, [], [], 1.0, name)  # all nodes, in the order of the strata
    if sigma is not None and not (is_nonnegative(sigma) and sigma):
        raise OptionError(f"sigma is {sigma!r}, but it is a finite number above 0.")
    if len(joined) < 2:
        return graph
    if kernel == "knn":
        k = int(np.ceil(np.log2(len(joined)))) if k is None else k
        part = nearest(joined, points[~few], k, name=name)
    else:
        rate, power = (tau, 1) if kernel == "exponential" else (sigma and 0.5 / sigma**2, 2)
        part = exponential(joined, pdist(points[~few]), rate, name, power)
    graph.add_edges_from(part.edges(data=True))
    return graph


def read_parameters(theta, labels=None):
    """The nodes, and one (K, size) array per variable."""
    values = getattr(theta, "theta_", theta)
    if values is theta and hasattr(theta, "fit"):
        raise DataError("theta is a model that is not fitted. Call fit first.")
    blocks = values if isinstance(values, dict) else {"theta": values}
    arrays = [as_floats(name, block) for name, block in blocks.items()]
    if not arrays or any(array.ndim == 0 or len(array) != len(arrays[0]) for array in arrays):
        shapes = ", ".join(str(array.shape) for array in arrays) or "no variable"
        raise DataError(f"theta has the shape {shapes}. Each variable has one row per stratum: (K, *shape).")
    K = len(arrays[0])
    labels = getattr(theta, "strata_", None) if labels is None else labels
    nodes = row_labels(values, K) if labels is None else node_list(labels)
    if len(nodes) != K:
        raise DataError(f"there are {len(nodes):,} labels for {K:,} strata. Give one label per row of theta.")
    return nodes, [array.reshape(K, -1) for array in arrays]
