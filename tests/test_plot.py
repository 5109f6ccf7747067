"""What the pictures show: their data, labels and colours, read back from the axes."""

import sys
from types import SimpleNamespace

import cvxpy as cp
import matplotlib
import networkx as nx
import numpy as np
import pytest
from problems import mean
from scipy import sparse

import strat
from strat import DataError, OptionError, graphs, plot

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.collections import LineCollection

RNG = np.random.default_rng(0)
THETA, Y = cp.Variable(name="rate"), cp.Parameter(name="y")
BASE = strat.BaseModel(cp.square(Y - THETA) / 2, data=(Y,))
PARTS = nx.disjoint_union(graphs.cycle(5), graphs.path(3))


@pytest.fixture(autouse=True)
def figures():
    yield
    plt.close("all")


def fitted(graph, **records):
    strata = records.pop("strata", list(graph))
    return strat.lrsm(BASE, graph, **records).fit(RNG.standard_normal(len(strata)), strata=strata)


@pytest.fixture(scope="module")
def joint():
    graph = graphs.grid(3, 4, weight=(2.0, 1.0), name=("density", "sulphates"))
    labels = list(graph) * 3
    model = strat.joint(BASE, graph, lambda1=0.1, lambda2=0.5, scale={"density": 0.5, "sulphates": 2.0})
    return model.fit(RNG.standard_normal(len(labels)), strata=labels)


def drawn(ax):
    return np.ma.filled(ax.images[0].get_array(), np.nan)


def ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


@pytest.mark.parametrize("draw", [plot.weights, plot.parameters, plot.graph, plot.history])
def test_pictures_go_where_they_are_told_and_name_the_extra_that_is_missing(joint, draw, monkeypatch):
    _, ax = plt.subplots()
    assert draw(joint, ax=ax) is ax
    assert draw(joint).figure is not ax.figure
    assert ax.get_title()
    # Everything can be rendered.
    ax.figure.canvas.draw()
    with pytest.raises(OptionError, match="ax is 5, but it is the matplotlib Axes"):
        draw(joint, ax=5)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'pip install "strat\[plot\]"'):
        draw(joint)


def test_weights_are_the_matrix(joint):
    ax = plot.weights(joint)
    assert np.array_equal(np.nan_to_num(drawn(ax)), joint.W_)
    assert ax.images[0].get_clim()[0] == 0
    assert ticks(ax.xaxis) == ticks(ax.yaxis) == ["0", "1", "2"]
    # The middle of each density's four strata.
    assert ax.xaxis.get_majorticklocs().tolist() == [1.5, 5.5, 9.5]
    assert ax.get_xlabel() == "stratum, by density"
    assert np.nan_to_num(drawn(plot.weights(graphs.path(3)))).tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]


def test_changes_are_centred_at_zero(joint):
    W0 = nx.to_numpy_array(joint.graph)
    for u, v, name in joint.graph.edges(data="factor"):
        i, j = joint.strata_.index(u), joint.strata_.index(v)
        W0[i, j] = W0[j, i] = W0[i, j] * {"density": 0.5, "sulphates": 2.0}[name]
    for prior in (True, W0, sparse.csr_array(W0), (joint.strata_, W0)):
        ax = plot.weights(joint, prior=prior)
        assert np.allclose(drawn(ax), joint.W_ - W0)
        low, high = ax.images[0].get_clim()
        assert low == -high < 0
    shuffled = RNG.permutation(12)
    reordered = ([joint.strata_[k] for k in shuffled], W0[shuffled][:, shuffled])
    assert np.allclose(drawn(plot.weights(joint, prior=reordered)), joint.W_ - W0)
    without_graph = strat.joint(BASE).fit([1.0, 2.0], strata=[0, 1])
    assert np.allclose(drawn(plot.weights(without_graph, prior=True)), without_graph.W_)


def test_a_few_large_changes_do_not_hide_the_rest():
    W = np.triu(RNG.uniform(0.5, 1.5, (60, 60)), 1)
    W[0, 1] = 100.0
    ax = plot.weights(W + W.T, prior=np.zeros((60, 60)))
    assert ax.images[0].get_clim()[1] < 2
    assert ax.images[0].colorbar.extend == "both"
    graph = graphs.cycle(8, weight=4.0)
    change = plot.weights((list(graph), nx.to_numpy_array(graph) * 1.02), prior=graph).images[0]
    assert change.get_clim() == pytest.approx((-4, 4))
    assert np.abs(change.get_array()).max() == pytest.approx(0.08)


def test_a_thousand_strata_stay_visible_and_labelled():
    ax = plot.weights(graphs.path([f"a department of clients, number {k}" for k in range(1000)], weight=50.0))
    shown = drawn(ax)
    assert shown.shape == (334, 334)
    assert np.allclose(shown[np.arange(333), np.arange(333)], 50.0)  # pooled by the largest, not the mean
    names = ticks(ax.xaxis)
    assert len(names) <= 20
    assert names[:2] == ["a department of cl… number 0", "a department of cl…number 50"]
    empty = sparse.csr_array((1000, 1000))
    assert np.isfinite(drawn(plot.weights(empty, prior=empty))).all()


def test_a_learned_graph_is_drawn():
    learned = strat.learn_graph(RNG.standard_normal((5, 2)), strat.Entropy(1.0), graphs.path(list("abcde")))
    assert np.array_equal(np.nan_to_num(drawn(plot.weights(learned))), learned.W)
    assert ticks(plot.weights(learned).xaxis) == list("abcde")
    assert graphs.report(learned).strata == list("abcde")
    assert np.allclose(edges_of(plot.graph(learned)).get_array(), np.sort(learned.W[np.triu_indices(5, 1)]))


class Shape:
    """A square of shapely's interface at (x, 0), or two."""

    def __init__(self, *x):
        corners = [np.array([[a, 0], [a + 1, 0], [a + 1, 1], [a, 1], [a, 0]], dtype=float) for a in x]
        self.geoms = [SimpleNamespace(exterior=SimpleNamespace(coords=c), interiors=[]) for c in corners]
        self.centroid = SimpleNamespace(x=np.mean(x) + 0.5, y=0.5)


def test_places_make_a_map_and_lie_where_they_are():
    graph = graphs.path(list("abc"), weight=2.0)
    nx.set_node_attributes(graph, {"a": Shape(0), "b": Shape(1, 5), "c": Shape(2)}, "geometry")
    model = fitted(graph, strata=["a", "b"])
    ax = plot.parameters(model, cmap="cividis")
    patches, hollow = ax.collections[:2]
    a, b, c = model.theta_["rate"]
    assert patches.get_array().tolist() == [a, b, b, c] and patches.get_cmap().name == "cividis"
    assert len(hollow.get_paths()) == 1 and "dots: no records" in ax.get_title()
    ax.figure.canvas.draw()
    with pytest.raises(OptionError, match="make a heatmap or a map"):
        plot.parameters(model, errors=True)
    centres = {"a": (0.5, 0.5), "c": (2.5, 0.5), "b": (3.5, 0.5)}
    for pos in (None, centres, [centres[label] for label in "abc"]):
        places = plot.graph(model, pos=pos).collections[-1].get_offsets()
        assert np.asarray(places).tolist() == [[0.5, 0.5], [3.5, 0.5], [2.5, 0.5]]
    for pos in ({"a": (0, 0)}, [(0, 1)], "spring"):
        with pytest.raises(OptionError, match="pos must be"):
            plot.graph(model, pos=pos)


def test_pairs_become_a_heatmap_with_blanks():
    graph = graphs.grid(["a", "b", "c"], [10, 20, 30, 40], name=("letter", "size"))
    graph.remove_nodes_from([("a", 10), ("c", 30)])
    order = [("c", 40), *[node for node in graph if node != ("c", 40)]]
    model = strat.lrsm(BASE, graph).fit(RNG.standard_normal(9), strata=[n for n in order if n != ("b", 20)])
    ax = plot.parameters(model)
    table = drawn(ax)
    for (letter, size), value in zip(model.strata_, model.theta_["rate"], strict=True):
        assert table["abc".index(letter), size // 10 - 1] == value
    assert np.isnan(table).sum() == 2
    assert (ticks(ax.yaxis), ticks(ax.xaxis)) == (["a", "b", "c"], ["10", "20", "30", "40"])
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("letter", "size")
    assert ax.lines[0].get_xydata().tolist() == [[1, 1]]  # the dot of ("b", 20), without records
    assert "dot: no records" in ax.get_title()
    low, high = ax.images[0].get_clim()
    assert low == -high  # both signs
    model = strat.separate(BASE).fit([3.0, 4.0, 5.0, 7.0], strata=[(0, 0), (0, 1), (1, 0), (1, 1)])
    assert plot.parameters(model).images[0].get_clim() == pytest.approx((3, 7))  # one sign: all shades


def test_years_become_a_line_with_a_band():
    model = fitted(graphs.path(range(2010, 2000, -1), weight=3.0), strata=[2001, 2005, 2010, 2010])
    ax = plot.parameters(model, errors=True)
    line, hollow = ax.lines[:2]
    assert line.get_xdata().tolist() == list(range(2001, 2011))
    assert np.array_equal(line.get_ydata(), model.theta_["rate"][::-1])
    assert line.get_linestyle() == "-"
    assert sorted(hollow.get_xdata()) == [2002, 2003, 2004, 2006, 2007, 2008, 2009]
    error = strat.standard_errors(model)["rate"]
    band = ax.collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx((model.theta_["rate"] + 2 * error).max())
    assert "band: two standard errors" in ax.get_title()


def test_strata_without_order_become_points():
    records, base = RNG.standard_normal((8, 3)), mean(shape=3, name="theta")
    model = strat.separate(base).fit(records, strata=["north", "south"] * 4)
    ax = plot.parameters(model, errors=True)
    assert {line.get_linestyle() for line in ax.lines} == {"None"}
    assert ticks(ax.xaxis) == ["north", "south"]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["theta[0]", "theta[1]", "theta[2]"]
    ax = plot.parameters(model, index=1)
    assert ax.lines[0].get_ydata().tolist() == model.theta_["theta"][:, 1].tolist()
    assert ax.get_ylabel() == "theta[1]"


def test_entries_of_a_matrix_are_chosen_by_index():
    base, graph = mean(shape=(2, 2), name="theta"), graphs.grid(2, 2)
    model = strat.lrsm(base, graph).fit(RNG.standard_normal((4, 2, 2)), strata=list(graph))
    assert np.array_equal(drawn(plot.parameters(model)).ravel(), model.theta_["theta"][:, 0, 0])
    ax = plot.parameters(model, "theta", (1, 0), cmap="cividis")
    assert np.array_equal(drawn(ax).ravel(), model.theta_["theta"][:, 1, 0])
    assert ax.images[0].get_cmap().name == "cividis"
    for index in (5, (0, 5), 0, "a", (0, 0, 0)):
        with pytest.raises(OptionError, match="is not an entry of theta, which has shape"):
            plot.parameters(model, index=index)
    with pytest.raises(OptionError, match="'slope' is not a variable of the model; its variables"):
        plot.parameters(model, "slope")


def edges_of(ax):
    return next(part for part in ax.collections if isinstance(part, LineCollection))


def test_a_grid_stands_on_its_coordinates(joint):
    ax = plot.graph(joint)
    lines, w = edges_of(ax), joint.W_[np.triu_indices(12, 1)]
    assert np.allclose(lines.get_array(), np.sort(w[w > 0]))
    assert np.all(np.diff(lines.get_linewidths()) >= 0)  # heavier is thicker
    places = ax.collections[-1].get_offsets()
    assert np.asarray(places).tolist() == [[column, row] for row, column in joint.strata_]
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("density", "sulphates")
    heaviest = np.unravel_index(joint.W_.argmax(), (12, 12))
    ends = edges_of(ax).get_segments()[-1][[0, -1]]
    assert {tuple(end) for end in ends.astype(int)} == {joint.strata_[k][::-1] for k in heaviest}


def test_the_heaviest_edges_are_drawn():
    W = np.triu(RNG.random((30, 30)), 1)
    ax = plot.graph(W + W.T, most=50)
    assert np.allclose(edges_of(ax).get_array(), np.sort(W[W > 0])[-50:])
    assert ax.get_title() == "30 strata, the 50 heaviest of 435 edges"
    with pytest.raises(OptionError, match="most must be a whole number of at least 1, not 0"):
        plot.graph(W + W.T, most=0)


@pytest.mark.parametrize("graph", [nx.empty_graph(4), graphs.path(1), PARTS, nx.path_graph(200)])
def test_any_graph_is_laid_out(graph):
    ax = plot.graph(graph)
    places = np.asarray(ax.collections[-1].get_offsets())
    assert len(np.unique(places.round(6), axis=0)) == len(graph)
    assert np.array_equal(places, np.asarray(plot.graph(graph).collections[-1].get_offsets()))
    assert len(ax.texts) == (len(graph) if len(graph) <= 60 else 0)


def test_history_is_the_objective(joint):
    ax = plot.history(joint)
    assert ax.lines[0].get_ydata().tolist() == joint.result_.history
    assert ax.lines[0].get_xdata().tolist() == list(range(joint.result_.iterations + 1))
    assert ax.get_legend() is None
    assert np.all(plot.history(SimpleNamespace(history=[1.0] * 18)).get_xticks() % 1 == 0)
    ax = plot.history({"a": joint, "b": joint.result_}, x="seconds", gap=True)
    seconds = ax.lines[0].get_xdata()
    assert np.all(np.diff(seconds) >= 0)
    assert 0 <= seconds[0] <= seconds[-1] <= joint.result_.seconds
    assert ax.get_yscale() == "log"
    assert np.nanmin(ax.lines[0].get_ydata()) > 0
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["a", "b"]


@pytest.mark.parametrize(
    ("draw", "error", "match"),
    [
        (lambda m: plot.weights(m, prior=np.zeros((3, 3))), DataError, "the prior graph (lacks|has 3)"),
        (lambda m: plot.weights(m, prior=graphs.path(12)), DataError, r"lacks \(0, 0\)"),
        (lambda m: plot.weights(np.zeros((2, 2)), prior=True), OptionError, "this is not a model"),
        (lambda m: plot.weights(strat.joint(BASE)), DataError, "not fitted"),
        (lambda m: plot.history(m, x="time"), OptionError, "x is 'time'"),
        (lambda m: plot.history({"new": strat.joint(BASE)}), DataError, "no fitted model and no Result"),
        (lambda m: plot.history([]), DataError, "no fits"),
        (lambda m: plot.history([without_times(m)], x="seconds"), DataError, 'use x="iterations"'),
        (lambda m: plot.parameters(None), OptionError, "needs a fitted StratifiedModel, not a NoneType"),
        (lambda m: plot.parameters(m, errors=True), OptionError, "these strata make a heatmap"),
    ],
)
def test_what_cannot_be_drawn_is_refused(joint, draw, error, match):
    with pytest.raises(error, match=match):
        draw(joint)


def without_times(model):
    return strat.Result(**{**vars(model.result_), "history_seconds": []})


def test_notebooks_show_tables_and_text(joint):
    result = joint.result_
    assert "history" not in repr(result) and str(result) == repr(result)
    for thing in (result, BASE, graphs.report(joint)):
        assert thing._repr_html_().startswith("<pre") and "&lt;" not in str(thing)
    z, y = [(0, 0), (0, 1)] * 6, RNG.standard_normal(12)
    table = strat.compare({"a <b>": strat.separate(BASE), "c": strat.common(BASE)}, data=(y, z), splits=2)
    html = table._repr_html_()
    assert html.count("<tr>") == 3 and "a &lt;b&gt;" in html and "<b>" not in html
    assert "mean ± standard error over 2 splits" in html
    assert "<table>" in strat.search(strat.separate(BASE), train=(y, z), folds=2)._repr_html_()
