"""The LRSM on a given graph: NewtonCG against CVXPY's solvers, ADMM and MAPG at equal accuracy; memory at K = 10 000.

CPU seconds, one BLAS thread, everything in one run. What a user waits for first: for strat `first` is the declaration, the
model and its `fit`; for CVXPY it is the Problem and its first `solve`, which compiles it. The Problem is built with one
sparse product for all records and one for all edges, the form that CVXPY compiles fastest; "written" is the sum over
strata and edges that one writes down first, solved by Clarabel. Later: for strat `fit` is the whole call of the same model
again (records and graph read, oracles bound, solved), for CVXPY `later` solves the compiled Problem again. `solver` is the
iterations alone, and for CVXPY the solver on the compiled data. `warm` is a fit from parameters 5 % off; CVXPY's solvers are
not warm-started. Every method runs at the loosest of a few tolerances at which its objective is within 1e-6 (relative) of
the best known; the least of a few times counts, of the first written solve the only one. The ratios are those of these three
times to NewtonCG's.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/lrsm.py [K ...]      default: 100 1000
     OPENBLAS_NUM_THREADS=1 python benchmarks/lrsm.py memory       10 000 strata, 50 000 edges, n = 10
"""

import resource
import sys
import time
import warnings
from functools import partial

import cvxpy as cp
import networkx as nx
import numpy as np
import scipy.sparse as sp

import strat
from strat.model.bound_model import BoundModel
from strat.solvers.starts import solve

GAP = 1e-6
N = 10
TOLERANCES = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)


def graph(kind, K, weight):
    """A chain, or a square grid with about K nodes."""
    side = round(K**0.5)
    built = nx.path_graph(K) if kind == "chain" else nx.grid_2d_graph(side, side)
    built = nx.convert_node_labels_to_integers(built)
    nx.set_edge_attributes(built, float(weight), "weight")
    return built


def data(loss, K, per=10, seed=0):
    """Records with parameters that walk over the strata; `per` records per stratum on average."""
    rng = np.random.default_rng(seed)
    truth = np.cumsum(rng.standard_normal((K, N)), axis=0) / 10
    z = np.repeat(np.arange(K), rng.poisson(per, K))
    X = rng.standard_normal((z.size, N))
    u = np.einsum("ij,ij->i", X, truth[z])
    if loss == "logistic":
        return X, np.where(rng.random(z.size) < 1 / (1 + np.exp(-u)), 1.0, -1.0), z
    return X, u + 0.5 * rng.standard_normal(z.size), z


def declared(loss):
    theta, x, y = cp.Variable(N, name="theta"), cp.Parameter(N, name="x"), cp.Parameter(name="y")
    one = cp.logistic(-y * (x @ theta)) if loss == "logistic" else cp.square(x @ theta - y)
    return strat.BaseModel(one, 0.05 * cp.sum_squares(theta), data=(x, y))


def in_cvxpy(loss, g, X, Y, z):
    """The whole problem, all records in one sparse product."""
    K = g.number_of_nodes()
    theta = cp.Variable(K * N)
    columns = (z[:, None] * N + np.arange(N)).ravel()
    u = sp.csr_array((X.ravel(), columns, np.arange(0, X.size + 1, N)), shape=(len(X), K * N)) @ theta
    total = cp.sum(cp.logistic(-cp.multiply(Y, u))) if loss == "logistic" else cp.sum_squares(u - Y)
    incidence = nx.incidence_matrix(g, oriented=True).T
    weights = np.sqrt([w for _, _, w in g.edges(data="weight")])
    edges = sp.kron(sp.diags_array(weights) @ incidence, sp.eye_array(N))
    return cp.Problem(cp.Minimize(total + 0.05 * cp.sum_squares(theta) + 0.5 * cp.sum_squares(edges @ theta)))


def as_written(loss, g, X, Y, z):
    """The whole problem as a sum over strata and edges."""
    theta, terms = cp.Variable((g.number_of_nodes(), N)), []
    for k in np.unique(z):
        own = z == k
        u, y = X[own] @ theta[k], Y[own]
        terms.append(cp.sum(cp.logistic(-cp.multiply(y, u))) if loss == "logistic" else cp.sum_squares(u - y))
    terms += [0.5 * w * cp.sum_squares(theta[i] - theta[j]) for i, j, w in g.edges(data="weight")]
    return cp.Problem(cp.Minimize(sum(terms) + 0.05 * cp.sum_squares(theta)))


def options(name, tol):
    if name == "CLARABEL":
        return dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), tol)
    if name == "SCS":
        return {"eps_abs": tol, "eps_rel": tol, "max_iters": 20000, "time_limit_secs": 60.0}
    return {"eps_abs": tol, "eps_rel": tol, "max_iter": 20000, "time_limit": 60.0}


def timed(function):
    start = time.process_time()
    result = function()
    return result, time.process_time() - start


def fastest(function, times=3):
    """The least CPU seconds of a few calls."""
    return min(timed(function)[1] for _ in range(times))


def by_cvxpy(name, build, best, tolerances=TOLERANCES[2:], repeats=3):
    """(first solve, later solve, solver alone, gap) at the first tolerance that suffices, or at the last."""
    for tol in tolerances:

        def first(tol=tol):
            problem = build()
            return problem, problem.solve(solver=name, **options(name, tol))

        try:
            (problem, value), seconds = timed(first)
        except cp.SolverError:
            continue
        gap = (value - best) / abs(best)
        if abs(gap) <= GAP:
            again = partial(problem.solve, solver=name, warm_start=False, **options(name, tol))
            compiled, chain, _ = problem.get_problem_data(name)
            alone = partial(chain.solve_via_data, problem, compiled, False, False, options(name, tol))
            seconds = min([seconds, *(fastest(first, 1) for _ in range(repeats - 1))])
            return seconds, fastest(again), fastest(alone), gap
        if seconds > 60:
            break
    return None


def by_strat(solver, declare, g, records, best, repeats=5):
    """(first fit, later fit, solver alone, warm refit, gap) at the first tolerance that suffices."""
    X, Y, z = records
    for tol in TOLERANCES:

        def first(tol=tol):
            return strat.lrsm(declare(), g, solver=solver(tol=tol)).fit(X, Y, strata=z)

        model, seconds = timed(first)
        gap = (model.result_.objective - best) / abs(best)
        if gap > GAP:
            continue
        problem = BoundModel(model, (X, Y), z).problem()
        near = {"theta": {"theta": 1.05 * model.theta_["theta"]}}
        return (
            min(seconds, fastest(first, repeats)),
            fastest(partial(model.fit, X, Y, strata=z), repeats),
            fastest(partial(solve, problem, model.solver), repeats),
            fastest(partial(model.fit, X, Y, strata=z, init=near), repeats),
            gap,
        )
    return None


def row(name, values, reference=None):
    """Print one method's milliseconds; with NewtonCG's as reference, how many times as long it takes."""
    if values is None:
        print(f"    {name:<12} did not reach the accuracy", flush=True)
        return
    *seconds, gap = values
    text = "".join(f"{1e3 * s:10.1f}" for s in seconds)
    ratios = (
        ""
        if reference is None
        else "".join(f"{a / b:8.1f}" for a, b in zip(seconds, reference[:3], strict=False))
    )
    print(f"    {name:<12}{text}   gap {gap:8.1e}  {ratios}", flush=True)


def compare(loss, kind, K, weight):
    """Print one problem's table; return the CPU times of NewtonCG."""
    g, records = graph(kind, K, weight), data(loss, K if kind == "chain" else round(K**0.5) ** 2)
    declare = partial(declared, loss)
    best = strat.lrsm(declare(), g, solver=strat.NewtonCG(tol=1e-10)).fit(*records[:2], strata=records[2])
    best = best.result_.objective
    print(
        f"\n{loss}, {kind}, K = {g.number_of_nodes()}, weights {weight}   (milliseconds; ratios to NewtonCG)"
    )
    print("    strat            first       fit    solver      warm                    first     fit  solver")
    newton = by_strat(strat.NewtonCG, declare, g, records, best)
    row("NewtonCG", newton)
    for name in ("MAPG", "ADMM"):
        row(name, by_strat(getattr(strat, name), declare, g, records, best, repeats=1), newton)
    print("    CVXPY            first     later    solver                    first   later  solver")
    for name in ("CLARABEL", "SCS", "OSQP"):
        if name == "OSQP" and loss == "logistic":
            continue
        row(name, by_cvxpy(name, lambda: in_cvxpy(loss, g, *records), best), newton)
    written = by_cvxpy("CLARABEL", lambda: as_written(loss, g, *records), best, TOLERANCES[4:], repeats=1)
    row("written", written, newton)
    return newton


def speed(sizes):
    for K in sizes:
        for loss in ("least squares", "logistic"):
            for kind in ("chain", "grid"):
                weak, strong = (compare(loss, kind, K, weight) for weight in (5, 500))
                print(f"    weights 500 over 5, NewtonCG's solver: {strong[2] / weak[2]:.2f}")


def memory():
    """Peak memory of a fit with 10 000 strata, 50 000 edges and n = 10."""
    K, rng = 10_000, np.random.default_rng(0)
    place = rng.random((K, 2))
    near = strat.graphs.knn(place, 9)
    random = nx.gnm_random_graph(K, 50_000, seed=0)
    edges = sorted(near.edges, key=lambda e: np.linalg.norm(place[e[0]] - place[e[1]]))[:50_000]
    plane = nx.Graph()
    plane.add_nodes_from(range(K))
    plane.add_edges_from(edges)
    for name, g in (("random graph", random), ("nearest neighbours in the plane", plane)):
        nx.set_edge_attributes(g, 5.0, "weight")
        for loss in ("least squares", "logistic"):
            X, Y, z = data(loss, K)
            model, seconds = timed(partial(strat.lrsm(declared(loss), g).fit, X, Y, strata=z))
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            result = model.result_
            print(
                f"{name}, {g.number_of_edges()} edges, {loss}: {result.status}, {result.iterations} iterations, "
                f"{seconds:.2f} s for fit, W_ {type(model.W_).__name__}, peak memory so far {peak:.2f} GB",
                flush=True,
            )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1:] == ["memory"]:
        memory()
    else:
        speed([int(a) for a in sys.argv[1:]] or [100, 1000])
