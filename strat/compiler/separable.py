"""Coordinates that no piece ties to others: one block for all that the same atoms touch."""

import numpy as np
from scipy.sparse import coo_array

from strat.compiler.piecewise_rows import NoProx, piecewise_entries, stacked
from strat.oracles.prox_separable import NewtonBlock, PiecewiseBlock, ScalarBlock, SoftBlock
from strat.oracles.tape import Tape
from strat.rules.piecewise import Abs
from strat.rules.piecewise_linear import PiecewiseLinear
from strat.rules.text import text


def separable(builder, columns, pieces):
    """Blocks of single coordinates."""
    touched = np.zeros((len(pieces), builder.n), dtype=bool)
    for i, (_, matrix) in enumerate(pieces):
        touched[i, matrix.indices] = True
    absolute = [isinstance(node.rule, Abs) for node, _ in pieces]
    groups = {}
    for key, column in zip(map(bytes, touched[:, columns].T), columns, strict=True):
        touching = [i for i, here in enumerate(key) if here]
        # Absolute values and nothing else go together, whichever they are.
        groups.setdefault("soft" if all(absolute[i] for i in touching) else key, []).append(column)
    blocks = []
    for some in groups.values():
        own = np.asarray(some)
        blocks += _blocks(builder, own, [pair for i, pair in enumerate(pieces) if touched[i, own].any()])
    return blocks


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
        first = np.full(builder.n, np.nan)
        first[column] = at
        known = ~np.isnan(centre[column])
        if np.any(first[column] != at) or np.any(centre[column][known] != at[known]):
            return None
        centre[column] = at
        np.add.at(weight, (slice(None), column), builder.nodes[node][:, row] * np.abs(scale))
    return weight, np.nan_to_num(centre) + 0.0


def _blocks(builder, columns, touching):
    p = builder.sets.transposed
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
    soft = soft_parts(builder, [node for node, _ in touching])
    if soft is not None:
        weight, centre = soft[0][:, columns], soft[1][columns]
        if symmetric:
            weight = 0.5 * (weight + weight[:, pair])
        if not symmetric or np.array_equal(centre, centre[pair]):
            return [SoftBlock(columns, q, Q, weight, centre, low, high)]
    known = _scalar(builder, columns, touching, q, Q, low, high) or _piecewise(
        builder, columns, touching, q, Q, low, high
    )
    if known is not None and (not symmetric or known.symmetric(pair)):
        return [known]
    if symmetric:
        raise NoProx("a function other than |z| of the entries of a symmetric variable")
    flat = [n for n in builder.binder.nodes([node for node, _ in touching]) if not n.rule.curved]
    if flat:
        raise NoProx(f"{flat[0].rule.name} in {text(touching[0][0].expression)} has no second derivatives")
    _check_domain(builder, touching)
    low, high = (ends[columns] for ends in builder.domain())
    weights = {builder.binder.node(node): _masked(builder, node, m, columns) for node, m in touching}
    tape = Tape(
        builder.binder.nodes([node for node, _ in touching]), weights, None, builder.n, builder.active
    )
    return [NewtonBlock(columns, builder.n, tape, q, Q, low[None, :], high[None, :])]


def _scalar(builder, columns, touching, q, Q, low, high):
    """One elementwise atom that knows its prox, once a coordinate."""
    if len(touching) != 1 or not (touching[0][0].rule.separable and touching[0][0].rule.has("prox")):
        return None
    node = touching[0][0]
    rows = builder.rows(node.forms[0])
    constants = list(node.forms[1:])
    if rows is None or not all(form.is_data for form in constants):
        return None
    row, column, scale, offset = rows
    chosen = np.full(builder.n, -1)
    chosen[column] = np.arange(len(column))
    at = chosen[columns]
    if len(np.unique(column)) < len(column) or np.any(at < 0):
        return None
    others = [builder.binder.evaluator.form(form).reshape(1, -1)[:, row[at]] for form in constants]
    weight = builder.nodes[node][:, row[at]]
    return ScalarBlock(columns, q, Q, node.rule, others, weight, scale[at], offset[at], low, high)


def _piecewise(builder, columns, touching, q, Q, low, high):
    """Sums of piecewise linear functions of each coordinate."""
    functions = {}
    for node, matrix in touching:
        weight = builder.nodes[node]
        if len(weight) > 1:
            return None
        coo = coo_array(matrix)
        entries = np.unique(coo.coords[0][np.isin(coo.coords[1], columns)])
        found = piecewise_entries(builder.binder, node, entries)
        if found is None:
            return None
        for entry, (row, values, function) in zip(entries, found, strict=True):
            if len(row) != 1 or values[0] != 1.0:
                return None
            part = function.scaled(weight[0, entry])
            functions[row[0]] = functions[row[0]] + part if row[0] in functions else part
    knots, slopes = stacked([functions.get(c, PiecewiseLinear.affine(0.0, 0.0)) for c in columns])
    return PiecewiseBlock(columns, q, Q, knots, slopes, low, high)


def _masked(builder, node, matrix, columns):
    """Weights of a node's entries that touch these columns only."""
    mine = np.zeros(node.size, dtype=bool)
    coo = coo_array(matrix)
    mine[coo.coords[0][np.isin(coo.coords[1], columns)]] = True
    weight = builder.nodes[node]
    return (weight * mine).reshape(len(weight), *node.shape)


def _check_domain(builder, touching):
    """Raise where the domain of a function inside another is no interval of one coordinate."""
    binder = builder.binder
    for node in binder.inside([node for node, _ in touching]):
        for i, interval in node.rule.intervals.items():
            inner = binder.kinds(node.forms[i])[1].any() and np.isfinite(interval).any()
            if inner and not _holds(node, i, interval):
                raise NoProx(f"the domain of {node.rule.name} in {text(node.expression)} is no interval")


def _holds(node, i, interval):
    """Whether an argument made of atoms is inside an interval by its sign."""
    args = getattr(node.expression, "args", [])
    return i < len(args) and tuple(interval) == (0.0, np.inf) and args[i].is_nonneg()
