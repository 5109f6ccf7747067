"""Ctrl-C: one fit returns its best point, and what makes many fits ends with what it has found so far."""

import numpy as np
import pytest
from problems import linear

import strat
from strat.solvers.mapg import JointSteps
from strat.solvers.proximal_newton import ProximalNewton

BASE = linear(strat.losses.logistic)
GRAPH = strat.graphs.path(5, name="time")
RNG = np.random.default_rng(0)
Z = np.arange(100) % 5
X = RNG.normal(size=(100, 2))
Y = np.where(X[:, 0] + RNG.logistic(size=100) > 0, 1.0, -1.0)
RECORDS = (X, Y, Z)


@pytest.fixture
def pressed(monkeypatch):
    """Ctrl-C is pressed within the given step, counted over all fits."""

    def at(number, algorithm=ProximalNewton):
        step, count = algorithm.step, []

        def interrupted(self):
            count.append(1)
            if len(count) == number:
                raise KeyboardInterrupt
            return step(self)

        monkeypatch.setattr(algorithm, "step", interrupted)
        return count

    return at


def test_a_search_returns_the_best_so_far(pressed):
    whole = strat.search(strat.lrsm(BASE, GRAPH), train=RECORDS, folds=2, max_trials=8)
    pressed(60)
    found = strat.search(strat.lrsm(BASE, GRAPH), train=RECORDS, folds=2, max_trials=8)
    assert 0 < sum(row["trials"] for row in found.table) < sum(row["trials"] for row in whole.table)
    assert found.best.result_.status == "converged"
    assert "interrupted: " in str(found) and "interrupted" not in str(whole)


def test_a_grid_keeps_the_points_that_were_tried(pressed):
    pressed(12)
    grid = {"scale": [0.1, 1.0, 10.0, 100.0, 1000.0]}
    found = strat.search(strat.lrsm(BASE, GRAPH), grid, train=RECORDS, folds=2)
    assert 0 < len(found.table) < 5
    assert any(note.startswith("interrupted: ") for note in found.notes)


def test_a_comparison_returns_the_splits_that_are_done(pressed):
    models = {"separate": strat.separate(BASE, GRAPH), "lrsm": strat.lrsm(BASE, GRAPH)}
    pressed(20)
    table = strat.compare(models, data=RECORDS, splits=50)
    assert 0 < table.splits < 50 and len(table.runs) == 2 * table.splits
    assert {run["status"] for run in table.runs} == {"converged"}
    assert f"interrupted after {table.splits} of 50 splits" in str(table)


def test_a_callback_that_stops_a_fit_does_not_stop_a_comparison():
    solver = strat.NewtonCG(callback=lambda state: True)
    table = strat.compare({"lrsm": strat.lrsm(BASE, GRAPH, solver=solver)}, data=RECORDS, splits=2)
    assert [run["status"] for run in table.runs] == ["interrupted"] * 2


def test_tuning_ends(pressed):
    count = pressed(30)
    tuned = strat.tune(strat.lrsm(BASE, GRAPH), RECORDS, RECORDS, wrt=["W0"])
    assert tuned.status == "interrupted" and len(count) < 60
    assert tuned.model.result_.status == "converged"


@pytest.mark.parametrize("run", ["search", "compare", "tune"])
def test_where_nothing_is_done_ctrl_c_is_an_exception(pressed, run):
    pressed(1)
    model = strat.lrsm(BASE, GRAPH)
    with pytest.raises(KeyboardInterrupt):
        if run == "search":
            strat.search(model, train=RECORDS, folds=2)
        elif run == "compare":
            strat.compare({"lrsm": model}, data=RECORDS, splits=3)
        else:
            strat.tune(model, RECORDS, RECORDS)


def test_a_fit_returns_its_best_point(pressed):
    pressed(3, JointSteps)
    model = strat.joint(BASE, GRAPH, lambda1=0.1, lambda2=0.1).fit(X, Y, strata=Z)
    assert model.result_.status == "interrupted" and model.result_.iterations == 2
    assert np.isclose(model.result_.objective, model.result_.history[-1])
