"""The default solver, starting points, and the choice among several of them.

The joint problem has many critical points; which one a solver reaches depends on the start. The starts are:

* "default": the same as "zero", which reached the lowest objective most often in trials.
* "zero": theta is the regularizer's prox at 0 with step 1, in units of the columns where these are far from 1. Where the loss
  is not finite there, the stratum starts at the prox of loss plus regularizer. W = W0.
* "separate": theta fitted without any graph, W = W0.
* "lrsm": theta fitted for W = W0, which is kept.
* "random": "zero" with noise of the size of the "lrsm" parameters.
Where W0 is not in the domain of h (its weights do not have a given sum, or a degree in a logarithm is 0), W is the best
graph for theta instead.
"""

import copy
import time
import warnings
from contextlib import nullcontext, suppress
from functools import partial

import numpy as np

from strat.errors import ConvergenceWarning, NoOracleError, OptionError
from strat.oracles.clock import OutOfTime, within
from strat.solvers.admm import ADMM
from strat.solvers.algorithm import for_given_graph, has_cones, needs_cones
from strat.solvers.alternating import AlternatingMinimization
from strat.solvers.cone import Cone
from strat.solvers.empty_strata import fill, rejoined
from strat.solvers.joint_steps import graph_step
from strat.solvers.mapg import MAPG
from strat.solvers.proximal_newton import NewtonCG
from strat.solvers.units import Units

NAMES = ("default", "zero", "separate", "lrsm", "random")
ROUGH = 1e-3  # tolerance of the fits that only give a start
ROUGH_ITERATIONS, ROUNDING = 50, 1e-12


def default_solver(loss, learned, regularizer=None):
    """The solver for a loss at the records, a graph that is learned or given, and a regularizer if it is known already."""
    if learned:
        return MAPG() if loss.has("value_and_gradient") else AlternatingMinimization()
    curved = loss.has("hessian_operator")
    closed = not getattr(getattr(regularizer, "prox", None), "costly", False)
    if curved and closed:
        return NewtonCG()
    # The cones are checked last, as checking them writes them.
    if curved or (not (closed and loss.has("value_and_gradient")) and has_cones(loss)):
        return Cone()
    return MAPG() if loss.has("value_and_gradient") else ADMM()


def needs_prox(solver):
    """Whether a solver, or None, needs the prox of the loss."""
    return getattr(solver, "needs", {}).get("loss") == "prox"


def solve(
    problem, solver, start=None, *, n_starts=1, random_state=0, score=None, fingerprint="", started=None
):
    """Solve a problem from one or several starts and keep the best, by `score` or else by objective, as a Result.

    `start`, a name or ``{"theta": (K, n), "w": edge array}`` in parts, comes first of `n_starts`, then those of `NAMES`, then
    random ones, seeded by `random_state`. `fingerprint` identifies the fit in a checkpoint, of which several starts write one
    file each. `started` is when the whole call began, by ``time.perf_counter()``.
    """
    solver.validate()
    solver._check(problem)
    best, best_key, tried = None, np.inf, []
    started = time.perf_counter() if started is None else started
    limit = partial(within, solver.time_limit, started)
    first = ("given", start) if isinstance(start, dict) else (start or "default", start or "default")
    plan = [first] + [(name, name) for name in NAMES[:-1] if name != first[0]]
    plan += [(f"random {i}", "random") for i in range(1, n_starts)]
    for index, (name, given) in enumerate(plan[:n_starts]):
        if name == "zero" and tried and tried[0]["init"] == "default":
            tried.append({**tried[0], "init": name})  # the same start
            continue
        one = copy.copy(solver)
        if index and solver.time_limit is not None and time.perf_counter() - started >= solver.time_limit:
            break
        if n_starts > 1 and solver.checkpoint is not None:
            one.checkpoint = f"{solver.checkpoint}.{index}"
        theta, w = point(problem, given, random_state + index, limit)
        result = one._run(problem, theta, w, score=score, fingerprint=fingerprint, init=name, started=started)
        tried.append({"init": name, "objective": result.objective, "status": result.status})
        key = result.objective if score is None else score(result.theta)
        if best is None or key < best_key:
            best, best_key = result, key
        if result.status == "interrupted":
            break
    if best.status == "converged" and problem.empty is not None:
        before = time.perf_counter()
        with limit(), suppress(NoOracleError, OutOfTime):  # the best result so far is kept
            if problem.learned:
                best = _again(problem, solver, best, score, started)
            fill(problem, best, solver.tol, default_solver)
        best.seconds += time.perf_counter() - before
    best.starts = tried
    best.seconds = time.perf_counter() - started if n_starts > 1 else best.seconds
    return best


def _again(problem, solver, first, score, started):
    """The result of a joint fit, or of a second fit from there with all strata joined to records, if that is better."""
    theta = rejoined(problem, first)
    if theta is None:
        return first
    solver = copy.copy(solver)
    solver.checkpoint = None  # the first fit owns it
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        w = graph_step(problem, theta).w
        again = solver._run(problem, theta, w, score=score, init=first.init, started=started)
    if again.status == "interrupted":
        first.status = again.status
    lower = again.objective < first.objective - ROUNDING * (1 + abs(first.objective))
    known, judged = (0.0, 0.0) if score is None else (score(first.theta), score(again.theta))
    if again.status not in ("converged", "early_stopped") or not lower or judged > known + ROUGH * abs(known):
        return first
    again.history = first.history + [min(f, first.objective) for f in again.history[1:]]
    again.history_seconds = first.history_seconds + again.history_seconds[1:]
    again.iterations, again.seconds = again.iterations + first.iterations, first.seconds
    again.factorizations += first.factorizations
    return again


def point(problem, start, seed=0, limit=nullcontext):
    """The starting point (theta, w) of a name or a dict; any fits that it takes run inside ``limit()``."""
    given = start if isinstance(start, dict) else {}
    name = "default" if isinstance(start, dict) else start
    if name not in NAMES:
        raise OptionError(f"init = {name!r} is unknown: it must be one of {', '.join(NAMES[1:])}, or a dict.")
    theta = given.get("theta")
    if theta is None or np.isnan(theta).any():
        default = _theta(problem, name, seed, limit)
        theta = default if theta is None else np.where(np.isnan(theta), default, theta)
    if "theta" in given:  # projected where it violates constraints, as F there may be below its minimum
        theta = np.array(theta, dtype=float)
        projected = problem.project(theta)
        theta = np.where(np.abs(projected - theta) > 1e-12 * (1 + np.abs(theta)), projected, theta)
        theta = inside(problem, theta)
    if not problem.learned:
        return theta, problem.w0
    if "w" in given:
        if not problem.feasible(given["w"]):
            raise OptionError(
                f'init["W"] is not in the domain of {problem.graph_regularizer!r}. '
                "Give weights that meet its constraints, or leave W out: the graph step gives the best ones."
            )
        return theta, given["w"]
    if problem.feasible(problem.w0):
        return theta, problem.w0
    return theta, graph_step(problem, theta).w


def zero(problem):
    """Parameters of the start "zero", shape (K, n)."""
    theta = np.zeros((problem.K, problem.n))
    free = not getattr(problem.regularizer.prox, "restricted", True) and not problem.learned
    finite = free and needs_cones(problem) and np.isfinite(problem.regularizer.value(theta)).all()
    if finite and problem.inside(theta).all():
        return theta  # the fit is convex, so that any start will do, and the prox costs as much as the fit
    if problem.raw:
        units = Units(problem, theta)
        theta = units.outside(units.problem.prox(theta, 1.0))
    else:
        theta = problem.prox(theta, 1.0)
    theta[np.abs(theta) * np.maximum(problem.sizes, 1.0) < ROUNDING] = 0.0  # else it may lie beside a pole
    theta = theta if theta.any() else np.zeros(theta.shape)  # fresh zeros take no memory until written to
    return inside(problem, theta)


def inside(problem, theta):
    """theta, with other parameters in the strata where the loss or its gradient is not finite there."""
    bad = np.zeros(1) if problem.loss.quadratic else ~problem.inside(theta)
    return problem.start_point(theta, bad) if bad.any() and problem.start_point is not None else theta


def _theta(problem, name, seed, limit):
    theta = zero(problem)
    if name in ("default", "zero"):
        return theta
    # A rough fit, as far as time allows.
    fixed = for_given_graph(problem, problem.edges.zeros() if name == "separate" else problem.w0)
    solver = default_solver(problem.loss, False, problem.regularizer)
    solver.set_params(tol=ROUGH, max_iter=ROUGH_ITERATIONS)
    with limit(), warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        result = solver._run(fixed, theta, fixed.w0)
    if result.status == "interrupted" and not result.notes:  # a note says that records are lost
        raise KeyboardInterrupt
    fitted = inside(problem, result.theta)
    if name != "random":
        return fitted
    units = Units(problem, theta)
    size = np.sqrt(np.mean(units.inside(fitted) ** 2))
    noise = units.outside(np.random.default_rng(seed).standard_normal(theta.shape))
    noisy = problem.project(theta + size * noise)
    return np.where(problem.inside(noisy)[:, None], noisy, theta)
