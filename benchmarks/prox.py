"""The prox of regularizers for 1,000 strata of 20 numbers, against CVXPY.

Prints, for forms that are recognised, the seconds of one prox over all strata, of one CVXPY solve of the stacked
problem (built beforehand, so that only ``Problem.solve`` counts), their ratio and largest difference; and, for forms
that a dual method, an interior-point method or a solver serves, the seconds of the prox and of ``Problem.solve`` once a
stratum (built once, with Parameters). Seconds are of CPU time. CVXPY is asked for a relative gap of 1e-10, still less
than what the closed forms give, and less than the 1e-14 that the solver behind the last forms is asked for.
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
DUAL = [
    ("norm1(D w)", cp.norm1(D @ w), []),
    ("lasso with a quadratic form", cp.norm1(w) + cp.sum_squares(D @ w), []),
    ("polyhedron", cp.norm1(w), [D @ w <= 0.5]),
    ("l2 + l-infinity", cp.norm(w, 2) + cp.norm_inf(w), []),
    ("total variation + l2 on a simplex", cp.tv(w) + cp.norm(w, 2), [w >= 0, cp.sum(w) == 1]),
    ("overlapping groups", cp.norm(w[:8], 2) + cp.norm(w[5:14], 2) + cp.norm(w[12:], 2), []),
    ("l1 in a ball and a half space", cp.norm1(w), [cp.norm(w, 2) <= 1, w[0] + w[1] <= 0.3]),
    ("log-sum-exp + l1", cp.log_sum_exp(w) + cp.norm1(w), []),
    ("nuclear + l1", cp.normNuc(M) + cp.norm1(M), []),
    ("l3 + total variation", cp.norm(w, 3) + cp.tv(w), []),
    ("l2 + total variation in a box", cp.norm(w, 2) + cp.tv(w), [w >= -0.5, w <= 0.5]),
    ("three norms", cp.norm1(w) + cp.norm(w, 2) + cp.tv(w), []),
    ("logistic + total variation", cp.sum(cp.logistic(w)) + cp.tv(w), []),
    ("largest sums on a simplex", cp.sum_largest(D @ w, 4) / 4, [w >= 0, cp.sum(w) == 1]),
    ("monotone and convex", 0 * w[0], [cp.diff(w) >= 0, cp.diff(w, 2) >= 0]),
    ("Huber + total variation", cp.sum(cp.huber(w, 0.5)) + cp.tv(w), []),
    ("squares beyond a cap, on a simplex", 5 * cp.sum(cp.square(cp.pos(w - 0.2))), [w >= 0, cp.sum(w) == 1]),
    (
        "portfolio within an l1 ball",
        cp.sum_squares(D @ w),
        [w >= 0, cp.sum(w) == 1, cp.norm1(w - 1 / n) <= 0.5],
    ),
    (
        "costs of power 3/2 on a plane",
        0.3 * cp.sum(cp.power(cp.abs(w - 0.1), 1.5)) + cp.sum_squares(D @ w),
        [cp.sum(w) == 1],
    ),
    ("sparse + semidefinite", 0.3 * cp.norm1(P), [cp.trace(P) == 1]),
    ("sparse + log det", 0.3 * cp.norm1(cp.multiply(1 - np.eye(4), P)) - cp.log_det(P), []),
    ("squares over linear + l1", cp.quad_over_lin(w[:-1], w[-1]) + cp.norm1(w), []),
    ("second-order cone + l1", cp.norm1(w), [cp.norm(D[:5] @ w) <= 0.2 * w[0] + 0.5]),
    ("exponentials <= 15, + l1", cp.norm1(w), [cp.sum(cp.exp(w)) <= 15]),
    ("two log-sum-exps <= 2, + l1", cp.norm1(w), [cp.log_sum_exp(w[:12]) <= 2, cp.log_sum_exp(w[8:]) <= 2]),
    ("a sum of two log-sum-exps <= 6", 0 * w[0], [cp.log_sum_exp(D @ w) + cp.log_sum_exp(-D @ w) <= 6]),
    ("squares + log-sum-exp <= 5, + l1", cp.norm1(w), [cp.sum_squares(D @ w) + cp.log_sum_exp(w) <= 5]),
    ("logistic losses <= 8, + l1", cp.norm1(w), [cp.sum(cp.logistic(D @ w)) <= 8]),
    ("l2 + squares <= 2", 0 * w[0], [cp.norm(w, 2) + cp.sum_squares(w) <= 2]),
    (
        "relative entropy on a simplex",
        0 * w[0],
        [cp.sum(cp.kl_div(w, np.full(n, 1 / n))) <= 0.1, cp.sum(w) == 1],
    ),
    ("logarithms >= -5", 0 * w[0], [-cp.sum(cp.log(w)) <= 5]),
    ("geometric mean >= 0.5", cp.sum(w), [cp.geo_mean(w) >= 0.5]),
    ("cubes <= 2", 0 * w[0], [cp.sum(cp.power(w, 3)) <= 2, w >= 0]),
    ("quadratic form <= 1, + l1", cp.norm1(w), [cp.quad_form(w, D.T @ D / n) <= 1]),
    ("entropy >= 2.5 on a plane", 0 * w[0], [cp.sum(cp.entr(w)) >= 2.5, cp.sum(w) == 1]),
    ("largest column sum", cp.norm(M, 1), []),
    ("the larger of two norms", cp.maximum(cp.norm(w, 2), cp.norm1(w) / 4), []),
    ("square of the l1 norm", cp.square(cp.norm1(w)) / 4, []),
    ("what a norm exceeds 1 by, + l1", cp.pos(cp.norm(w, 2) - 1) + cp.norm1(w) / 10, []),
]
#: Where little is gained.
SLOW = [
    (
        "the largest of three norms",
        cp.maximum(cp.norm(w[:8], 2), cp.norm1(w[5:14]), cp.norm_inf(w[10:])),
        [],
    ),
    ("nuclear + Frobenius <= 2", 0 * M[0, 0], [cp.normNuc(M) + cp.norm(M, "fro") <= 2]),
    ("squares over linear <= 1, + l1", cp.norm1(w), [cp.quad_over_lin(w[:-1], w[-1] + 2) <= 1]),
    ("log-sum-exp of two norms", cp.log_sum_exp(cp.hstack([cp.norm(w, 2), cp.norm1(w)])), []),
]


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
    """Seconds of ``Problem.solve`` for each stratum, and the solutions: nan where Clarabel fails."""
    (x,) = expression.variables()
    p = cp.Parameter(x.shape)
    problem = cp.Problem(cp.Minimize(expression + cp.sum_squares(x - p) / 2), constraints)
    p.value = v[0].reshape(x.shape)
    problem.get_problem_data(cp.CLARABEL)
    out, start = [], process_time()
    for row in v:
        p.value = row.reshape(x.shape)
        try:
            problem.solve(**TIGHT)
            out.append(x.value.reshape(-1))
        except cp.error.SolverError:
            out.append(np.full(x.size, np.nan))
    return process_time() - start, np.stack(out)


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
        gap = np.abs(read() - z).max()
        print(
            f"{name:34} {prox.kind:22} {1e3 * ours:9.3f} ms   CVXPY {theirs:6.2f} s   {theirs / ours:9.0f}x   {gap:.0e}"
        )
    for name, expression, constraints in DUAL + SLOW:
        prox = strat.compile(expression, constraints=constraints).bind().flat.prox
        (x,) = expression.variables()
        own = v[:, : x.size]
        ours, z = seconds(lambda prox=prox, own=own: prox(own, 1.0), 2)
        theirs, other = one_by_one(expression, constraints, own)
        gap, failed = np.nanmax(np.abs(z - other)), np.isnan(other).any(axis=1).sum()
        kind = prox.kind.split(",")[0]
        print(
            f"{name:34} {kind:22} {1e3 * ours:9.1f} ms   CVXPY {theirs:6.2f} s   {theirs / ours:9.0f}x   {gap:.0e}"
            + f"   (CVXPY fails on {failed})" * bool(failed)
        )


if __name__ == "__main__":
    main()
