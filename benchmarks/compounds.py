"""Regularizers and constraints without a closed prox (tests/compounds.py) on a grid: strat against CVXPY with Clarabel.

    OPENBLAS_NUM_THREADS=1 python benchmarks/compounds.py [--K 20 1000] [--only NAME ...] [--loss NAME ...]
        [--limit SECONDS] [--solver NAME] [--tol TOL] [--units] [--direct METHOD] [--loop]

CPU seconds, one run each, in a process of its own that ends after `--limit` of them. "strat" is declaration, model
and `fit` at default settings, or with the solver that `--solver` and `--tol` name. "CVXPY" is the problem on all
strata stacked by hand, one Variable of shape (K, n), one sparse product for all records and one for all edges, and
atoms along an axis where CVXPY has them: its construction, canonicalisation and solution at Clarabel's default
tolerances. "solver" is Clarabel alone on the compiled data. Rows marked "loop" have atoms without such a form, and a
Python loop over the strata; they are left out for more than 100 strata, where most of their time would be CVXPY's own. "ratio"
is CVXPY's time over strat's: below 1 strat loses; with < or > one of the two ran into the limit. Clarabel's own choice of a
direct solver may cost several times as much as the other; `--direct qdldl` names it for CVXPY. With `--loop` CVXPY has, in
place of the atoms along an axis, the declaration of a stratum once for each, whatever K.

"above" is how far F at strat's parameters lies above Clarabel's optimal value, relative; "outside" is the largest
violation of a constraint there. Both are CVXPY's evaluations of the stacked problem. With `--units` every fit is
repeated with parameters a million times as large (data, regularizer and graph restated), and with the objective times
a million: "theta" and "F" are the changes of "above".
"""

import argparse
import multiprocessing
import resource
import sys
import time
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

import cvxpy as cp
import numpy as np

import strat

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from compounds import COMPOUNDS, LOSSES, declared, graph, records, rows_of, stacked

GAP = 1e-6
LOOPED = 100  # most strata with a Python loop
SCALE = 1e6
FORK = multiprocessing.get_context("fork")


def warm_up():
    """Fit a small compound by strat and by CVXPY."""
    data = records(COMPOUNDS[6], "logistic", 4)
    by_strat(COMPOUNDS[6], "logistic", 4, data), by_cvxpy(COMPOUNDS[6], "logistic", 4, data)


def within(limit, work):
    """What work() returns in a process of its own, or why it returns nothing."""

    def child(pipe):
        warm_up()  # a new process copies each page of memory that it writes to first
        used = int(time.process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (limit + used, limit + used))
        try:
            pipe.send(work())
        except Exception as error:  # the table goes on
            pipe.send(f"{type(error).__name__}: {error}")

    receive, send = FORK.Pipe(duplex=False)
    process = FORK.Process(target=child, args=(send,))
    process.start()
    send.close()
    try:
        return receive.recv()
    except EOFError:
        return None
    finally:
        process.join()


def by_strat(row, loss, K, data, solver=None, unit=1.0, size=1.0):
    """CPU seconds, parameters in units of 1, and how the fit ended."""
    X, Y, z = data
    X, g = X / unit, graph(K, size / unit**2)
    start = time.process_time()
    model = strat.lrsm(declared(row, loss, unit, size), g, solver=solver).fit(X, Y, strata=z)
    seconds = time.process_time() - start
    return seconds, model.theta_["w"].reshape(K, -1) / unit, model.result_.status


def in_a_loop(row):
    """The row, with all strata stacked by a loop over `one`."""

    def every(V):
        parts = [(w, *row.one(w)) for w in rows_of(V, row.shape)]
        cones = [c for w, *_ in parts for c in (w >> 0, w == w.T)] if row.psd else []
        return sum(one for _, one, _ in parts), sum((some for *_, some in parts), cones)

    return replace(row, all=every, loops=True)


def by_cvxpy(row, loss, K, data, settings=None):
    """CPU seconds, those of the solver alone, the optimal value and the status."""
    g = graph(K)
    start = time.process_time()
    problem, _ = stacked(row, loss, g, *data)
    compiled, chain, inverse = problem.get_problem_data(cp.CLARABEL, solver_opts=settings or {})
    ready = time.process_time()
    solution = chain.solve_via_data(problem, compiled, False, False, settings or {})
    solved = time.process_time()
    problem.unpack_results(solution, chain, inverse)
    return time.process_time() - start, solved - ready, problem.solution.opt_val, problem.status


def judge(row, loss, K, data, best):
    """A function of parameters: how far F is above the best, relative, and the largest violation."""
    problem, V = stacked(row, loss, graph(K), *data)

    def measured(theta):
        V.save_value(theta)
        outside = max((float(np.max(c.violation())) for c in problem.constraints), default=0.0)
        return (float(problem.objective.value) - best) / abs(best), outside

    return measured


def named_solver(options):
    """The solver that the options name, or None for the default."""
    if options.solver is None:
        return None
    return getattr(strat, options.solver)(**({} if options.tol is None else {"tol": options.tol}))


def in_other_units(row, loss, K, data, solver, limit):
    """Fits with parameters and with the objective a million times as large."""
    for unit, size in ((SCALE, 1.0), (1.0, SCALE)):
        yield within(limit, partial(by_strat, row, loss, K, data, solver, unit=unit, size=size))


def measure(row, loss, K, options):
    """Print one row; return the ratio, whether it is a bound, and the difference of the objectives."""
    data, solver, limit = records(row, loss, K), named_solver(options), options.limit
    settings = {"direct_solve_method": options.direct} if options.direct else {}
    theirs = within(limit, lambda: by_cvxpy(row, loss, K, data, settings))
    own = within(limit, lambda: by_strat(row, loss, K, data, solver))
    failed = [f"{x[:100]}" for x in (own, theirs) if isinstance(x, str)]
    late, ratio, above = f">{limit}", np.nan, np.nan
    notes = ["loop"] if row.loops else []
    text = f"{row.name:28}{loss:14}{K:5}"
    text += f"{own[0]:9.3f}" if isinstance(own, tuple) else f"{'failed' if own else late:>9}"
    text += (
        f"{theirs[0]:9.3f}{theirs[1]:9.3f}"
        if isinstance(theirs, tuple)
        else f"{'failed' if theirs else late:>9}"
    )
    if not failed and (own or theirs):
        ratio = (theirs[0] if theirs else limit) / (own[0] if own else limit)
        text += f"{'>' if not theirs else '<' if not own else '':>3}{ratio:8.2g}"
    if isinstance(own, tuple):
        notes += [own[2]] if own[2] != "converged" else []
    if isinstance(theirs, tuple):
        notes += [f"CVXPY {theirs[3]}"] if theirs[3] != "optimal" else []
    if isinstance(own, tuple) and isinstance(theirs, tuple):
        measured = judge(row, loss, K, data, theirs[2])
        above, outside = measured(own[1])
        text += f"{above:10.1e}{outside:9.1e}"
        for again in in_other_units(row, loss, K, data, solver, limit) if options.units else ():
            changed, far = measured(again[1]) if isinstance(again, tuple) else (np.nan, 0.0)
            text += f"{changed - above:9.0e}"
            outside = max(outside, far)
            failed += [again[:100]] if isinstance(again, str) else [] if again else [late]
        notes += ["not feasible"] if outside > GAP else []
    print("  ".join([text, ", ".join(notes + failed)]).rstrip(), flush=True)
    return ratio, not (own and theirs), above


def read_options():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--K", type=int, nargs="+", default=[20, 1000])
    parser.add_argument("--only", nargs="+", default=[""], help="parts of the rows' names")
    parser.add_argument("--loss", nargs="+", default=list(LOSSES), choices=list(LOSSES))
    parser.add_argument("--limit", type=int, default=120, help="CPU seconds of one fit")
    parser.add_argument("--solver", help="a solver's name in strat, such as ADMM")
    parser.add_argument("--tol", type=float, help="its tolerance")
    parser.add_argument("--direct", help="Clarabel's direct_solve_method in CVXPY, such as qdldl or faer")
    parser.add_argument("--loop", action="store_true", help="stack CVXPY's problem by a loop over the strata")
    parser.add_argument("--units", action="store_true", help="repeat in other units")
    options = parser.parse_args()
    if options.tol is not None and options.solver is None:
        parser.error("--tol needs --solver")
    return options


def main():
    """Print the table and its summary."""
    warnings.simplefilter("ignore")
    options = read_options()
    warm_up()
    units = f"{'theta':>9}{'F':>9}" if options.units else ""
    print(
        f"{'compound':28}{'loss':14}{'K':>5}{'strat':>9}{'CVXPY':>9}{'solver':>9}{'ratio':>11}{'above':>10}{'outside':>9}{units}"
    )
    for K in options.K:
        chosen = [
            row
            for row in (map(in_a_loop, COMPOUNDS) if options.loop else COMPOUNDS)
            if any(part in row.name for part in options.only)
            and (options.loop or not row.loops or K <= LOOPED)
        ]
        measures = [measure(row, loss, K, options) for row in chosen for loss in options.loss]
        ratios = [ratio for ratio, _, _ in measures if not np.isnan(ratio)]
        gaps = [abs(gap) for _, _, gap in measures if not np.isnan(gap)]
        print(
            f"K = {K}: ratios at least {min(ratios, default=np.nan):.2g}, median {median(ratios or [np.nan]):.2g}, "
            f"{sum(r < 1 for r in ratios)} of {len(measures)} below 1 ({sum(bound for _, bound, _ in measures)} are bounds, "
            f"{len(measures) - len(ratios)} missing); objectives differ by at most {max(gaps, default=np.nan):.1e}, "
            f"{sum(gap > GAP for gap in gaps)} by more than {GAP:g}\n",
            flush=True,
        )


if __name__ == "__main__":
    main()
