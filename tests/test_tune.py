"""strat.tune: graphs that help on records it has not seen, and the start where none does."""

import logging
from collections import Counter

import cvxpy as cp
import networkx as nx
import numpy as np
import pytest
from problems import LOSSES, mean
from sklearn.base import clone

import strat
from strat.errors import DataError, GraphError, NoOracleError, OptionError
from strat.records.sample import Sample
from strat.selection.tuning.branches import Branch, Space, with_candidate_edges
from strat.selection.tuning.path import START, InnerFits, Objective, Point, choose, descend
from strat.selection.tuning.tune import rounds_of

SIDE, N = 6, 3
NODES = [(a, b) for a in range(SIDE) for b in range(SIDE)]


def declaration(loss="squares", ridge=0.1):
    theta, x, y = cp.Variable(N, name="theta"), cp.Parameter(N, name="x"), cp.Parameter(name="y")
    lam = cp.Parameter(nonneg=True, value=ridge, name="lam")
    return strat.BaseModel(LOSSES[loss][1](y, x @ theta), lam * cp.sum_squares(theta), data=(x, y))


BASE = declaration()


def region(node):
    return int(node[0] >= SIDE // 2)


def records(rng, count, truth=region, noise=0.7):
    theta = np.random.default_rng(11).normal(size=(SIDE * SIDE, N)) * 1.5
    z = [node for node in NODES for _ in range(count)]
    X = rng.normal(size=(len(z), N))
    means = np.einsum("ij,ij->i", X, theta[[truth(node) for node in z]])
    return X, means + noise * rng.normal(size=len(z)), z


def grid():
    graph = nx.Graph()
    graph.add_nodes_from(NODES, kind="cell")
    for axis, name in enumerate(("row", "column")):
        for node in NODES:
            other = tuple(v + (k == axis) for k, v in enumerate(node))
            if other in graph:
                graph.add_edge(node, other, weight=1.0, factor=name, cut=region(node) != region(other))
    return graph


RNG = np.random.default_rng(0)
TRAIN, VALIDATION, TEST = records(RNG, 3), records(RNG, 3), records(RNG, 40)


def held_out(model, records=VALIDATION):
    """The mean loss on other records of a fit to the training records."""
    return -clone(model).fit(*TRAIN[:2], strata=TRAIN[2]).score(*records[:2], strata=records[2])


@pytest.fixture(scope="module")
def tuned():
    return strat.tune(strat.lrsm(BASE, grid()), TRAIN, VALIDATION, wrt=["W0"], penalty=(0.1, 0.01))


def test_single_edges_recover_the_regions(tuned):
    true = grid()
    true.remove_edges_from([(u, v) for u, v in true.edges if region(u) != region(v)])
    scales = np.geomspace(0.01, 1000, 11)
    losses = [[held_out(strat.lrsm(BASE, g, scale=s), TEST) for s in scales] for g in (grid(), true)]
    uniform, ideal = map(min, losses)
    found = held_out(strat.lrsm(BASE, tuned.W0), TEST)
    assert tuned.improved and tuned.gain > 3 * tuned.gain_se
    assert (uniform - found) / (uniform - ideal) > 0.8
    cut = [w for u, v, w in tuned.W0.edges(data="weight") if region(u) != region(v)]
    kept = [w for u, v, w in tuned.W0.edges(data="weight") if region(u) == region(v)]
    assert np.mean(cut) < 0.05 * np.median(kept)


def test_the_result_is_a_plain_fit_of_all_records_with_that_graph(tuned):
    graph = tuned.W0
    assert list(graph) == NODES and graph.nodes[0, 0] == {"kind": "cell"}
    assert graph.edges[(0, 0), (1, 0)].keys() == {"weight", "factor", "cut"}
    assert set(map(frozenset, graph.edges)) == set(map(frozenset, grid().edges))
    both = [np.concatenate(pair) for pair in zip(TRAIN[:2], VALIDATION[:2], strict=True)]
    plain = strat.lrsm(BASE, graph).fit(*both, strata=TRAIN[2] + VALIDATION[2])
    assert np.allclose(plain.theta_["theta"], tuned.model.theta_["theta"], atol=1e-8)
    W = tuned.parameters["W0"]
    assert np.allclose(W, nx.to_numpy_array(graph, nodelist=NODES)) and np.allclose(tuned.model.W_, W)
    for given, value in ((grid(), tuned.before), (graph, tuned.after)):
        tight = strat.lrsm(BASE, given, solver=strat.NewtonCG(tol=1e-10))
        assert held_out(tight) == pytest.approx(value, rel=1e-6)
    assert tuned.history[0] == pytest.approx(tuned.before) and tuned.history[-1] == pytest.approx(tuned.after)
    assert tuned.after < tuned.before
    assert tuned.folds == [{"records": len(VALIDATION[1]), "before": tuned.before, "after": tuned.after}]


def test_the_report_and_the_picture_show_what_changed(tuned):
    assert all(word in str(tuned) for word in ("tuning improved", "±", "grew", "fell", "vanished"))
    ax = tuned.plot()
    assert list(ax.lines[0].get_ydata()) == tuned.history and ax.get_title() == "Tuning"
    assert tuned.table[0]["tried"] == "start" and tuned.to_markdown().count("\n") == len(tuned.table) + 1
    ahead = [after - before for _, _, before, after in tuned.grew]
    assert min(ahead) > 0 and ahead == sorted(ahead, reverse=True)
    assert all(before > 0 and after == 0 for _, _, before, after in tuned.vanished)
    assert len(tuned.vanished) == sum(w == 0 for *_, w in tuned.W0.edges(data="weight")) > 0


def test_noise_keeps_the_start_and_the_model_is_never_changed():
    rng = np.random.default_rng(3)
    X, y, z = records(rng, 2)
    noise = [rng.normal(size=len(y)) for _ in range(2)]
    graph, model = grid(), strat.lrsm(BASE, grid(), scale={"row": 300.0, "column": 300.0})
    before = model.get_params()
    kept = strat.tune(model, (X, noise[0], z), (X, noise[1], z), wrt=["W0"], max_iter=15)
    assert not kept.improved and kept.gain <= kept.gain_se
    assert kept.after == kept.before and kept.history == [pytest.approx(kept.before)]
    assert "the start was kept" in str(kept) and not kept.grew and not kept.vanished
    assert nx.utils.graphs_equal(model.graph, graph) and model.get_params() == before
    assert not hasattr(model, "theta_") and BASE.hyperparameters["lam"].value == 0.1
    assert {w for *_, w in kept.W0.edges(data="weight")} == {300.0}
    assert np.allclose(kept.model.W_[0].max(), 300.0)


def test_scales_reach_what_a_fine_grid_finds(caplog):
    tuned = strat.tune(strat.lrsm(BASE, grid(), scale=0.3), TRAIN, VALIDATION, verbose=True)
    assert "tune  round 1 of 3  model  scale  step 1  validation loss" in caplog.text
    assert "tune  all records  scale  step 1" in caplog.text
    scales = tuned.parameters["scale"]
    assert tuned.improved and tuned.model.scale == scales and set(scales) == {"row", "column"}

    def loss(row, column):
        return held_out(strat.lrsm(BASE, grid(), scale={"row": row, "column": column}))

    around = np.geomspace(0.25, 4, 7)
    grid_best = min(loss(scales["row"] * a, scales["column"] * b) for a in around for b in around)
    assert loss(**scales) <= grid_best * (1 + 1e-4)
    assert loss(**scales) == pytest.approx(tuned.after, rel=1e-6)
    assert scales["column"] > 3 * scales["row"]  # regions are cut along rows only


def test_a_hyperparameter_reaches_what_a_fine_grid_finds():
    base = declaration(ridge=30.0)
    model = strat.lrsm(base, grid())
    tuned = strat.tune(model, TRAIN, VALIDATION, wrt=[base.hyperparameters["lam"]])
    assert tuned.improved and set(tuned.parameters) == {"lam"}
    assert tuned.model.get_params()["base__lam"] == tuned.parameters["lam"]
    losses = [held_out(clone(model).set_params(base__lam=lam)) for lam in np.geomspace(1e-3, 30, 25)]
    assert tuned.after <= min(losses) * (1 + 1e-4)
    best = clone(model).set_params(base__lam=tuned.parameters["lam"])
    assert tuned.after == pytest.approx(held_out(best), rel=1e-6)
    assert base.hyperparameters["lam"].value == 30.0


def test_ties_share_a_multiplier():
    tuned = strat.tune(strat.lrsm(BASE, grid()), TRAIN, VALIDATION, wrt=["W0"], tie="cut")
    weights = {True: set(), False: set()}
    for *_, data in tuned.W0.edges(data=True):
        weights[data["cut"]].add(round(data["weight"], 9))
    assert tuned.improved and all(len(values) == 1 for values in weights.values())
    assert max(weights[True]) < 0.05 * min(weights[False])


def test_only_listed_edges_move():
    listed = [((2, b), (3, b)) for b in range(SIDE)]
    model = strat.lrsm(BASE, grid(), scale=3.0)
    tuned = strat.tune(model, TRAIN, VALIDATION, wrt=["W0"], edges=listed, penalty=0.01)
    free = set(map(frozenset, listed))
    others = {round(w, 9) for u, v, w in tuned.W0.edges(data="weight") if frozenset((u, v)) not in free}
    assert tuned.improved and len(others) == 2  # each factor's edges keep one weight
    assert np.mean([tuned.W0.edges[e]["weight"] for e in listed]) < 0.3 * min(others)


def test_folds_of_the_training_records():
    options = {"wrt": ["W0"], "tie": "factor", "penalty": 0.1, "max_iter": 6}
    tuned = strat.tune(strat.lrsm(BASE, grid()), TRAIN, folds=3, **options)
    assert tuned.improved and len(tuned.folds) == 3
    assert sum(fold["records"] for fold in tuned.folds) == len(TRAIN[1])
    X, y, z = TRAIN
    pairs = strat.StrataKFold(3).split(X, groups=z)
    for (train, held), fold in zip(pairs, tuned.folds, strict=True):
        model = strat.lrsm(BASE, tuned.W0).fit(X[train], y[train], strata=[z[k] for k in train])
        losses = model.losses(X[held], y[held], strata=[z[k] for k in held])
        assert losses.mean() == pytest.approx(fold["after"], rel=1e-5)
    assert len(tuned.model._training.arrays[1]) == len(TRAIN[1])

    rows = np.arange(len(y))  # a single fold is split by records
    tuned = strat.tune(strat.lrsm(BASE, grid()), TRAIN, folds=[(rows[rows % 3 > 0], rows[rows % 3 == 0])])
    assert len(tuned.folds) == 1 and tuned.folds[0]["records"] == len(rows) // 3


def origins(count, years=8):
    """Records of a random walk over years in two cities, and the pairs of rolling origins."""
    rng = np.random.default_rng(2)
    z = [(city, year) for year in range(years) for city in "ab" for _ in range(3)]
    level = rng.normal(size=(2, years)).cumsum(axis=1)
    y = np.array([level["ab".index(city), year] for city, year in z]) + 0.3 * rng.normal(size=len(z))
    cities, time = strat.graphs.path(["a", "b"], name="city"), strat.graphs.path(range(years), name="year")
    return strat.lrsm(mean(), strat.graphs.product(cities, time)), (y, z), strat.RollingOrigin(count, time=1)


def test_rounds_of_rolling_origins_judge_what_comes_later(monkeypatch):
    model, train, folds = origins(4)
    seen, objective = [], Branch.objective

    def spy(self, pairs, notes):
        seen.append([(set(a.labels), set(b.labels)) for a, b in self.rounds.parts(pairs)])
        return objective(self, pairs, notes)

    monkeypatch.setattr(Branch, "objective", spy)
    tuned = strat.tune(model, train, folds=folds, wrt=["scale"])
    assert len(tuned.folds) == 4

    def years(labels):
        return sorted({year for _, year in labels})

    rounds = [pair for pair in zip(seen, seen[1:], strict=False) if len(pair[1]) == 1 and len(pair[0]) < 4]
    assert [len(tunes) for tunes, _ in rounds] == [1, 2, 3]
    for tunes, ((past, future),) in rounds:
        assert max(max(years(a | b)) for a, b in tunes) < min(years(future))  # nothing later takes part
        assert max(years(past)) < min(years(future))
    assert [years(judge[0][1]) for _, judge in rounds] == [[5], [6], [7]]
    again = strat.tune(model, train, folds=list(folds.split(train[0], groups=train[1]))[::-1])
    assert again.gain == tuned.gain and again.history == tuned.history  # in whatever order they are given


def test_folds_are_in_time_only_where_one_trains_the_next():
    _, train, folds = origins(3)
    sample = Sample([origins(3)[0]], train, "train")
    rolling = [tuple(pair) for pair in folds.split(train[0], groups=train[1])]
    window = [(np.setdiff1d(a, np.arange(6 * k)), b) for k, (a, b) in enumerate(rolling)]
    for pairs in (rolling, window):
        assert rounds_of(sample, None, pairs, 0).in_time
    spread = list(strat.StrataKFold(3).split(train[0], groups=train[1]))
    apart = [(np.arange(8 * k, 8 * k + 5), np.arange(8 * k + 5, 8 * k + 8)) for k in range(3)]
    for pairs in (spread, apart, [*rolling, rolling[0]]):
        assert not rounds_of(sample, None, pairs, 0).in_time
    with pytest.raises(DataError, match="needs three at least: one tunes, .*, one judges; there are 2"):
        strat.tune(origins(2)[0], train, folds=origins(2)[2])


def test_learned_graphs_may_differ_from_fold_to_fold():
    options = {"wrt": ["W0"], "penalty": 1.0, "candidates": ["knn"], "max_iter": 2}
    tuned = strat.tune(strat.lrsm(BASE, grid()), TRAIN, folds=3, **options)
    assert "knn, scale" in {row["tried"] for row in tuned.table}


def test_learned_candidates_pass_the_same_guard():
    far_apart = nx.Graph()  # its edges say nothing of the regions
    far_apart.add_nodes_from(NODES)
    nx.add_cycle(far_apart, [NODES[k * 5 % 36] for k in range(36)], weight=0.5)
    true = grid()
    true.remove_edges_from([(u, v) for u, v in true.edges if region(u) != region(v)])
    candidates = {"knn": "knn", "entropy": "entropy", "regions": true}
    tuned = strat.tune(strat.lrsm(BASE, far_apart), TRAIN, VALIDATION, candidates=candidates)
    tried = {row["tried"] for row in tuned.table}
    assert {"start", "scale", "knn, scale", "entropy, scale", "regions, scale"} <= tried
    assert tuned.improved and tuned.choice.startswith("regions")
    assert list(tuned.W0) == NODES
    assert set(map(frozenset, tuned.W0.edges)) >= set(map(frozenset, true.edges))


def test_a_candidate_that_fails_is_logged_and_left_out(caplog):
    learner = strat.joint(BASE, solver=strat.ADMM())
    with caplog.at_level(logging.WARNING, logger="strat"):
        tuned = strat.tune(strat.lrsm(BASE, grid()), TRAIN, VALIDATION, candidates={"bad": learner})
    assert "the candidate bad failed" in caplog.text
    assert tuned.improved and not any("bad" in row["tried"] for row in tuned.table)


def test_gradients_equal_differences():
    theta, x, y = cp.Variable(2, name="theta"), cp.Parameter(2, name="x"), cp.Parameter(name="y")
    lam, pull = (cp.Parameter(nonneg=True, value=v, name=name) for v, name in ((0.4, "lam"), (0.5, "pull")))
    centre = cp.Parameter(2, value=[0.3, -0.2], name="centre")
    loss, ridge = cp.logistic(-cp.multiply(y, x @ theta)), lam * cp.sum_squares(theta - centre)
    base = strat.BaseModel(loss, ridge, data=(x, y), couple={theta: pull})
    rows, columns = strat.graphs.path(3, name="r"), strat.graphs.path(2, weight=2.0, name="c")
    model = strat.lrsm(base, strat.graphs.product(rows, columns), scale={"r": 0.7})
    rng = np.random.default_rng(5)
    z = [label for label in model.graph for _ in range(4)]
    sample = Sample([model], (rng.normal(size=(24, 2)), np.sign(rng.normal(size=24)), z), "train")
    wide, varied = with_candidate_edges(strat.graphs.prior_graph.read_graph(model.graph), "all")
    names = ["scale", "W0", "lam", "pull", "centre"]
    for group in (None, np.arange(len(wide.i)) % 3):
        space = Space(model, wide, names, varied, group)
        even, odd = sample.part(np.arange(0, 24, 2)), sample.part(np.arange(1, 24, 2))
        objective = Objective([(InnerFits(model, space, even), odd)], Counter())
        assert np.allclose(space.at(space.start)[0], wide.weights({"r": 0.7}))
        point = space.start + np.where(space.active(["W0"]), 0.2, 0.1)
        gradient = objective(point)[1]
        for k in range(len(point)):
            h = 1e-5 * (np.arange(len(point)) == k)
            difference = (objective(point + h)[0] - objective(point - h)[0]) / 2e-5
            assert gradient[k] == pytest.approx(difference, abs=2e-7, rel=1e-5)


def test_a_failed_trial_is_rejected_and_logged_and_a_failed_start_is_an_error(caplog):
    tried = []

    def function(x):
        tried.append(x[0])
        if x[0] > 2:
            raise np.linalg.LinAlgError("no fit")
        return float((x[0] - 1.5) ** 4), 4 * (x - 1.5) ** 3

    def descended(start):
        return descend(function, np.array([start]), np.full(1, -9.0), np.full(1, 9.0), 50)

    with caplog.at_level(logging.WARNING, logger="strat"):
        assert abs(descended(-1.0)[0] - 1.5) < 0.1
    assert max(tried) > 2 and "a trial is rejected (LinAlgError: no fit)" in caplog.text
    with pytest.raises(np.linalg.LinAlgError, match="no fit"):
        descended(3.0)


def path(*means):
    return {(0, k): Point(np.zeros(1), 0.0, np.array(losses)) for k, losses in enumerate(means)}


def test_the_guard_judges_a_choice_by_records_that_did_not_make_it():
    start = [1.0, 1.1, 0.9]
    lucky = {"model": path(start, [0.1, 0.1, 0.1])}
    unlucky = {"model": path(start, [1.5, 1.4, 1.6])}
    # Both together would choose the step, with a gain; each alone condemns what the other chose.
    assert choose([lucky, unlucky])[:2] == (("model", 0, 1), pytest.approx(-0.25))
    choice, gain, se = choose([lucky, lucky, lucky])
    assert choice == ("model", 0, 1) and gain == pytest.approx(0.9) and gain > se
    assert choose([unlucky, unlucky])[0] == START
    assert choose([lucky])[0] == choose([lucky], in_time=True)[0] == START  # nobody left to judge
    # The first round's choice loses in the second, that of both gains in the third; the first judges nothing.
    gain, se = choose([lucky, unlucky, lucky], in_time=True)[1:]
    assert gain == pytest.approx((-0.5 - 0.3 - 0.7 + 0.9 + 1.0 + 0.8) / 6) and gain < se


def test_time_limit_and_interrupt_return_the_best_so_far(monkeypatch):
    model = strat.lrsm(BASE, grid())
    kept = strat.tune(model, TRAIN, VALIDATION, wrt=["W0"], time_limit=1e-6)
    assert kept.status == "time_limit" and not kept.improved and hasattr(kept.model, "theta_")
    count, whole = [], Objective.__call__

    def interrupted(self, x):
        count.append(1)
        if len(count) == 150:  # in the last descent
            raise KeyboardInterrupt
        return whole(self, x)

    monkeypatch.setattr(Objective, "__call__", interrupted)
    tuned = strat.tune(model, TRAIN, VALIDATION, wrt=["W0"])
    assert tuned.status == "interrupted" and tuned.improved and tuned.after < tuned.before


LRSM = strat.lrsm(BASE, grid())
MISTAKES = {
    OptionError: {
        'wrt has .W., which is neither "W0", "scale" nor a hyperparameter': {"wrt": ["W"]},
        "wrt is empty": {"wrt": []},
        "tie=.*wrt has no": {"tie": "factor"},
        "no edge of the graph has that attribute": {"wrt": ["W0"], "tie": "colour"},
        "tie is the name of an edge attribute": {"wrt": ["W0"], "tie": 3},
        "edges='near' is not known": {"wrt": ["W0"], "edges": "near"},
        "penalty must be a number of at least 0": {"penalty": -1},
        "max_iter must be a whole number": {"max_iter": 0},
        "time_limit must be a number of seconds": {"time_limit": -1},
        "validation= or folds=, not both": {"folds": 3},
        "candidates has 'near'": {"candidates": ["near"]},
        "learns no graph": {"candidates": [LRSM]},
        "the model has no graph": {"model": strat.StratifiedModel(BASE)},
        "share their parameters": {"model": strat.common(BASE, grid())},
        "learns W itself.*strat.joint": {"model": strat.joint(BASE, grid())},
        "tune needs a StratifiedModel": {"model": BASE},
    },
    GraphError: {
        "is not a node of the graph": {"wrt": ["W0"], "edges": [((0, 0), "x")]},
        "all weights of the graph are 0": {"model": strat.separate(BASE, grid())},
    },
    NoOracleError: {"needs derivatives.*smoothing=": {"model": strat.lrsm(declaration("absolute"), grid())}},
    DataError: {"1 records, but tuning needs two": {"validation": tuple(v[:1] for v in VALIDATION)}},
}


@pytest.mark.parametrize("error", MISTAKES)
def test_mistakes(error):
    for text, options in MISTAKES[error].items():
        with pytest.raises(error, match=text):
            strat.tune(**{"model": LRSM, "train": TRAIN, "validation": VALIDATION, **options})


@pytest.mark.parametrize("wrt", [("scale",), ("W0",)])
def test_without_the_guard_the_validation_loss_is_minimised(wrt):
    model = strat.lrsm(BASE, grid(), scale=0.1)
    free = strat.tune(model, TRAIN, VALIDATION, wrt=wrt, guard=False)
    assert free.after == pytest.approx(held_out(strat.lrsm(BASE, free.W0)), rel=1e-5)
    assert free.after < free.before
    assert free.unguarded is free and np.isnan(free.gain_se)
    for factor in (0.8, 1.25):  # no other size of the weights is better
        moved = free.W0.copy()
        for _, _, data in moved.edges(data=True):
            data["weight"] *= factor
        assert held_out(strat.lrsm(BASE, moved)) >= free.after - 1e-5
    guarded = strat.tune(model, TRAIN, VALIDATION, wrt=wrt)
    assert guarded.unguarded.after == free.after <= guarded.after + 1e-9
    assert "no other records have judged" in str(free)
