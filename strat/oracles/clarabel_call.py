"""One call of Clarabel."""

from strat.oracles.clock import seconds_left

#: The accuracy that is accepted where rounding ends all.
ACCEPTED = 1e-7


def cones_of(kind, number, size, count):
    """Clarabel's cones for one cone of `count` instances; those made of half-lines are one."""
    import clarabel

    if kind in ("zero", "nonnegative"):
        return [{"zero": clarabel.ZeroConeT, "nonnegative": clarabel.NonnegativeConeT}[kind](size * count)]
    made = {
        "second order": clarabel.SecondOrderConeT,
        "psd": clarabel.PSDTriangleConeT,
        "exponential": lambda _: clarabel.ExponentialConeT(),
        "power": clarabel.PowerConeT,
    }
    return [made[kind](number) for _ in range(count)]


def solved(P, q, A, b, cones, accuracy):
    """The solution of min ½ xᵀ P x + qᵀ x with b - A x in the cones, asked for to an accuracy, as far as time allows."""
    import clarabel

    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_iter, settings.time_limit = False, 200, max(seconds_left(), 0.0)
    settings.direct_solve_method = (
        "qdldl"  # several times as fast as the other choice on all but dense graphs
    )
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = accuracy
    settings.reduced_tol_gap_abs = settings.reduced_tol_gap_rel = settings.reduced_tol_feas = ACCEPTED
    settings.equilibrate_min_scaling, settings.equilibrate_max_scaling = 1e-6, 1e6
    return clarabel.DefaultSolver(P, q, A, b, cones, settings).solve()


def gap_of(solution):
    """Between the primal and the dual objective."""
    return abs(solution.obj_val - solution.obj_val_dual)


def usable(solution, accepted):
    """Whether a solution is exact enough."""
    status = str(solution.status)
    if status in ("Solved", "AlmostSolved"):
        return True
    exact = max(solution.r_prim, solution.r_dual) <= accepted
    return status in ("InsufficientProgress", "MaxIterations", "NumericalError") and exact
