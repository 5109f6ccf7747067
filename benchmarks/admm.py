"""ADMM beside NewtonCG and CVXPY on the same grids: CPU seconds and ratios, all in one run.

    python benchmarks/admm.py [strata ...]

Every model has 8 records per stratum on average, 10 parameters per stratum, a ridge and a grid of weight 1. Objectives are
compared too: the column "above" is how far ADMM's lies above the other one's, relative.
"""

import sys
import time
import warnings

import cvxpy as cp
import networkx as nx
import numpy as np

import strat

N_PARAMETERS, RECORDS = 10, 8
LOSSES = {
    "least squares": lambda y, u: cp.square(y - u),
    "logistic": lambda y, u: cp.logistic(-cp.multiply(y, u)),
    "pinball": lambda y, u: cp.maximum(0.9 * (y - u), -0.1 * (y - u)),
}


def seconds(work):
    """CPU seconds of a call, and what it returns."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def data(side):
    """Graph, records, and their strata."""
    rng = np.random.default_rng(0)
    graph = strat.graphs.grid(side, side)
    labels = np.array(list(graph))
    stratum = rng.integers(len(labels), size=RECORDS * len(labels))
    theta = rng.standard_normal(N_PARAMETERS) + np.sin(3 * labels[:, [0]] / side) + labels[:, [1]] / side
    X = rng.standard_normal((len(stratum), N_PARAMETERS))
    return graph, X, np.sum(X * theta[stratum], axis=1) + rng.standard_normal(len(stratum)), stratum


def by_cvxpy(loss, graph, X, y, stratum):
    """Optimum of the whole problem, by Clarabel."""
    theta = cp.Variable((len(graph), N_PARAMETERS))
    edges = nx.incidence_matrix(graph, oriented=True)
    total = cp.sum(loss(y, cp.sum(cp.multiply(X, theta[stratum]), axis=1))) + 0.05 * cp.sum_squares(theta)
    problem = cp.Problem(cp.Minimize(total + 0.5 * cp.sum_squares(edges.T @ theta)))
    return problem.solve(cp.CLARABEL)


def main(sides):
    """Print one row for each loss and size."""
    warnings.simplefilter("ignore")
    theta, x, t = (
        cp.Variable(N_PARAMETERS, name="theta"),
        cp.Parameter(N_PARAMETERS, name="x"),
        cp.Parameter(name="t"),
    )
    print(
        f"{'loss':14}{'strata':>8}{'ADMM s':>10}{'iterations':>12}{'beside':>12}{'s':>10}{'ratio':>8}{'above':>10}"
    )
    for side in sides:
        graph, X, y, stratum = data(side)
        for name, loss in LOSSES.items():
            target = np.sign(y) if name == "logistic" else y
            base = strat.BaseModel(loss(t, x @ theta), 0.05 * cp.sum_squares(theta), data=(x, t))
            labels = list(graph)
            strata = [labels[k] for k in stratum]

            def fit(solver, base=base, target=target, strata=strata, graph=graph, X=X):
                return strat.lrsm(base, graph, solver=solver).fit(X, target, strata=strata).result_

            own, result = seconds(lambda fit=fit: fit(strat.ADMM()))
            others = {
                "CVXPY": lambda loss=loss, target=target, graph=graph, X=X, stratum=stratum: by_cvxpy(
                    loss, graph, X, target, stratum
                )
            }
            if name != "pinball":
                others["NewtonCG"] = lambda fit=fit: fit(strat.NewtonCG()).objective
            for other, work in others.items():
                took, objective = seconds(work)
                above = result.objective / objective - 1
                print(
                    f"{name:14}{side**2:8}{own:10.2f}{result.iterations:12}{other:>12}{took:10.2f}{took / own:8.2f}"
                    f"{above:10.1e}",
                    flush=True,
                )


if __name__ == "__main__":
    main([round(float(k) ** 0.5) for k in sys.argv[1:]] or [10, 32])
