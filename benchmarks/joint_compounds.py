"""Joint fits whose regularizer or constraints have no closed prox (tests/compounds.py): MAPG against fits in turn.

    OPENBLAS_NUM_THREADS=1 python benchmarks/joint_compounds.py [--K 20 60 200] [--only NAME ...] [--loss NAME ...]

CPU seconds of one fit each, at default settings, on all pairs with `LogDet`. "turns" is `AlternatingMinimization`, a cone
program of all strata and its graph for each step in theta; `MAPG` does the same where W is sparse enough, and else takes
accelerated steps, each with one prox of all strata. "Clarabel" is `MAPG` with all proxes by Clarabel. The ratios are those
to `MAPG`, and "F" is how much higher its objective is than that of "turns", relative: the problem is not convex.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path
from unittest import mock

import strat

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from compounds import COMPOUNDS, declared, graph, records

ROWS = ("overlapping groups", "OSCAR", "square of l1", "CVaR bound", "Huber of a norm")
CONSTANTS = {"lambda1": 1.0, "lambda2": 0.3, "eta": 0.1, "mu": 0.2}


def fitted(row, loss, K, solver):
    """CPU seconds of a fit, and its result."""
    X, Y, z = records(row, loss, K)
    model = strat.joint(declared(row, loss), graph(K), **CONSTANTS, solver=solver)
    start = time.process_time()
    model.fit(X, Y, strata=z)
    return time.process_time() - start, model.result_


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--K", type=int, nargs="+", default=[20, 60, 200])
    parser.add_argument("--only", nargs="+", default=ROWS)
    parser.add_argument("--loss", nargs="+", default=["least squares", "logistic"])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [row for row in COMPOUNDS if row.name in options.only]
    fitted(rows[0], options.loss[0], 4, strat.MAPG())  # imports
    print(f"{'':24} {'':14} {'K':>5} {'MAPG':>9} {'Clarabel':>15} {'turns':>16} {'F':>9}")
    for K in options.K:
        for row in rows:
            for loss in options.loss:
                seconds, result = fitted(row, loss, K, strat.MAPG())
                with mock.patch("strat.oracles.splitting.LARGEST", 0):
                    clarabel, _ = fitted(row, loss, K, strat.MAPG())
                turns, other = fitted(row, loss, K, strat.AlternatingMinimization())
                higher = (result.objective - other.objective) / abs(other.objective)
                others = (f"{each:8.2f}s {each / seconds:6.2f}" for each in (clarabel, turns))
                times = f"{seconds:8.2f}s {' '.join(others)}"
                print(f"{row.name:24} {loss:14} {K:5} {times} {higher:9.0e}", flush=True)


if __name__ == "__main__":
    main()
