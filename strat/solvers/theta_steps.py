"""Steps of NewtonCG in theta within the joint iteration, for the present W, where theta lags behind it."""

from strat.problem.graph_regularizers import FixedGraph
from strat.problem.joint_problem import JointProblem
from strat.solvers.newton import swap_graph
from strat.solvers.proximal_newton import ProximalNewton

MOST = 30  # steps in a row


def catch_up(x, z, curvature, goal):
    """Set z to what NewtonCG makes of x with the same W; return whether F is lower there, and its factorisations.

    Parameters
    ----------
    x, z : Point
        The iterate, evaluated, and memory for the new one.
    curvature : (K,) ndarray
        The curvature that every stratum's loss has shown.
    goal : float
        Residual in theta at which it stops.
    """
    problem = x.problem
    fixed = JointProblem(problem.loss, problem.regularizer, FixedGraph(), problem.edges, x.w, problem.couple)
    inner = ProximalNewton(fixed, x.theta, x.w, goal, curvature)
    start = inner.x.objective
    for _ in range(MOST):
        inner.step()
        if inner.stalled or inner.differentiate_x().residual()["theta"] <= goal:
            break
    if not inner.x.objective < start:
        return False, inner.factorizations
    z.theta[...] = inner.x.theta
    found = False
    swap_graph(x, z)
    try:
        z.evaluate_theta()
        z.add_laplacian()
        z.add_regularizer()
        found = z.objective <= x.objective + z.noise
        z.objective = min(z.objective, x.objective)
    finally:  # x is whole again, also after Ctrl-C
        if not found:
            swap_graph(x, z)
    return found, inner.factorizations
