"""A user's script, for the type checkers; it also runs."""

import tempfile

import cvxpy as cp
import numpy as np
import pandas as pd  # type: ignore[import-untyped]

import strat

theta, b = cp.Variable(2, name="theta"), cp.Variable(name="b")
x, y = cp.Parameter(2, name="x"), cp.Parameter(name="y")
loss, predict = cp.square(y - x @ theta - b), x @ theta + b
base = strat.BaseModel(loss=loss, regularizer=0.1 * cp.norm1(theta), data=(x, y), predict=predict)
ages = strat.graphs.path(range(3), weight=2.0, name="age")
graph = strat.graphs.product(ages, strat.graphs.complete(["F", "M"], name="sex"))
rng = np.random.default_rng(0)
X = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
Y = X.to_numpy() @ [1.0, -1.0] + rng.normal(size=60)
z = list(graph) * 10
model = strat.joint(base, graph, lambda1=0.1, scale={"age": 2.0}).fit(X, Y, strata=z)
shape: tuple[int, ...] = model.theta_["theta"].shape
status: str = model.result_.status
weights = model.W_.sum()
error: float = float(np.mean((model.predict(X, strata=z) - Y) ** 2))
score: float = model.score(X, Y, strata=z)
lrsm = strat.lrsm(base, graph, solver=strat.NewtonCG(tol=1e-8)).fit(X, Y, strata=z)
frame: pd.DataFrame = lrsm.coefficients(strat.standard_errors(lrsm))
table = strat.compare({"lrsm": lrsm, "common": strat.common(base)}, data=(X, Y, z), splits=3)
rows: pd.DataFrame = table.to_frame()
found = strat.search(strat.lrsm(base, graph), train=(X, Y, z), folds=strat.RollingOrigin(1, time="age"))
chosen: dict = found.chosen
path = tempfile.mkdtemp() + "/model.npz"
lrsm.save(path)
value = strat.load(path, base).at((0, "F"))["b"]
shares: float = strat.graphs.report(graph).shares.sum()
new = lrsm.predict(X[:1], strata=[(9, "F")], unseen="common")
learned: np.ndarray = strat.learn_graph(lrsm.theta_, strat.LogDet(1.0, 1.0, 0.1, 0.1)).W
