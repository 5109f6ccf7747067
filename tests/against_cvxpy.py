"""Reference answers: values and proxes from CVXPY, derivatives from differences."""

import warnings

import cvxpy as cp
import numpy as np

from strat.compiler.expressions import folded, rebuilt, with_sign
from strat.compiler.pieces import attribute_constraints

#: From the most accurate to what every problem gets.
ACCURACIES = [dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), t) for t in (1e-12, 1e-9, 1e-8)]


def saved(values):
    """Set leaves' values without CVXPY's checks."""
    for leaf, value in values:
        leaf.save_value(value)


def value_at(expression, point):
    """CVXPY's value with leaves set to ``{leaf: value}``; nan is +inf."""
    saved(point.items())
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            value = float(np.asarray(expression.value).item())
    finally:
        saved((leaf, None) for leaf in point)
    return np.inf if np.isnan(value) else value


def values_at(expression, variables, point, data=(), arrays=(), index=None):
    """CVXPY's sum over the records of each stratum (or its value at each stratum without data), (K,)."""
    K = len(next(iter(point.values())))
    if not data:
        return np.array([value_at(expression, {v: point[v.name()][k] for v in variables}) for k in range(K)])
    out = np.zeros(K)
    for i, k in enumerate(index):
        leaves = {v: point[v.name()][k] for v in variables}
        out[k] += value_at(expression, leaves | {p: a[i] for p, a in zip(data, arrays, strict=True)})
    return out


def prox_by_cvxpy(expression, variables, v, steps, constraints=(), data=(), arrays=(), index=()):
    """argmin of each stratum's sum plus ‖z − v‖²/(2t), all strata in one CVXPY problem: ``{name: (K, *shape)}``."""
    K, total, limits, found = len(steps), 0, [], []
    for k in range(K):
        signs = [{name: x.attributes[name] for name in ("nonneg", "nonpos")} for x in variables]
        fresh = {x.name(): cp.Variable(x.shape, **own) for x, own in zip(variables, signs, strict=True)}
        found.append(fresh)
        own = {id(x): with_sign(x, fresh[x.name()]) for x in variables}
        rows = np.flatnonzero(np.asarray(index) == k) if data else [None]
        for i in rows:
            record = zip(data, arrays, strict=True) if data else ()
            total = total + folded(expression, own | {id(p): cp.Constant(a[i]) for p, a in record})
        total += sum(cp.sum_squares(z - v[name][k]) for name, z in fresh.items()) / (2 * steps[k])
        limits += [c.copy([folded(e, own) for e in c.args]) for c in constraints]
        for x in variables:
            limits += attribute_constraints(x, fresh[x.name()])
    problem = cp.Problem(cp.Minimize(total), limits)
    with warnings.catch_warnings(action="ignore"):
        for options in ACCURACIES:
            try:
                problem.solve(solver=cp.CLARABEL, **options)
                break
            except cp.error.SolverError:
                continue
    if problem.status not in ("optimal", "optimal_inaccurate"):
        return None
    return {x.name(): np.stack([fresh[x.name()].value for fresh in found]) for x in variables}


def violation(constraints, variables, point, k):
    """Largest violation of the constraints and attributes at stratum k."""
    fresh = {x.name(): cp.Variable(x.shape) for x in variables}
    own = {id(x): fresh[x.name()] for x in variables}
    limits = [c.copy([rebuilt(e, own) for e in c.args]) for c in constraints]
    for x in variables:
        limits += attribute_constraints(x, fresh[x.name()])
        fresh[x.name()].save_value(point[x.name()][k])
    return max((float(np.max(c.violation())) for c in limits), default=0.0)


def directions(variables, K, rng):
    """Random directions by variable name, symmetric for symmetric variables."""
    out = {v.name(): rng.normal(size=(K, *v.shape)) for v in variables}
    for v in variables:
        if v.is_symmetric() and v.ndim == 2:
            out[v.name()] = 0.5 * (out[v.name()] + np.swapaxes(out[v.name()], 1, 2))
    return out


def assert_derivatives(oracle, variables, point, rng, second=True, h=1e-5):
    """The gradient along a direction is the slope of values, and the Hessian product that of gradients, by five points."""
    value, gradient = oracle.value_and_gradient(point)
    np.testing.assert_allclose(value, oracle.value(point), rtol=1e-12, atol=1e-12)
    step = directions(variables, len(value), rng)
    moved = [{name: part + d * h * step[name] for name, part in point.items()} for d in (-2, -1, 1, 2)]

    def slopes(sides):
        return (sides[0] - 8 * sides[1] + 8 * sides[2] - sides[3]) / (12 * h)

    sides = [oracle.value(at) for at in moved]
    slope, known = slopes(sides), np.isfinite(value) & np.all(np.isfinite(sides), axis=0)
    ours = sum((gradient[name] * step[name]).reshape(len(value), -1).sum(axis=1) for name in step)
    size = 1 + np.abs(slope) + 1e-9 * np.abs(value) / h
    assert np.all(np.abs(ours - slope)[known] <= 1e-6 * size[known])
    if second and oracle.flat.has("hessian_operator"):
        product, gradients = oracle.hvp(point, step), [oracle.gradient(at) for at in moved]
        size = 1 + max(np.abs(part).max() for part in product.values())
        for name, part in product.items():
            wanted = slopes([side[name] for side in gradients])
            np.testing.assert_allclose(part, wanted, rtol=1e-5, atol=1e-5 * size)


def assert_same_prox(
    oracle, variables, z, v, steps, reference, constraints=(), tolerance=1e-6, feasible=1e-7, gap=1e-11
):
    """z is the reference to the tolerance, or, where CVXPY was inaccurate, a feasible point that is no worse."""
    steps = np.asarray(steps, dtype=float)

    def objective(point):
        square = sum(((point[name] - v[name]) ** 2).reshape(len(steps), -1).sum(axis=1) for name in v)
        return oracle.value(point) + square / (2 * steps)

    ours = objective(z)
    assert np.all(np.isfinite(ours)), "the prox lies outside the domain"
    for k in range(len(steps)):
        assert violation(constraints, variables, z, k) <= feasible
        if reference is None:
            continue
        scale = 1 + max(np.abs(reference[name][k]).max() for name in v)
        far = max(np.abs(z[name][k] - reference[name][k]).max() for name in v)
        if far <= tolerance * scale:
            continue
        theirs = objective({name: np.where(np.isnan(r), 0, r) for name, r in reference.items()})[k]
        assert ours[k] <= theirs + gap * (1 + abs(ours[k])), f"stratum {k} differs by {far:.1e} and is worse"
