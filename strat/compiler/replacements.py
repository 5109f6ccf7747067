"""What to write instead of what is not convex by the rules of disciplined convex programming."""

from strat.compiler.expressions import eigenvalues
from strat.rules import atoms

CONCAVE = (
    "Minus it is convex: a loss is minimised. Write -cp.log(u), -cp.entr(u), -cp.log_det(S), cp.maximum(u, v) for "
    "cp.minimum(u, v), and cp.sum_largest(u, k) for cp.sum_smallest(u, k)."
)


def replacement(e):
    """What to write instead of the usual expressions that are not convex by CVXPY's rules."""
    line = str(e)
    if isinstance(e, atoms.log) and "exp(" in line:
        if isinstance(e.args[0], atoms.AddExpression) and "Sum(" not in line:
            return (
                "Write cp.logistic(z) for log(1 + exp(z)), and cp.log_sum_exp(cp.hstack([…])) for more terms."
            )
        return "Write cp.log_sum_exp(z) for log(sum(exp(z))), and cp.logistic(z) for log(1 + exp(z))."
    if isinstance(e, atoms.DivExpression):
        return (
            "Write cp.inv_pos(z) for 1/z, cp.quad_over_lin(u, z) for u**2/z; "
            "a logistic loss is cp.logistic(-y*z), not -log(1/(1 + exp(-z)))."
        )
    if isinstance(e, atoms.MulExpression):
        return (
            "A product of two expressions of the variables: write cp.square(u) for u * u, cp.sum_squares(u) for "
            "u @ u, cp.quad_form(u, P) for u.T @ P @ u, and the sum of cp.quad_form(T[:, j], L) over columns j for "
            "trace(T.T @ L @ T)."
        )
    if isinstance(e, atoms.Power):
        if (atoms.exponent(e) or 0) > 1:
            return "A power of a convex function is convex only where that is at least 0: write cp.square(cp.pos(u))."
        return "Write cp.norm(u, 2) for the square root of a sum of squares, and cp.abs(u) for that of one square."
    if isinstance(e, (atoms.QuadForm, atoms.MatrixFrac)):
        return _of_matrix(e)
    if isinstance(e, (atoms.minimum, atoms.min)):
        return (
            "The smaller of convex functions is not convex: for a loss that grows slowly far out write cp.huber(u), "
            "and cp.maximum(u, v) where the larger was meant."
        )
    if isinstance(e, (atoms.abs, atoms.norm1, atoms.Pnorm, atoms.norm_inf)):
        return "Absolute values and norms are convex where their argument is affine, or convex and at least 0: cp.pos(u)."
    if isinstance(e, atoms.log):
        return "A logarithm is concave: -cp.log(u) is convex where u is affine or concave."
    if isinstance(e, (atoms.exp, atoms.logistic, atoms.log_sum_exp, atoms.maximum, atoms.max)):
        return "It is convex where its arguments are: affine, or convex themselves, such as cp.exp(cp.square(u))."
    if e.is_quasiconvex() or e.is_quasiconcave():
        return (
            "It is quasiconvex or quasiconcave at best, which sums do not keep: bound it in a constraint, or take a "
            "convex function with the same meaning, such as cp.abs, cp.huber or cp.norm."
        )
    return (
        "Write it with convex functions of affine expressions; the documentation's table of rules lists them."
    )


def _of_matrix(e):
    """What is wrong with the matrix of a quadratic form."""
    matrix = e.args[1]
    if matrix.variables() or matrix.parameters() or not e.args[0].is_affine():
        return "The matrix of a quadratic form is a number or Parameter, positive semidefinite, and the vector is affine."
    low = eigenvalues(matrix.value)[0]
    return (
        f"Its matrix must be positive semidefinite, but it has the eigenvalue {low:.3g}; where only rounding makes it "
        f"negative, write cp.quad_form(u, cp.psd_wrap(P))."
    )
