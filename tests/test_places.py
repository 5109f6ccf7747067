"""Graphs from where they live: arrays of edges, libpysal's weights, shapes of geopandas."""

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import strat
from strat import graphs
from strat.graphs.prior_graph import read_graph

UPPER = np.array([[0.0, 2.0, 0.0], [0.0, 0.0, 5.0], [0.0, 0.0, 0.0]])
W = UPPER + UPPER.T
LABELS = ["a", "b", "c"]


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


@pytest.mark.parametrize(
    ("graph", "text"),
    [
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
def test_asymmetric_weights_and_what_is_no_graph_are_refused_with_advice(graph, text):
    with pytest.raises(strat.GraphError, match=text):
        read_graph(graph)


def test_weights_of_libpysal_are_graphs():
    libpysal = pytest.importorskip("libpysal")
    neighbors, weights = {"a": ["b"], "b": ["a", "c"], "c": ["b"]}, {"a": [2], "b": [2, 5], "c": [5]}
    old = libpysal.weights.W(neighbors, weights, silence_warnings=True)
    new = libpysal.graph.Graph.from_dicts(neighbors, weights)
    for graph in (old, new):
        prior = read_graph(graph)
        assert prior.labels == LABELS and np.array_equal(prior.matrix().toarray(), W)
    with pytest.raises(strat.GraphError, match="transform = 'B'"):
        read_graph(new.transform("r"))
    nearest = libpysal.graph.Graph.build_knn(np.array([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0]]), k=1)
    with pytest.raises(strat.GraphError, match="says which are nearest"):
        read_graph(nearest)


@pytest.fixture
def squares():
    geopandas, shapely = pytest.importorskip("geopandas"), pytest.importorskip("shapely")
    shapes = [shapely.box(x, y, x + 1, y + 1) for x in range(3) for y in range(3)]
    return geopandas.GeoDataFrame(geometry=[*shapes, shapely.box(9, 9, 10, 10)], index=[*"abcdefghi", "far"])


def test_places_that_touch_share_a_border_or_are_near_are_joined(squares):
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
    with pytest.raises(strat.OptionError, match="rule is 'bishop'"):
        graphs.from_geometry(squares, "bishop")
    with pytest.raises(strat.DataError, match="needs a GeoDataFrame or GeoSeries"):
        graphs.from_geometry([1, 2])
    with pytest.raises(strat.DataError, match="'b' has no shape"):
        graphs.from_geometry(squares.geometry.where(squares.index != "b"))
