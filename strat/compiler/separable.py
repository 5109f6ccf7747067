"""Coordinates that no piece ties to others: one block for all that the same atoms touch."""

import numpy as np
from scipy.sparse import coo_array

from strat.compiler.pieces import NoProx
from strat.compiler.piecewise import piecewise_entries
from strat.oracles.prox_separable import NewtonBlock, PiecewiseBlock, ScalarBlock
from strat.oracles.tape import Tape
from strat.rules.piecewise import Abs
from strat.rules.piecewise_linear import PiecewiseLinear
from strat.rules.text import text


def separable(builder, columns):
    """Blocks of single coordinates."""
    pieces = builder.pieces
    touched = np.zeros((len(pieces), builder.n), dtype=bool)
    for i, (_, matrix) in enumerate(pieces):
        touched[i, matrix.indices] = True
    absolute = [isinstance(node.rule, Abs) for node, _ in pieces]
    groups = {}
    for key, column in zip(map(bytes, touched[:, columns].T), columns, strict=True):
        touching = [i for i, here in enumerate(key) if here]
        # Absolute values and nothing else go together, whichever they are.
        groups.setdefault("soft" if all(absolute[i] for i in touching) else key, []).append(column)
    groups = map(np.asarray, groups.values())
    return [
        _block(builder, own, [p for i, p in enumerate(pieces) if touched[i, own].any()]) for own in groups
    ]


def soft_parts(builder, nodes):
    """(weights (K, n), centres (n,)) where every piece is one absolute value a coordinate, else None."""
    K = max((len(builder.nodes[node]) for node in nodes), default=1)
    weight, centre = np.zeros((K, builder.n)), np.full(builder.n, np.nan)
    for node in nodes:
        rows = builder.rows(node.forms[0]) if isinstance(node.rule, Abs) else None
        if rows is None:
            return None
        row, column, scale, offset = rows
        at = -offset / scale
        known = ~np.isnan(centre[column])
        if np.any(centre[column][known] != at[known]):
            return None
        centre[column] = at
        if np.any(centre[column] != at):
            return None
        np.add.at(weight, (slice(None), column), builder.nodes[node][:, row] * np.abs(scale))
    return weight, np.nan_to_num(centre) + 0.0


def _block(builder, columns, touching):
    p, nodes = builder.sets.transposed, [node for node, _ in touching]
    symmetric = p is not None and not np.array_equal(p[columns], columns)
    q, Q = builder.q[:, columns], builder.diagonal[columns][None, :]
    low, high = builder.sets.low[columns], builder.sets.high[columns]
    if symmetric:
        place = {c: i for i, c in enumerate(columns)}
        pair = np.array([place.get(c, -1) for c in p[columns]])
        if np.any(pair < 0):
            raise NoProx("different functions of an entry of a symmetric variable and of its transpose")
        low, high = np.maximum(low, low[pair]), np.minimum(high, high[pair])
        if np.any(low > high):
            raise NoProx(
                "no point satisfies the constraints on an entry of a symmetric variable and its transpose"
            )
    soft = soft_parts(builder, nodes)
    if soft is not None:
        weight, centre = soft[0][:, columns], soft[1][columns]
        if symmetric:
            weight = 0.5 * (weight + weight[:, pair])
        if not symmetric or np.array_equal(centre, centre[pair]):
            return PiecewiseBlock(
                columns, q, Q, centre[None, None, :], np.stack([-weight, weight]), low, high
            )
    if symmetric:
        raise NoProx("a function other than |z| of the entries of a symmetric variable")
    for known in (_scalar, _piecewise):
        made = known(builder, columns, touching)
        if made is not None:
            return made[0](columns, q, Q, *made[1:], low, high)
    binder = builder.binder
    flat = [n for n in binder.nodes(nodes) if not n.rule.curved]
    if flat:
        raise NoProx(f"{flat[0].rule.name} in {text(nodes[0].expression)} has no second derivatives")
    _check_domain(binder, nodes)
    weights = {}
    for node, matrix in touching:  # of entries that touch these columns only
        weight = builder.nodes[node] * np.isin(np.arange(node.size), _entries(matrix, columns))
        weights[binder.node(node)] = weight.reshape(len(weight), *node.shape)
    tape = Tape(binder.nodes(nodes), weights, None, builder.n, builder.active)
    return NewtonBlock(columns, q, Q, builder.n, tape, *(end[None, columns] for end in builder.domain()))


def _entries(matrix, columns):
    """Entries of an atom that touch some coordinates."""
    rows, touched = coo_array(matrix).coords
    return np.unique(rows[np.isin(touched, columns)])


def _scalar(builder, columns, touching):
    """Of one elementwise atom that knows its prox, once a coordinate."""
    node = touching[0][0]
    if len(touching) != 1 or not (node.rule.separable and node.rule.has("prox")):
        return None
    rows, constants = builder.rows(node.forms[0]), node.forms[1:]
    if rows is None or not all(form.is_data for form in constants):
        return None
    row, column, scale, offset = rows
    chosen = np.full(builder.n, -1)
    chosen[column] = np.arange(len(column))
    at = chosen[columns]
    if len(np.unique(column)) < len(column) or np.any(at < 0):
        return None
    others = [builder.binder.values(form).reshape(1, -1)[:, row[at]] for form in constants]
    return ScalarBlock, node.rule, others, builder.nodes[node][:, row[at]], scale[at], offset[at]


def _piecewise(builder, columns, touching):
    """Sums of piecewise linear functions of each coordinate: knots (J, 1, m) and slopes (J + 1, 1, m), padded."""
    sums = {c: PiecewiseLinear.affine(0.0, 0.0) for c in columns}
    for node, matrix in touching:
        weight, entries = builder.nodes[node], _entries(matrix, columns)
        found = piecewise_entries(builder.binder, node, entries) if len(weight) == 1 else None
        if found is None or any(len(row) != 1 or values[0] != 1.0 for row, values, _ in found):
            return None
        for entry, (row, _, function) in zip(entries, found, strict=True):
            sums[row[0]] = sums[row[0]] + function.scaled(weight[0, entry])
    functions = [function.simplified() for function in sums.values()]
    J = max(len(f.knots) for f in functions)
    knots, slopes = np.full((J, 1, len(functions)), np.inf), np.empty((J + 1, 1, len(functions)))
    for i, f in enumerate(functions):
        knots[: len(f.knots), 0, i] = f.knots
        slopes[:, 0, i] = f.right
        slopes[: len(f.knots) + 1, 0, i] = f.slopes
    return PiecewiseBlock, knots, slopes


def _check_domain(binder, nodes):
    """Raise where the domain of a function inside another is no interval of one coordinate."""
    for node in binder.inside(nodes):
        args = getattr(node.expression, "args", [])
        for i, interval in node.rule.intervals.items():
            inner = binder.kinds(node.forms[i])[1].any() and np.isfinite(interval).any()
            # An argument made of atoms may be inside by its sign.
            positive = i < len(args) and tuple(interval) == (0.0, np.inf) and args[i].is_nonneg()
            if inner and not positive:
                raise NoProx(f"the domain of {node.rule.name} in {text(node.expression)} is no interval")
