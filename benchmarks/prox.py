"""The prox of regularizers for 1,000 strata of 20 numbers, against CVXPY.

    OPENBLAS_NUM_THREADS=1 python benchmarks/prox.py

CPU seconds. First table, closed forms: one prox of all strata, and one CVXPY solve of the stacked problem, which was built
beforehand, so that only ``Problem.solve`` counts. Second table, forms without one: one cone program of all strata, and
``Problem.solve`` stratum by stratum, of one problem with a Parameter; 100 strata are solved, and their seconds are multiplied
by 10. The last columns are the ratio and the largest difference of the solutions. CVXPY is asked for a relative gap of 1e-10.
"""

import warnings
from time import process_time

import cvxpy as cp
import numpy as np

import strat

K, n = 1000, 20
TIGHT = {"solver": cp.CLARABEL, "tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
w = cp.Variable(n, name="w")
M = cp.Variable((4, 5), name="M")
P = cp.Variable((4, 4), PSD=True, name="P")
STACKED = cp.Variable((K, n))

#: name, the regularizer and constraints of one stratum, and those of all strata together in CVXPY.
FORMS = [
    ("l1", cp.norm1(w), [], cp.sum(cp.abs(STACKED)), []),
    (
        "elastic net",
        cp.norm1(w) + cp.sum_squares(w),
        [],
        cp.sum(cp.abs(STACKED)) + cp.sum_squares(STACKED),
        [],
    ),
    ("group", cp.norm(w, 2), [], cp.sum(cp.norm(STACKED, 2, axis=1)), []),
    ("largest", cp.norm_inf(w), [], cp.sum(cp.norm(STACKED, "inf", axis=1)), []),
    ("l1 ball", 0, [cp.norm1(w) <= 2], 0, [cp.norm(STACKED, 1, axis=1) <= 2]),
    ("simplex", 0, [w >= 0, cp.sum(w) == 1], 0, [STACKED >= 0, cp.sum(STACKED, axis=1) == 1]),
    ("monotone", 0, [cp.diff(w) >= 0], 0, [STACKED[:, 1:] >= STACKED[:, :-1]]),
    ("total variation", cp.tv(w), [], cp.sum(cp.abs(STACKED[:, 1:] - STACKED[:, :-1])), []),
    (
        "fused lasso",
        cp.norm1(w) + cp.tv(w),
        [],
        cp.sum(cp.abs(STACKED)) + cp.sum(cp.abs(STACKED[:, 1:] - STACKED[:, :-1])),
        [],
    ),
    ("huber", cp.sum(cp.huber(w, 0.5)), [], cp.sum(cp.huber(STACKED, 0.5)), []),
    ("entropy", -cp.sum(cp.entr(w)), [], -cp.sum(cp.entr(STACKED)), []),
    ("sum of 3 largest", cp.sum_largest(cp.abs(w), 3), [], None, []),
    ("nuclear", cp.normNuc(M), [], None, []),
    ("rows sum to 0", 0, [cp.sum(M, axis=1) == 0], None, []),
]
D = np.random.default_rng(1).normal(size=(12, n))
#: Name, regularizer and constraints of one stratum.
CONES = [
    ("norm1(D w)", cp.norm1(D @ w), []),
    ("l2 + l-infinity", cp.norm(w, 2) + cp.norm_inf(w), []),
    ("overlapping groups", cp.norm(w[:8], 2) + cp.norm(w[5:14], 2) + cp.norm(w[12:], 2), []),
    ("square of the l1 norm", cp.square(cp.norm1(w)) / 4, []),
    ("the larger of two norms", cp.maximum(cp.norm(w, 2), cp.norm1(w) / 4), []),
    ("l3 + total variation", cp.norm(w, 3) + cp.tv(w), []),
    ("log-sum-exp + l1", cp.log_sum_exp(w) + cp.norm1(w), []),
    ("nuclear + l1", cp.normNuc(M) + cp.norm1(M), []),
    ("sparse + log det", 0.3 * cp.norm1(cp.multiply(1 - np.eye(4), P)) - cp.log_det(P), []),
    ("sparse + semidefinite", 0.3 * cp.norm1(P), [cp.trace(P) == 1]),
    ("polyhedron + l1", cp.norm1(w), [D @ w <= 0.5]),
    ("ball and half space + l1", cp.norm1(w), [cp.norm(w, 2) <= 1, w[0] + w[1] <= 0.3]),
    ("second-order cone + l1", cp.norm1(w), [cp.norm(D[:5] @ w) <= 0.2 * w[0] + 0.5]),
    ("quadratic form <= 1, + l1", cp.norm1(w), [cp.quad_form(w, D.T @ D / n) <= 1]),
    ("exponentials <= 15, + l1", cp.norm1(w), [cp.sum(cp.exp(w)) <= 15]),
    ("monotone and convex", 0 * w[0], [cp.diff(w) >= 0, cp.diff(w, 2) >= 0]),
    ("largest sums on a simplex", cp.sum_largest(D @ w, 4) / 4, [w >= 0, cp.sum(w) == 1]),
    (
        "relative entropy on a simplex",
        0 * w[0],
        [cp.sum(cp.kl_div(w, np.full(n, 1 / n))) <= 0.1, cp.sum(w) == 1],
    ),
    ("geometric mean >= 0.5", cp.sum(w), [cp.geo_mean(w) >= 0.5]),
]
#: Strata that are solved one by one.
ALONE = 100


def seconds(call, repeats):
    """The fastest of some calls, and the last result."""
    best, out = np.inf, None
    for _ in range(repeats):
        start = process_time()
        out = call()
        best = min(best, process_time() - start)
    return best, out


def stacked(expression, constraints, total, limits, v):
    """CVXPY's problem of all strata, and the variable."""
    if total is not None:
        return cp.Problem(cp.Minimize(total + cp.sum_squares(STACKED - v) / 2), limits), lambda: STACKED.value
    (x,) = {
        z.id: z
        for e in (expression, *constraints)
        if isinstance(e, (cp.Expression, cp.Constraint))
        for z in e.variables()
    }.values()
    copies, parts, limits = [], [], []
    for k in range(K):
        y = cp.Variable(x.shape)
        copies.append(y)
        if isinstance(expression, cp.Expression):
            parts.append(cp.sum_largest(cp.abs(y), 3) if x is w else cp.normNuc(y))
        limits += [cp.sum(y, axis=1) == 0 for _ in constraints]
        parts.append(cp.sum_squares(y - v[k].reshape(x.shape)) / 2)
    problem = cp.Problem(cp.Minimize(cp.sum(cp.hstack(parts))), limits)
    return problem, lambda: np.stack([np.asarray(y.value).reshape(-1) for y in copies])


def one_by_one(expression, constraints, v):
    """Seconds of ``Problem.solve`` for each row of v, and the solutions: nan where Clarabel fails."""
    (x,) = expression.variables()
    p = cp.Parameter(x.shape)
    problem = cp.Problem(cp.Minimize(expression + cp.sum_squares(x - p) / 2), constraints)
    p.value = v[0].reshape(x.shape)
    problem.get_problem_data(cp.CLARABEL)
    solutions, start = [], process_time()
    for row in v:
        p.value = row.reshape(x.shape)
        try:
            problem.solve(**TIGHT)
            solutions.append(x.value.reshape(-1))
        except cp.error.SolverError:
            solutions.append(np.full(x.size, np.nan))
    return process_time() - start, np.stack(solutions)


def show(name, kind, ours, theirs, gap, note=""):
    """Print one row."""
    print(
        f"{name:30}{kind:22}{1e3 * ours:10.3f} ms   CVXPY {theirs:6.2f} s{theirs / ours:9.0f}x{gap:9.0e}{note}",
        flush=True,
    )


def main():
    """Print both tables."""
    warnings.simplefilter("ignore")
    v = np.random.default_rng(0).normal(size=(K, n))
    for name, expression, constraints, total, limits in FORMS:
        prox = strat.compile(expression, constraints=constraints).bind().flat.prox
        ours, z = seconds(lambda prox=prox: prox(v, 1.0), 5)
        problem, read = stacked(expression, constraints, total, limits, v)
        problem.get_problem_data(cp.CLARABEL)
        theirs, _ = seconds(lambda problem=problem: problem.solve(**TIGHT), 1)
        show(name, prox.kind, ours, theirs, np.abs(read() - z).max())
    for name, expression, constraints in CONES:
        prox = strat.compile(expression, constraints=constraints).bind().flat.prox
        (x,) = expression.variables()
        points = v[:, : x.size]
        prox(points[:2], 1.0)  # CVXPY writes the cone program of one stratum, once
        ours, z = seconds(lambda prox=prox, points=points: prox(points, 1.0), 2)
        theirs, alone = one_by_one(expression, constraints, points[:ALONE])
        failed = np.isnan(alone).any(axis=1).sum()
        gap = np.nanmax(np.abs(z[:ALONE] - alone))
        note = f"   (CVXPY fails on {failed} of {ALONE})" if failed else ""
        show(name, prox.kind.split(",")[0], ours, theirs * K / ALONE, gap, note)


if __name__ == "__main__":
    main()
