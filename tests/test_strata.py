"""Records find their strata, whatever the labels come in."""

from datetime import date, datetime

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import mean
from scipy import sparse

import strat
from strat.errors import DataError, GraphError, ShapeError
from strat.records.labels import named_columns, read_labels
from strat.records.strata import Strata, in_order

PEOPLE = [("F", 19), ("M", 20), ("F", 19), ("F", 20)]
FRAME = pd.DataFrame({"sex": ["F", "M", "F", "F"], "age": [19, 20, 19, 20], "x": [0.1, 0.2, 0.3, 0.4]})


@pytest.mark.parametrize(
    "strata",
    [
        PEOPLE, tuple(PEOPLE), [list(pair) for pair in PEOPLE],
        np.array([["F", 19], ["M", 20], ["F", 19], ["F", 20]], dtype=object),
        pd.MultiIndex.from_tuples(PEOPLE), pd.Series(PEOPLE, index=[7, 7, 1, 0]), FRAME[["sex", "age"]],
        ["sex", "age"], ("sex", "age"),
    ],
)  # fmt: skip
def test_several_columns_are_tuples(strata):
    assert read_labels(strata, FRAME, 4).tolist() == PEOPLE


@pytest.mark.parametrize(
    "strata",
    [
        [19, 20, 19, 20], np.array([19, 20, 19, 20]), np.array([19.0, 20.0, 19.0, 20.0]),
        np.array([[19], [20], [19], [20]]), np.array([np.int64(19), np.int64(20), 19, 20], dtype=object),
        [np.int64(19), np.int64(20), np.int64(19), np.int64(20)],
        pd.Series([19, 20, 19, 20], index=list("dcba")), pd.Index([19, 20, 19, 20]),
        pd.Categorical([19, 20, 19, 20]), FRAME[["age"]], FRAME["age"], "age", ["age"], range(19, 21),
    ],
)  # fmt: skip
def test_one_column_is_plain_labels(strata):
    labels = read_labels(strata, FRAME)
    assert labels.values == [19, 20]
    assert all(type(label) in (int, float) for label in labels.values)
    assert labels.codes.tolist() in ([0, 1, 0, 1], [0, 1])


def test_labels_are_plain_python_objects():
    (label,) = read_labels([("a", np.int64(1), (np.float64(0.5), np.str_("b")))]).values
    assert label == ("a", 1, (0.5, "b"))
    assert [type(part) for part in label] == [str, int, tuple]
    assert type(label[2][1]) is str


@pytest.mark.parametrize("unit", ["D", "ms", "us", "ns"])
def test_dates_match_across_units(unit):
    (label,) = read_labels(np.array(["2020-03-01"], dtype=f"datetime64[{unit}]")).values
    assert label == datetime(2020, 3, 1) == pd.Timestamp("2020-03-01")
    assert hash(label) == hash(pd.Timestamp("2020-03-01"))


def test_strings_that_are_not_all_columns_are_labels():
    assert named_columns(["sex", "F", "F", "M"], FRAME) is None
    assert read_labels(["sex", "F", "F", "M"], FRAME).values == ["sex", "F", "M"]
    assert named_columns(["sex"], np.zeros((4, 2))) is None
    twice = pd.DataFrame([[1, 2]], columns=["age", "age"])
    for X, text in ((np.zeros((4, 2)), "X is not a DataFrame"), (twice, "'age' names more than one column")):
        with pytest.raises(DataError, match=text):
            read_labels("age", X)


@pytest.mark.parametrize(
    ("strata", "message"),
    [
        (None, "no strata were given"),
        (pd.DataFrame([[1, 2]] * 4, columns=["age", "age"]), "not distinct"),
        ("county", "strata='county': X has no column 'county', only sex, age, x"),
        (np.array([1, 2, 3]), "3 labels for 4 records"),
        ([1, 2, float("nan"), 3], "record 2 has no label but nan"),
        (np.array([1.0, 2.0, np.nan, np.nan]), r"record 2 \(and 1 more\)"),
        ([("F", 1), ("F", None), ("M", 1), ("M", 2)], r"record 1 has no label but \('F', None\)"),
        (pd.array([1, 2, None, 3], dtype="Int64"), "record 2 has no label"),
        (pd.Categorical(["a", None, "b", "c"]), "record 1 has no label"),
        (pd.to_datetime(["2020-01-01", None, "2020-01-02", "2020-01-03"]), "record 1 has no label"),
        (np.zeros((4, 1, 1)), r"an array of shape \(4, 1, 1\)"),
        (sparse.csr_array(np.eye(4)), "has no order of records"),
        ({1, 2, 3, 4}, "a set has no order"),
        (17, "an int holds no labels. Pass one label per record, in a list"),
        ([{"a": 1}, 2, 3, 4], "the label of record 0 is a dict, which is not hashable"),
    ],
)
def test_labels_that_cannot_be_used(strata, message):
    with pytest.raises(ShapeError if "labels for" in message else DataError, match=message):
        read_labels(strata, FRAME, 4)


def test_records_are_grouped_in_node_order():
    strata = Strata.read(["b", "a", "b", "d"], nodes=["d", "c", "b", "a"])
    assert strata.labels == ["d", "c", "b", "a"]
    assert strata.index.tolist() == [2, 3, 2, 0]
    assert strata.counts.tolist() == [1, 0, 2, 1]
    assert strata.order.tolist() == [3, 0, 2, 1]
    assert (strata.K, strata.N) == (4, 4)


def test_without_a_graph_labels_are_sorted_when_they_can_be():
    assert Strata.read(["b", "a", "b"]).labels == ["a", "b"]
    assert Strata.read(["b", 1, "b"]).labels == ["b", 1]
    assert in_order([("b", 1), ("a", 2)]) == [("a", 2), ("b", 1)]
    assert Strata.read([], nodes=["a", "b"]).counts.tolist() == [0, 0]


def test_unknown_stratum_says_where_and_what_to_do():
    nodes = [(sex, age) for sex in "FM" for age in range(19, 86)]
    labels = [("F", 20)] * 1596 + [("F", 93)] * 3
    text = (
        "stratum ('F', 93) is not a node of the graph; 3 of 1,599 records are affected. The graph has "
        "134 nodes, such as ('F', 19), ('F', 20), … ('M', 85). Add the node to the graph or drop these records."
    )
    with pytest.raises(GraphError) as caught:
        Strata.read(labels, nodes=nodes)
    assert str(caught.value) == text


def test_unknown_strata_are_counted():
    for labels, message in (
        (list("axyx"), r"'x' is not a node of the graph \(nor is one other label\); 3 of 4 records are"),
        (list("xyz"), r"\(nor are 2 other labels\); 3 of 3"),
        (["a", "x"], "1 of 2 records is affected"),
        (["1"], "Did you mean 1"),
    ):
        with pytest.raises(GraphError, match=message):
            Strata.read(labels, nodes=["a", "b", 1])


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=60), st.randoms())
@settings(max_examples=60, deadline=None)
def test_relabelling_moves_strata_and_nothing_else(labels, random):
    nodes = sorted(set(labels))
    shuffled = random.sample(nodes, len(nodes))
    strata, moved = Strata.read(labels, nodes=nodes), Strata.read(labels, nodes=shuffled)
    assert [strata.labels[k] for k in strata.index] == labels == [moved.labels[k] for k in moved.index]
    for order, index in ((strata.order, strata.index), (moved.order, moved.index)):
        assert order.tolist() == sorted(range(len(labels)), key=lambda row: index[row])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64"])
@pytest.mark.parametrize("numbers", [[3, 1, 3, 2, 1], [100, 7, 7, 100, 0], [5], [120, 0, 127, 64]])
def test_whole_numbers_are_read_as_any_labels(numbers, dtype):
    column = np.array(numbers, dtype=dtype)
    for labels in (column, pd.Series(column, index=np.arange(len(numbers))[::-1])):
        found, expected = read_labels(labels), read_labels(column.tolist())
        assert found.values == expected.values
        assert all(type(v) is int for v in found.values)
        assert np.array_equal(found.codes, expected.codes)


@pytest.mark.parametrize(
    ("label", "meant"),
    [
        ((1, "f"), r"\('f', 1\)\? A label has the parts in the order"),
        ("f", r"\('f', 1\), \('f', 2\)\? The graph's nodes are tuples: .*list\(zip\(a, b\)\)"),
        (2, r"\('f', 2\), \('m', 2\)\?"),
        (("f", "1"), r"\('f', 1\)\? The two differ in type"),
    ],
)
def test_the_node_that_was_meant_is_named(label, meant):
    nodes = [(sex, age) for sex in "fm" for age in (1, 2)]
    with pytest.raises(GraphError, match=f"Did you mean {meant}"):
        Strata.read([("f", 1), label], nodes=nodes)
    base, graph = mean(), nx.path_graph(nodes)
    with pytest.raises(GraphError, match=f"Did you mean {meant}"):
        strat.lrsm(base, graph).fit([1.0] * 4, strata=nodes).at(label)
    with pytest.raises(GraphError, match=f"Did you mean {meant}"):
        strat.joint(base, graph, edges=[(nodes[0], label)]).fit([1.0] * 4, strata=nodes)


@pytest.mark.parametrize(
    "label", ["2023-03-01", "2023-03-01T00:00:00", date(2023, 3, 1), pd.Period("2023-03", "M")]
)
def test_dates_of_another_type_or_format_are_said_to_be_so(label):
    days, text = pd.date_range("2023-01-01", periods=4, freq="MS"), "The two differ in type or format"
    for one, nodes in ((label, list(days)), (("a", label), [("a", day) for day in days])):
        with pytest.raises(GraphError, match=f"Did you mean .*2023-03-01 00.*{text}"):
            Strata.read([one], nodes=nodes)


def test_whole_numbers_far_apart_and_negative():
    for numbers in ([-5, 3, -5], [2**62, -(2**62), 2**62], [-128, 127]):
        assert read_labels(np.array(numbers)).tolist() == numbers
    assert read_labels(pd.Series([1, 2, 1], dtype="Int64")).tolist() == [1, 2, 1]
