"""The prox of a loss bound to records: quadratics in closed form, smooth ones by Newton, kinks and domains by rows."""

import numpy as np

from strat.compiler.bind import Assembly, first_kink
from strat.compiler.pieces import affine_rows
from strat.compiler.prox import ProxBuilder
from strat.compiler.rows import NoProx, StratumRows, stacked
from strat.compiler.sets import Sets
from strat.compiler.smoothing import merged
from strat.oracles.prox_newton import NewtonProx
from strat.oracles.prox_quadratic import QuadraticProx
from strat.oracles.prox_rows import RowsProx
from strat.oracles.quadratic import Quadratic
from strat.oracles.row_functions import PiecewiseRows, ScalarRows
from strat.oracles.row_terms import RowTerm, row_norms
from strat.oracles.sum import SumOracle
from strat.oracles.tape import Tape
from strat.rules.base import Elementwise
from strat.rules.matrices import LogDetRule, TraceInverse
from strat.rules.piecewise import Abs

#: Scalars in a stratum up to which systems are factorised.
DENSE = 3000


def record_prox(form, assembly, sets, layout, rescue=None):
    """The prox of Σ_records form over bounds and affine constraints; ``rescue`` is another prox, slow and safe, or None.

    Raises
    ------
    NoProx
        With the reason.
    """
    binder = assembly.binder
    implied = _positive_definite(binder, assembly, layout)
    sets.cones = {name: cone for name, cone in sets.cones.items() if cone != "PSD" or name not in implied}
    if sets.cones or sets.balls or sets.levels or sets.matrices or sets.other:
        raise NoProx("the losses of records share the variables with constraints")
    if not sets.restrict and not assembly.roots:
        return QuadraticProx(_summed(assembly.parts(), binder.n), sets.transposed)
    nodes = binder.nodes(assembly.roots)
    smooth = first_kink(binder, assembly.roots) is None and all(node.rule.curved for node in nodes)
    restricted = [node for node in assembly.roots if any(n.rule.restricted for n in binder.nodes([node]))]
    if smooth and not restricted and not sets.restrict:
        return NewtonProx(assembly.oracle(), sets.transposed, rescue=rescue)
    try:
        rows = _by_rows(form, assembly, sets, every=False)
        rows.rescue = rescue
        return rows
    except NoProx as error:
        inner = [node for node in restricted if not binder.node_has_data(node)]
        if not smooth or sets.restrict or len(inner) < len(restricted):
            raise error from None
    # What restricts the variables has a prox of its own, which leads into its domain.
    weights = {node: assembly.roots[node] for node in restricted}
    start = Sets(binder.n)
    start.transposed = sets.transposed
    zero = np.zeros((1, binder.n))
    inside = ProxBuilder(binder, weights, zero, start, layout, assembly.active).build()
    return NewtonProx(assembly.oracle(), sets.transposed, inside, rescue=rescue, active=assembly.active)


def _positive_definite(binder, assembly, layout):
    """Names of the variables that an atom such as log det keeps positive definite."""
    names = set()
    for node in assembly.roots:
        if not isinstance(node.rule, (LogDetRule, TraceInverse)) or binder.node_has_data(node):
            continue
        rows = affine_rows(binder, node.forms[0])
        if rows is None or np.any(rows[3]) or np.any(rows[2] != rows[2][0]) or rows[2][0] <= 0:
            continue
        names |= {
            name for name, s in layout.slices.items() if np.array_equal(rows[1], np.arange(s.start, s.stop))
        }
    return names


def _by_rows(form, assembly, sets, every):
    """A dual method; ``every`` asks for elementwise atoms as rows though they are smooth."""
    binder = assembly.binder
    if binder.n > DENSE:
        raise NoProx(f"it would need systems of {binder.n} equations in every stratum")
    groups, left = merged(form, binder)
    rest = Assembly(left, binder, assembly.weight)
    terms = [_piecewise(binder, assembly.weight, *group) for group in groups]
    smooth = {}
    for node, weight in rest.roots.items():
        term = _scalar(binder, node, weight, every)
        if term is not None:
            terms.append(term)
        elif any(n.rule.restricted or not n.rule.curved for n in binder.nodes([node])) or first_kink(
            binder, [node]
        ):
            raise NoProx(f"{node.rule.name} of records has no prox together with the other pieces")
        else:
            smooth[node] = weight
    affine = StratumRows(binder, np.arange(binder.n))
    for A, b in sets.equalities:
        affine.within(A, b, b)
    for A, b in sets.inequalities:
        affine.within(A, -np.inf, b)
    bounded = np.flatnonzero(np.isfinite(sets.low) | np.isfinite(sets.high))
    if len(bounded):
        affine.bounds(bounded, sets.low[bounded], sets.high[bounded])
    terms += affine.terms
    low, high = _domains(binder, rest.roots, sets)
    bounded = np.isfinite(low).any() or np.isfinite(high).any()
    rest.roots = {}
    parts = rest.parts()
    if smooth:
        weights = {binder.node(node): w.reshape(-1, *node.shape) for node, w in smooth.items()}
        parts.append(Tape(binder.nodes(smooth), weights, binder.segments, binder.n, assembly.active))
    box = (low, high) if bounded else None
    return RowsProx(np.arange(binder.n), terms, _summed(parts, binder.n), sets.transposed, box)


def _domains(binder, roots, sets):
    """Bounds of the coordinates, those included which are the arguments of atoms with a domain."""
    low, high = sets.low.copy(), sets.high.copy()
    for node in roots:
        for place, ends in dict(node.rule.intervals).items() if isinstance(node.rule, Elementwise) else ():
            rows = affine_rows(binder, node.forms[place])
            if node.rule.restricted and rows is not None:
                _, columns, scale, offset = rows
                ends = np.sort((np.array(ends, dtype=float)[:, None] - offset) / scale, axis=0)
                np.maximum.at(low, columns, ends[0])
                np.minimum.at(high, columns, ends[1])
    return low, high


def _summed(parts, n):
    """One quadratic, or the sum of the parts."""
    if not all(isinstance(part, Quadratic) for part in parts):
        return SumOracle(parts, n)
    K = max(len(part.g) for part in parts)
    zero = np.zeros((K, n))
    g = sum(part.value_and_gradient(zero)[1] for part in parts)
    H = sum(part.hessian(zero) for part in parts)
    return Quadratic(np.zeros(K), g, H if np.any(H) else None)


def _term(binder, form, functions):
    segments = binder.segments
    bound = binder.form(form, True)
    if bound.inner or bound.design is None:
        raise NoProx("an argument is no affine function of the variables")
    offset = np.zeros((1, bound.m)) if bound.offset is None else bound.offset
    return RowTerm(bound.design, offset, functions, segments, row_norms(bound.design))


def _piecewise(binder, weight, direction, coefficient, function):
    """Rows of one merged piecewise linear function."""
    knots, slopes = stacked([function])
    scale = binder.evaluator.columns(np.array([coefficient]))
    scale = scale.toarray() if hasattr(scale, "toarray") else scale
    return _term(binder, direction.form(), PiecewiseRows(knots, slopes, scale * weight[:, None]))


def _scalar(binder, node, weight, every):
    """Rows of an elementwise atom of affine forms, or None."""
    rule = node.rule
    if (
        not isinstance(rule, Elementwise)
        or not rule.curved
        or not (every or rule.restricted or rule.kinks != "none")
    ):
        return None
    varying = [i for i, form in enumerate(node.forms) if not form.is_data]
    if len(varying) != 1:
        return None
    (place,) = varying
    form, absolute = node.forms[place], False
    inner = binder.atoms_of(form)
    if inner:
        form = _inside(binder, form, inner)
        absolute = True
        if form is None or place:
            return None
    segments, m = binder.segments, node.size
    others = [binder.evaluator.form(f) for i, f in enumerate(node.forms) if i != place]
    low, high = dict(rule.intervals).get(place, (-np.inf, np.inf))
    weights = np.broadcast_to(weight, (segments.N if binder.node_has_data(node) else segments.K, m))
    if not binder.node_has_data(node):  # the sum over records stands on strata
        bound = binder.form(form, False)
        if bound.inner or bound.design is None:
            return None
        offset = np.zeros((1, m)) if bound.offset is None else bound.offset
        limits = _limits(1, m, low, high)
        functions = ScalarRows(rule, others, weights, *limits, place=place, absolute=absolute)
        return RowTerm(bound.design, offset, functions, None, row_norms(bound.design))
    functions = ScalarRows(rule, others, weights, *_limits(1, m, low, high), place=place, absolute=absolute)
    term = _term(binder, form, functions)
    if rule.restricted and not absolute:
        # The rows agree with the functions' arguments up to rounding only, and must not leave the domain by it.
        inner = 1e-11 * (1.0 + np.abs(term.offset).max(initial=0.0))
        functions.low, functions.high = functions.low + inner, functions.high - inner
    return term


def _limits(rows, m, low, high):
    """Bounds (rows, m)."""
    return np.full((rows, m), low), np.full((rows, m), high)


def _inside(binder, form, inner):
    """The form u where the given one is |u|, else None."""
    node = inner[0][0]
    plain = len(inner) == 1 and isinstance(node.rule, Abs) and len(form.row) == form.size == node.size
    same = plain and np.array_equal(form.column, node.ids.reshape(-1)) and np.all(form.scale == 1.0)
    return node.forms[0] if same and not form.coefficient.any() else None
