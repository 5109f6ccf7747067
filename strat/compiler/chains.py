"""Differences of neighbours on a path, read off atoms and inequalities."""

import numpy as np

from strat.compiler.pieces import affine_matrix
from strat.compiler.piecewise_rows import piecewise_entries
from strat.compiler.separable import soft_parts
from strat.oracles.prox_chains import ChainBlock
from strat.rules.piecewise import Abs


def chain(component):
    """A ChainBlock, where all that ties the coordinates are functions of differences along one path; else None."""
    if (
        component.balls
        or not component.diagonal
        or len(component.equal[1])
        or component.transposed is not None
    ):
        return None
    edges = _atoms(component)
    if edges is None or not _monotone(component, edges) or len(edges) != component.L - 1:
        return None
    path = _path(edges, component.L)
    if path is None:
        return None
    K = max(np.size(part) for edge in edges.values() for part in edge[:2])
    up, down, gap = np.zeros((K, len(edges))), np.zeros((K, len(edges))), np.zeros(len(edges))
    for k, (i, j) in enumerate(zip(path[:-1], path[1:], strict=True)):
        rising, falling, distance = edges[min(i, j), max(i, j)]
        up[:, k], down[:, k], gap[k] = (rising, falling, distance) if i < j else (falling, rising, -distance)
    simple = _simple(component, path, np.any(gap))
    if simple is None:
        return None
    shift = np.concatenate([[0.0], np.cumsum(gap)])[None, :]
    q, Q = component.q[:, None, path], component.Q[None, None, path]
    return ChainBlock(
        component.columns[path][None, :], q, Q, shift, up[:, None, :], down[:, None, :], *simple
    )


def _atoms(component):
    """``{(i, j): (up, down, gap)}``, i < j: slopes of z_j − z_i − gap; None where an atom is something else."""
    edges = {}
    for node in component.several:
        weight, entries = component.builder.nodes[node], component.entries[node]
        affine = affine_matrix(component.binder, node.forms[0]) if isinstance(node.rule, Abs) else None
        if affine is not None:
            A, b = affine[0][entries][:, component.columns].tocsr(), affine[1][entries]
            found = [
                (A.indices[s:e], A.data[s:e], None) for s, e in zip(A.indptr[:-1], A.indptr[1:], strict=True)
            ]
        else:
            found, b = piecewise_entries(component.binder, node, entries), np.zeros(len(entries))
            if found is None:
                return None
            found = [(np.searchsorted(component.columns, c), a, f) for c, a, f in found]
        for entry, (columns, values, function), offset in zip(entries, found, b, strict=True):
            edge = _difference(columns, values)
            if edge is None or (function is not None and len(function.knots) != 1):
                return None
            i, j, scale = edge
            left, right, knot = (
                (-1.0, 1.0, -offset)
                if function is None
                else (function.left, function.right, function.knots[0])
            )
            if scale < 0:
                left, right = -right, -left
            size = np.abs(scale) * weight[:, entry]
            low, high = np.minimum(left * size, right * size), np.maximum(left * size, right * size)
            if not _add(edges, i, j, high, -low, knot / scale):
                return None
    return edges


def _monotone(component, edges):
    """Add the inequalities as infinite slopes; whether all are differences."""
    A, b = component.less
    for row, bound in enumerate(b):
        s, e = A.indptr[row], A.indptr[row + 1]
        edge = _difference(A.indices[s:e], A.data[s:e])
        if edge is None:
            return False
        i, j, scale = edge
        up, down = (np.inf, 0.0) if scale > 0 else (0.0, np.inf)
        if not _add(edges, i, j, np.array([up]), np.array([down]), bound / scale):
            return False
    return True


def _difference(columns, values):
    """(i, j, scale), i < j, of a row scale · (z_j − z_i); None for others."""
    if len(columns) != 2 or values[0] != -values[1]:
        return None
    first = np.argmin(columns)
    return int(columns[first]), int(columns[1 - first]), float(values[1 - first])


def _add(edges, i, j, up, down, gap):
    if (i, j) in edges:
        known = edges[i, j]
        if known[2] != gap:
            return False
        up, down = known[0] + up, known[1] + down
    edges[i, j] = (up, down, gap)
    return True


def _path(edges, L):
    """The coordinates in the order of the path that the edges are; None where they are no path."""
    near = [[] for _ in range(L)]
    for i, j in edges:
        near[i].append(j)
        near[j].append(i)
    ends = [i for i in range(L) if len(near[i]) == 1]
    if len(ends) != 2 or max(map(len, near)) > 2:
        return None
    path, before = [ends[0]], -1
    while len(path) < L:
        onward = [j for j in near[path[-1]] if j != before]
        if not onward:
            return None
        before = path[-1]
        path.append(onward[0])
    return np.array(path)


def _simple(component, path, shifted):
    """(l1, low, high) where they are the same along the path, else None."""
    l1 = low = high = None
    if component.single:
        soft = soft_parts(component.builder, component.single)
        if soft is None or np.any(soft[1][component.columns]) or np.ptp(component.Q):
            return None
        l1 = soft[0][:, component.columns][:, None, path]
    if component.bounded:
        low, high = component.low[None, None, path], component.high[None, None, path]
    for part in (l1, low, high):
        if part is not None and (
            shifted or not np.array_equal(part, np.broadcast_to(part[..., :1], part.shape))
        ):
            return None
    return l1, low, high
