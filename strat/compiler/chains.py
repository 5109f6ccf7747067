"""Differences of neighbours on a path, read off atoms and inequalities."""

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from strat.compiler.piecewise import piecewise_entries
from strat.oracles.prox_chains import ChainBlock
from strat.rules.piecewise import Abs


def chain(component):
    """A ChainBlock, where all that ties the coordinates are functions of differences along one path; else None."""
    plain = not component.balls and component.diagonal and not len(component.equal[1])
    differences = _differences(component) if plain and component.transposed is None else None
    edges = None if differences is None else _edges(differences)
    path = _path(edges, component.L) if edges else None
    if path is None:
        return None
    K = max(np.size(part) for edge in edges.values() for part in edge[:2])
    up, down, gap = np.zeros((K, len(edges))), np.zeros((K, len(edges))), np.zeros(len(edges))
    for k, (i, j) in enumerate(zip(path[:-1], path[1:], strict=True)):
        rising, falling, distance = edges[min(i, j), max(i, j)]
        up[:, k], down[:, k], gap[k] = (rising, falling, distance) if i < j else (falling, rising, -distance)
    simple = component.simple(path[None, :])
    # Absolute values and bounds combine with differences where they are the same along the path.
    parts = None if simple is None else [part for part in simple if part is not None]
    even = parts is not None and all(np.array_equal(part.min(axis=-1), part.max(axis=-1)) for part in parts)
    if not even or (parts and np.any(gap)) or (component.single and np.ptp(component.Q)):
        return None
    shift = np.concatenate([[0.0], np.cumsum(gap)])[None, :]
    q, Q = component.q[:, None, path], component.Q[None, None, path]
    columns = component.columns[path][None, :]
    return ChainBlock(columns, q, Q, shift, up[:, None, :], down[:, None, :], *simple)


def _differences(component):
    """``[(columns, values, left, right, knot)]``: slopes of functions of rows before and behind their knot; else None."""
    found = []
    for node in component.several:
        weight, entries = component.builder.nodes[node], component.entries[node]
        affine = component.builder.affine(node.forms[0]) if isinstance(node.rule, Abs) else None
        if affine is not None:
            A, b = affine[0][entries][:, component.columns].tocsr(), affine[1][entries]
            for k, size in enumerate(weight.T[entries]):
                found.append((*_row(A, k), -size, size, -b[k]))
            continue
        rows = piecewise_entries(component.binder, node, entries)
        if rows is None or any(len(function.knots) != 1 for _, _, function in rows):
            return None
        for (columns, values, f), size in zip(rows, weight.T[entries], strict=True):
            columns = np.searchsorted(component.columns, columns)
            found.append((columns, values, f.left * size, f.right * size, f.knots[0]))
    A, b = component.less  # infinite slopes
    return found + [(*_row(A, k), np.zeros(1), np.array([np.inf]), bound) for k, bound in enumerate(b)]


def _row(A, k):
    some = slice(A.indptr[k], A.indptr[k + 1])
    return A.indices[some], A.data[some]


def _edges(differences):
    """``{(i, j): (up, down, gap)}``, i < j: slopes of z_j − z_i − gap; None where rows are something else."""
    edges = {}
    for columns, values, left, right, knot in differences:
        if len(columns) != 2 or values[0] != -values[1]:
            return None
        first = int(np.argmin(columns))
        i, j, scale = int(columns[first]), int(columns[1 - first]), float(values[1 - first])
        # The function of the difference z_j − z_i has the slopes times the scale, in the other order where that is negative.
        before, behind = (left, right) if scale > 0 else (-right, -left)
        up, down, gap = behind * abs(scale), -before * abs(scale), knot / scale
        if (i, j) in edges:
            known = edges[i, j]
            if known[2] != gap:
                return None
            up, down = known[0] + up, known[1] + down
        edges[i, j] = (up, down, gap)
    return edges


def _path(edges, L):
    """The coordinates in the order of the path that the edges are; None where they are no path."""
    i, j = np.array(list(edges)).reshape(-1, 2).T
    counts = np.bincount(np.concatenate([i, j]), minlength=L)
    ends = np.flatnonzero(counts == 1)
    if len(edges) != L - 1 or len(ends) != 2 or counts.max() > 2:
        return None
    order = breadth_first_order(csr_array((np.ones(len(i)), (i, j)), shape=(L, L)), ends[0], directed=False)[
        0
    ]
    return order if len(order) == L else None
