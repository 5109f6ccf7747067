"""Graphs: what strat.graphs builds, what any graph input is read as, and what is refused."""

import copy
import math
import pickle

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from strat import graphs
from strat.errors import DataError, DataWarning, GraphError, OptionError
from strat.graphs.candidates import candidate_edges
from strat.graphs.prior_graph import PriorGraph, read_graph


def dense(graph, scale=1.0):
    return read_graph(graph).matrix(scale).toarray()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (graphs.path(5), nx.path_graph(5)),
        (graphs.cycle(5), nx.cycle_graph(5)),
        (graphs.cycle(2), nx.path_graph(2)),
        (graphs.cycle(1), nx.path_graph(1)),
        (graphs.star(5), nx.star_graph(4)),
        (graphs.complete(5), nx.complete_graph(5)),
        (graphs.grid(3, 4), nx.grid_2d_graph(3, 4)),
        (graphs.product(graphs.path(3), graphs.cycle(4)), nx.grid_2d_graph(3, 4, periodic=(False, True))),
    ],
)
def test_families_are_those_of_networkx(ours, theirs):
    assert nx.utils.graphs_equal(nx.Graph(ours.edges), nx.Graph(theirs.edges))
    assert list(ours) == list(theirs)
    assert isinstance(ours, nx.Graph)


def test_families_list_their_edges_when_networkx_needs_them():
    def family():
        return graphs.cycle(["a", "b", "c", "d"], weight=[1.0, 2.0, 3.0, 4.0], name="f")

    listed, unread, renamed = nx.Graph(family()), family(), family()
    prior = read_graph(unread)
    assert unread.prior is not None and str(unread) == str(listed)
    assert vars(prior).keys() == vars(read_graph(listed)).keys()
    assert prior.factors == ("f",) and np.array_equal(dense(unread), dense(listed))
    assert read_graph(family()).to_networkx().edges == listed.edges
    for copied in (copy.deepcopy, copy.copy, nx.Graph.copy, lambda g: pickle.loads(pickle.dumps(g))):
        assert nx.utils.graphs_equal(copied(family()), listed)
    renamed.name = "other"
    assert read_graph(renamed).name == "other" and read_graph(renamed).factors == ("f",)
    for change in (
        lambda g: g.add_edge("a", "c", weight=9.0),
        lambda g: g.remove_node("b"),
        lambda g: g.add_node("e"),
    ):
        mine, theirs = family(), listed.copy()
        change(mine), change(theirs)
        assert nx.utils.graphs_equal(mine, theirs) and np.array_equal(dense(mine), dense(theirs))


@pytest.mark.parametrize("family", [graphs.path, graphs.cycle, graphs.star, graphs.complete])
def test_families_take_weights_labels_and_a_name(family):
    labels = list("abcd")
    named = family(labels, weight=2, name="letter")
    assert list(named) == labels
    assert {tuple(d.values()) for *_, d in named.edges(data=True)} == {(2.0, "letter")}
    assert all("factor" not in data for _, _, data in family(4).edges(data=True))
    weights = np.arange(1.0, 1.0 + len(named.edges))
    each = family(labels, weight=weights)
    assert sorted(weight for *_, weight in each.edges(data="weight")) == weights.tolist()


def test_product_is_the_kronecker_sum_with_flat_labels():
    a, b, c = graphs.path(2, 2.0), graphs.cycle(["x", "y", "z"], 3.0), graphs.star(3, 5.0)
    product = graphs.product(a, b, c)
    assert list(product)[:4] == [(0, "x", 0), (0, "x", 1), (0, "x", 2), (0, "y", 0)]
    A, B, C, eye = dense(a), dense(b), dense(c), np.eye
    expected = np.kron(np.kron(A, eye(3)), eye(3)) + np.kron(np.kron(eye(2), B), eye(3)) + np.kron(eye(6), C)
    assert np.array_equal(dense(product), expected)
    assert list(graphs.grid(1, 3).edges(data="factor")) == [
        ((0, 0), (0, 1), "factor2"),
        ((0, 1), (0, 2), "factor2"),
    ]


def test_each_edge_of_a_product_remembers_its_factor():
    product = graphs.product(graphs.path(2, name="age"), nx.path_graph(2), graphs.path(2, name="year"))
    assert product.edges[(0, 0, 0), (1, 0, 0)]["factor"] == "age"
    assert product.edges[(0, 0, 0), (0, 1, 0)]["factor"] == "factor2"
    assert product.edges[(0, 0, 0), (0, 0, 1)]["factor"] == "year"
    nested = graphs.product(graphs.grid(2, 2, name=("age", "place")), graphs.path(2, name="year"))
    assert read_graph(nested).factors == ("age", "place", "year")
    assert ((0, 0), 0) in nested


def test_product_keeps_other_attributes_and_takes_matrices():
    roads = nx.Graph()
    roads.add_edge("a", "b", weight=2, kind="motorway")
    product = graphs.product(roads, ([0, 1], np.array([[0, 7.0], [7, 0]])))
    assert product.edges[("a", 0), ("b", 0)] == {"weight": 2.0, "kind": "motorway", "factor": "factor1"}
    assert product.edges[("a", 0), ("a", 1)]["weight"] == 7.0
    assert roads.edges["a", "b"] == {"weight": 2, "kind": "motorway"}


def test_knn_of_equal_rows_never_counts_the_node_itself():
    graph = graphs.knn(np.zeros((5, 2)), k=2)
    assert min(degree for _, degree in graph.degree) >= 2
    assert nx.number_of_selfloops(graph) == 0


PATH3, ABC = graphs.path(3, name="x"), read_graph(nx.path_graph(["a", "b", "c"]))
NAMED, ALONE = read_graph(graphs.grid(2, 3, name=("density", "sulphates"))), PriorGraph.without_edges("abc")
#: What errors say, and what they say it of.
UNBUILT = {
    GraphError: {
        "the text 'abc'": lambda: graphs.path("abc"),
        "'a' occurs more than once": lambda: graphs.path(["a", "b", "a"]),
        "the graph has no nodes": lambda: graphs.path([]),
        "None": lambda: graphs.path([1, None]),
        "nodes is a set": lambda: graphs.path({1, 2}),
        "nodes is a float": lambda: graphs.path(2.5),
        "at least 0": lambda: graphs.path(3, weight=-1),
        "'heavy'": lambda: graphs.path(3, weight="heavy"),
        r"shape \(3,\) for 2 edges": lambda: graphs.path(3, weight=[1, 2, 3]),
        "a grid has at least two": lambda: graphs.grid(3),
        "2 axes, but 3 weights": lambda: graphs.grid(3, 3, weight=(1, 2, 3)),
        "1 names": lambda: graphs.grid(3, 3, name="x"),
        "a product has at least two": lambda: graphs.product(PATH3),
        "1 and 2 .* both named 'x'": lambda: graphs.product(PATH3, PATH3),
        "a str is not a graph": lambda: graphs.product(PATH3, "cycle"),
        "edges: 'x' is not a node": lambda: candidate_edges([("a", "x")], ABC),
        r"\('a', 'a'\) joins a stratum to itself": lambda: candidate_edges([("a", "a")], ABC),
        "no candidate edges": lambda: candidate_edges([], ABC),
        "not a list of pairs": lambda: candidate_edges([("a", "b", "c")], ABC),
        "0 is not a node": lambda: candidate_edges(nx.path_graph(2), ABC),
        'edges="prior": the graph has no edges': lambda: candidate_edges("prior", ALONE),
    },
    OptionError: {
        "edges='some' is not known": lambda: candidate_edges("some", ABC),
        "k is 0": lambda: graphs.knn(np.eye(3), 0),
        "1 to 2 neighbours": lambda: graphs.knn(np.eye(3), 3),
        "k is 1.5": lambda: graphs.knn(np.eye(3), 1.5),
        "metric='crow' cannot be used": lambda: graphs.knn(np.eye(3), 1, metric="crow"),
        "Unknown Distance Metric": lambda: graphs.exponential_kernel(np.eye(3), 1.0, metric="crow"),
        "tau is -1.0": lambda: graphs.exponential_kernel(np.eye(3), -1.0),
        "tau is '1'": lambda: graphs.exponential_kernel(np.eye(3), "1"),
        "tau is True": lambda: graphs.exponential_kernel(np.eye(3), True),
        "'age' is not a factor of the graph.*has the factors 'density'": lambda: NAMED.weights({"age": 1}),
        r"scale\['density'\] is -1": lambda: NAMED.weights({"density": -1}),
        r"scale\['density'\] is '2'": lambda: NAMED.weights({"density": "2"}),
        "scale is nan": lambda: NAMED.weights(math.nan),
        "has no factors": lambda: ABC.weights({"year": 2}),
    },
    DataError: {
        "nan in row 1, column 0": lambda: graphs.knn([[1.0], [math.nan]], 1),
        "numbers": lambda: graphs.knn([["a"], ["b"]], 1),
        "shape": lambda: graphs.knn(np.zeros((2, 2, 2)), 1),
        "a single stratum, which has no neighbours": lambda: graphs.knn([[1.0, 2.0]], 1),
        "counts must hold 3 finite numbers": lambda: graphs.from_parameters(np.eye(3), counts="many"),
        "needs a GeoDataFrame or GeoSeries": lambda: graphs.from_geometry([1, 2]),
    },
}
ROWS = [(error, text, build) for error, rows in UNBUILT.items() for text, build in rows.items()]


@pytest.mark.parametrize(("error", "text", "build"), ROWS, ids=[text for _, text, _ in ROWS])
def test_what_cannot_be_built_or_scaled(error, text, build):
    with pytest.raises(error, match=text):
        build()


def test_networkx_graphs_are_read_in_node_order_and_left_alone():
    graph = nx.Graph()
    graph.add_nodes_from(["c", "a", "b"])
    graph.add_edge("b", "c", weight=3)
    graph.add_edge("a", "b")
    before = copy.deepcopy(graph)
    prior = read_graph(graph)
    assert prior.labels == ["c", "a", "b"]
    assert (prior.i.tolist(), prior.j.tolist(), prior.weights().tolist()) == ([0, 1], [2, 2], [3.0, 1.0])
    assert nx.utils.graphs_equal(graph, before)
    assert np.array_equal(prior.matrix().toarray(), nx.to_numpy_array(graph))


def test_parallel_edges_are_summed_and_loops_dropped():
    graph = nx.MultiGraph([("a", "b", {"weight": 1.5}), ("b", "a", {"weight": 2}), ("a", "a", {"weight": 9})])
    with pytest.warns(DataWarning, match="1 self loops, such as one at 'a'"):
        prior = read_graph(graph)
    assert prior.weights().tolist() == [3.5]


def test_rounding_is_forgiven():
    W = np.array([[0, 1 + 1e-12], [1, 0]])
    assert read_graph(([0, 1], W)).weights()[0] == pytest.approx(1, abs=1e-11)
    tiny = nx.Graph([(0, 1, {"weight": 1.0}), (1, 2, {"weight": -1e-14})])
    assert read_graph(tiny).weights().tolist() == [1.0, 0.0]
    with pytest.warns(DataWarning, match="self loops, such as one at 1"):
        assert read_graph(([0, 1], np.array([[0, 1], [1, 5]]))).weights().tolist() == [1.0]
    # Edges of weight 0 are edges.
    assert read_graph(nx.Graph([(0, 1, {"weight": 0})])).weights().tolist() == [0.0]
    stored = sparse.coo_array((np.zeros(2), ([0, 1], [1, 0])), shape=(2, 2))
    assert read_graph(([0, 1], stored)).weights().tolist() == [0.0]
    assert read_graph(([0, 1], np.zeros((2, 2)))).weights().tolist() == []


def weighted_edge(weight):
    return nx.Graph([("a", "b"), ("b", "c", {"weight": weight})])


LABELS, UPPER = ["a", "b", "c"], np.array([[0.0, 2.0, 0.0], [0.0, 0.0, 5.0], [0.0, 0.0, 0.0]])
W = UPPER + UPPER.T


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (nx.DiGraph([(0, 1)]), "directed"),
        (nx.Graph(), "no nodes"),
        (weighted_edge(-1), r"edge \('b', 'c'\) has the weight -1, which is negative"),
        (weighted_edge(10**400), r"edge \('b', 'c'\) has the weight inf, which is not finite"),
        (weighted_edge(math.nan), r"edge \('b', 'c'\) has the weight nan, which is not finite"),
        (weighted_edge("3"), r"edge \('b', 'c'\) has the weight '3', which is not a number"),
        (nx.Graph([(math.nan, 1)]), "missing value"),
        ((["a", "b"], [[0, 1], [2, 0]]), r"not symmetric: the edge \('a', 'b'\) has weight 1 one way and 2"),
        ((["a", "b"], sparse.csr_array([[0, 1.0], [1 + 1e-8, 0]])), "not symmetric"),
        ((["a", "b"], np.eye(3)), r"W has shape \(3, 3\), but there are 2 labels"),
        ((["a", "a"], np.zeros((2, 2))), "'a' occurs more than once"),
        ((["a", ["b"]], np.zeros((2, 2))), "not hashable"),
        ((["a", None], np.zeros((2, 2))), "None"),
        ((["a", "b"], [[0, 1], [1]]), "different lengths"),
        ((["a", "b"], [["0", "1"], ["1", "0"]]), "not a matrix of numbers"),
        ((["a", "b"], sparse.csr_array((2, 2), dtype=complex)), "complex"),
        ((["a", "b"], np.array([[0, -1.0], [-1, 0]])), r"edge \('a', 'b'\) has the weight -1"),
        ((None, np.zeros((2, 2))), "labels"),
        (np.zeros((3, 3)), "an ndarray is not a graph"),
        (3, "an int is not a graph"),
        ("path", "a str is not a graph"),
        ((LABELS, UPPER), r"Only one half of W is filled: pass W \+ W.T"),
        ((LABELS, W / W.sum(axis=1, keepdims=True)), "shares of a row: pass the weights before"),
        ((LABELS, (UPPER > 0) + (UPPER.T > 3)), r"pass W.maximum\(W.T\)"),
        ((LABELS, UPPER + 2 * UPPER.T), r"Pass \(W \+ W.T\) / 2 for the mean"),
        ((LABELS, [0, 1, 1], [1, 0, 2], [2, 3, 5]), "has weight 5 one way and 0 the other"),
        ((LABELS, [0, 1], [1, 3], [2, 5]), "positions of the ends among the labels, from 0 to 2"),
        ((LABELS, [0.5], [1], [2]), "positions of the ends"),
        ((LABELS, [0, 1], [1], [2, 5]), "arrays of one length"),
        (object(), "a W or Graph of libpysal"),
    ],
)
def test_what_is_no_graph_is_refused_with_advice(graph, message):
    with pytest.raises(GraphError, match=message):
        read_graph(graph)


def test_scales_multiply_the_weights_of_their_factor():
    graph = graphs.grid(2, 3, weight=(20, 10), name=("density", "sulphates"))
    prior = read_graph(graph)
    ends = ((prior.labels[i], prior.labels[j]) for i, j in zip(prior.i, prior.j, strict=True))
    edges = (graph.edges[pair] for pair in ends)
    expected = [edge["weight"] * (2 if edge["factor"] == "density" else 1) for edge in edges]
    assert np.array_equal(prior.weights({"density": 2}), expected)
    assert np.array_equal(prior.weights(0.5), prior.weights() / 2)
    assert prior.weights({}).tolist() == prior.weights().tolist()
    assert not prior.weights(0.0).any()


def test_scales_reach_parallel_edges_of_different_factors_and_spare_the_rest():
    road, rail = {"weight": 1, "factor": "road"}, {"weight": 10, "factor": "rail"}
    graph = nx.MultiGraph([(0, 1, road), (0, 1, rail), (1, 2)])
    assert read_graph(graph).weights({"rail": 3}).tolist() == [31.0, 1.0]


def test_candidate_edges():
    prior = read_graph(nx.Graph([("a", "b", {"weight": 0}), ("b", "c"), ("c", "d")]))

    def of(edges, prior=prior):
        return [ends.tolist() for ends in candidate_edges(edges, prior)]

    assert of("all") == [[0, 0, 0, 1, 1, 2], [1, 2, 3, 2, 3, 3]]
    assert of("prior") == [[0, 1, 2], [1, 2, 3]]
    pairs = [("d", "a"), ("a", "d"), ("b", "a")]
    assert of(pairs) == of(nx.Graph(pairs)) == of(np.array(pairs)) == [[0, 0], [1, 3]]
    assert of((["d", "b"], np.array([[0, 1], [1, 0]]))) == [[1], [3]]
    tuples = (((0, 0), (0, 1)), ((0, 0), (1, 1)))  # two pairs of tuple labels are pairs
    assert of(tuples, read_graph(graphs.grid(2, 2))) == [[0, 0], [1, 3]]
    everything = candidate_edges("all", prior)
    assert prior.weights_on(*everything).tolist() == [0.0, 0.0, 0.0, 1.0, 0.0, 1.0]
    assert ALONE.weights_on(*everything).tolist() == [0.0] * 6
    assert of("all", PriorGraph.without_edges(["a"])) == [[], []]


@st.composite
def weighted_graphs(draw):
    K = draw(st.integers(1, 7))
    pairs = [(i, j) for i in range(K) for j in range(i)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    graph = nx.Graph()
    graph.add_nodes_from(range(K))
    graph.add_weighted_edges_from((i, j, draw(st.floats(0, 100))) for i, j in chosen)
    return graph


@given(weighted_graphs(), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_relabelling_permutes_the_matrix(graph, random):
    order = random.sample(list(graph), len(graph))
    moved = nx.Graph()
    moved.add_nodes_from(order)
    moved.add_edges_from(graph.edges(data=True))
    W = dense(graph)
    assert np.array_equal(W, W.T) and not W.diagonal().any()
    assert np.array_equal(dense(moved), W[np.ix_(order, order)])


@given(weighted_graphs())
@settings(max_examples=60, deadline=None)
def test_every_spelling_of_a_graph_is_the_same_graph(graph):
    W = nx.to_numpy_array(graph)
    assert np.array_equal(dense(graph), W)
    for make in (np.asarray, np.ndarray.tolist, pd.DataFrame, sparse.csr_array, sparse.coo_matrix):
        assert np.array_equal(dense((list(graph), make(W))), W)
    assert np.array_equal(dense(nx.MultiGraph(graph)), W)
    assert np.array_equal(dense(read_graph(graph).to_networkx()), W)


@pytest.mark.filterwarnings("error")
def test_sparse_graphs_stay_sparse():
    K = 50_000
    prior = read_graph((range(K), sparse.diags_array([np.ones(K - 1)] * 2, offsets=[-1, 1])))
    assert (prior.K, len(prior.i)) == (K, K - 1)
    i, j = candidate_edges("prior", prior)
    assert np.array_equal(prior.weights_on(i, j), np.ones(K - 1))
    both_ways = (np.concatenate(ends).astype(np.int32) for ends in ((i, j), (j, i)))
    once = j, i, np.zeros(K - 1)
    for listed in (read_graph((range(K), *both_ways, 1.0)), read_graph((range(K), *once))):
        assert np.array_equal(listed.i, i) and np.array_equal(listed.j, j)


# --- graphs from where they live: arrays of edges, libpysal's weights, shapes of geopandas
@pytest.mark.parametrize(
    ("i", "j", "w"),
    [
        ([0, 1], [1, 2], [2, 5]),  # each edge once, in any direction
        ([1, 1], [0, 2], [2.0, 5.0]),
        ([0, 1, 1, 2], [1, 0, 2, 1], [2, 2, 5, 5]),  # all both ways
        ([0, 1, 1], [1, 2, 2], [2, 2, 3]),  # parallel edges are summed
    ],
)
def test_lists_of_edges_are_graphs(i, j, w):
    assert np.array_equal(read_graph((LABELS, np.array(i), j, w)).matrix().toarray(), W)
    assert np.array_equal(read_graph((LABELS, sparse.coo_matrix(W))).matrix().toarray(), W)


def test_weights_of_libpysal_are_graphs():
    libpysal = pytest.importorskip("libpysal")
    neighbors, weights = {"a": ["b"], "b": ["a", "c"], "c": ["b"]}, {"a": [2], "b": [2, 5], "c": [5]}
    old = libpysal.weights.W(neighbors, weights, silence_warnings=True)
    new = libpysal.graph.Graph.from_dicts(neighbors, weights)
    for graph in (old, new):
        prior = read_graph(graph)
        assert prior.labels == LABELS and np.array_equal(prior.matrix().toarray(), W)
    with pytest.raises(GraphError, match="transform = 'B'"):
        read_graph(new.transform("r"))
    nearest = libpysal.graph.Graph.build_knn(np.array([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0]]), k=1)
    with pytest.raises(GraphError, match="says which are nearest"):
        read_graph(nearest)


def test_places_that_touch_share_a_border_or_are_near_are_joined():
    geopandas, shapely = pytest.importorskip("geopandas"), pytest.importorskip("shapely")
    shapes = [shapely.box(x, y, x + 1, y + 1) for x in range(3) for y in range(3)]
    shapes.append(shapely.box(9, 9, 10, 10))
    squares = geopandas.GeoDataFrame(geometry=shapes, index=[*"abcdefghi", "far"])
    king, rook = nx.strong_product(nx.path_graph(3), nx.path_graph(3)), nx.grid_2d_graph(3, 3)
    for rule, expected in (("queen", king), ("rook", rook)):
        expected = nx.relabel_nodes(expected, lambda n: "abcdefghi"[3 * n[0] + n[1]])
        graph = graphs.from_geometry(squares, rule, weight=2.0, name="place")
        assert {frozenset(e) for e in graph.edges} == {frozenset(e) for e in expected.edges}
        assert list(graph) == list(squares.index) and graph.nodes["a"]["geometry"].area == 1
        assert set(nx.get_edge_attributes(graph, "weight").values()) == {2.0}
    near = graphs.from_geometry(squares.geometry, "nearest", k=1)
    assert near.has_edge("far", "i") and min(dict(near.degree).values()) >= 1
    east, west = squares.geometry.iloc[[0]].translate(179, 0), squares.geometry.iloc[[1]].translate(-180, 0)
    globe = pd.concat([east, squares.geometry.iloc[[2]].translate(150, 0), west]).set_crs(4326)
    assert ("a", "b") in graphs.from_geometry(globe, "nearest", k=1).edges  # across the date line
    with pytest.warns(DataWarning, match="gives 0 edges here: points have no borders.*nearest"):
        assert not graphs.from_geometry(squares.geometry.centroid).edges
    with pytest.raises(OptionError, match="rule is 'bishop'"):
        graphs.from_geometry(squares, "bishop")
    with pytest.raises(DataError, match="'b' has no shape"):
        graphs.from_geometry(squares.geometry.where(squares.index != "b"))
