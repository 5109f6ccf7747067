"""Splitters: strata stay in folds, time runs forward, and scikit-learn takes them."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import mean

import strat
from strat.records.sample import Sample


@given(st.lists(st.integers(0, 5), min_size=8, max_size=60), st.integers(2, 6), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_every_stratum_of_two_records_or_more_stays_in_every_training_part(labels, n, seed):
    z = np.array(labels)
    held = []
    for train, test in strat.StrataKFold(n, random_state=seed).split(z, groups=z):
        counts = {k: (z == k).sum() for k in set(labels)}
        for k, count in counts.items():
            inside = (z[test] == k).sum()
            assert count // n <= inside <= -(-count // n)
            assert count < 2 or (z[train] == k).any()
        assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(len(z)))
        held.append(test)
    assert np.array_equal(np.sort(np.concatenate(held)), np.arange(len(z)))
    sizes = [len(test) for test in held]
    assert max(sizes) - min(sizes) <= 1


def test_folds_follow_the_seed():
    z = [0, 1] * 20
    folds = [
        [t.tolist() for _, t in strat.StrataKFold(4, random_state=s).split(z, groups=z)] for s in (0, 0, 1)
    ]
    assert folds[0] == folds[1] != folds[2]


def test_strata_may_be_tuples_or_columns_of_x():
    frame = pd.DataFrame({"age": [0, 0, 1, 1] * 4, "sex": ["F", "M"] * 8, "x": range(16)})
    named = [t.tolist() for _, t in strat.StrataKFold(4, strata=["age", "sex"]).split(frame)]
    labels = list(zip(frame.age, frame.sex, strict=True))
    assert named == [t.tolist() for _, t in strat.StrataKFold(4).split(frame, groups=labels)]


def test_origins_roll_forward_and_test_every_point_once():
    z = [(s, t) for t in range(2000, 2010) for s in "ab"]
    years = np.array([t for _, t in z])
    for time in (1, lambda label: label[1]):
        tested = []
        for train, test in strat.RollingOrigin(3, time=time, horizon=2).split(z, groups=z):
            assert years[train].max() < years[test].min()
            assert set(years[train]) == set(range(2000, years[test].min()))
            tested += sorted(set(years[test]))
        assert tested == [2004, 2005, 2006, 2007, 2008, 2009]
    plain = list(strat.RollingOrigin(1).split(years, groups=years))
    assert set(years[plain[0][1]]) == {2009}


@pytest.mark.parametrize(
    ("splitter", "groups", "error", "words"),
    [
        (strat.StrataKFold(3), None, strat.DataError, "none were given: pass groups="),
        (strat.StrataKFold(1), [0, 1], strat.OptionError, "n_splits must be a whole number of at least 2"),
        (strat.StrataKFold(3), [0, 1], strat.DataError, "cannot be spread over 3 folds"),
        (strat.RollingOrigin(3), [1, 2, 3], strat.DataError, "need more than 3 points in time"),
        (strat.RollingOrigin(1, time=1), [1, 2, 3], strat.OptionError, "not a position in the label 1"),
        (strat.RollingOrigin(1, horizon=0), [1, 2], strat.OptionError, "horizon must be"),
        (strat.RollingOrigin(1), ["a", 1, "b"], strat.DataError, "cannot be put in order"),
    ],
)
def test_refusals(splitter, groups, error, words):
    with pytest.raises(error, match=words):
        list(splitter.split(groups, groups=groups))


def test_time_may_be_a_column_or_a_factor():
    place, year = ["a", "b"] * 6, np.repeat([2000, 2004, 2008], 4)
    frame = pd.DataFrame({"place": place, "year": year, "x": 0.0})
    expected = [t.tolist() for _, t in strat.RollingOrigin(2, time=1).split(frame, groups=["place", "year"])]
    for strata in (["place", "year"], "place"):  # the column of time need not be one of the strata
        found = strat.RollingOrigin(2, time="year").split(frame, groups=strata)
        assert [t.tolist() for _, t in found] == expected
    graph = strat.graphs.grid(["a", "b"], [2000, 2004, 2008], name=("place", "year"))
    sample = Sample(
        [strat.lrsm(mean(), graph)], (np.arange(12.0), list(zip(place, year, strict=True))), "train"
    )
    pairs = sample.splits(strat.RollingOrigin(2, time="year"))
    assert [test.tolist() for _, test in pairs] == expected
    with pytest.raises(strat.OptionError, match="or a factor of a model's graph"):
        sample.splits(strat.RollingOrigin(2, time="month"))
