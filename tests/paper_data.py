"""The paper's data, as its experiments use them; read from the folder STRAT_DATA."""

import csv
import os
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

import strat

WINE = ("fixed_acidity", "volatile_acidity", "citric_acid", "residual_sugar", "chlorides")
WINE += ("free_sulfur_dioxide", "total_sulfur_dioxide", "ph")


def rows(name):
    """Rows of a CSV file of the folder, as dicts; skips the test where there is no folder."""
    folder = os.environ.get("STRAT_DATA")
    if not folder or not Path(folder, name).exists():
        pytest.skip("STRAT_DATA does not name the folder with the paper's data")
    with open(Path(folder, name), newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def training(name):
    """Mask of the training records."""
    return np.array([row["split"] == "train" for row in rows(f"{name}/split.csv")])


def wine():
    """Features with a constant, one-hot labels, strata and the training mask."""
    train = training("wine")
    records = rows("wine/records.csv")
    X = np.array([[float(row[c]) for c in WINE] for row in records])
    X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
    X = np.column_stack([X, np.ones(len(X))])
    good = np.array([row["quality"] == "good" for row in records])
    strata = [(int(r["density_bin"]), int(r["sulphates_bin"])) for r in rows("wine/strata.csv")]
    return X, np.eye(2)[good.astype(int)], strata, train


def wine_graph(weights=(20.0, 10.0)):
    """Product of two paths over density and sulphates."""
    density = strat.graphs.path(range(10), weight=weights[0], name="density")
    return strat.graphs.product(density, strat.graphs.path(range(10), weight=weights[1], name="sulphates"))


def election():
    """Democratic winner (0 or 1), strata and the training mask."""
    records = rows("election/records.csv")
    strata = [(row["state"], int(row["year"])) for row in records]
    return np.array([float(row["democrat"]) for row in records]), strata, training("election")


def election_graph():
    """States (borders, weight 1) times years (path, weight 4)."""
    states = nx.Graph()
    states.add_nodes_from(row["state"] for row in rows("election/states.csv"))
    states.add_edges_from((row["state"], row["neighbor"]) for row in rows("election/state_neighbors.csv"))
    return strat.graphs.product(states, strat.graphs.path(range(1976, 2017, 2), weight=4.0))


def select(strata, mask):
    """Labels of the masked records."""
    return [label for label, kept in zip(strata, mask, strict=True) if kept]


def concrete():
    """Features with a constant, strength in MPa, strata (bins of age and fly ash) and the training mask."""
    train, names = training("concrete"), ("cement", "blast_furnace_slag", "water", "superplasticizer")
    names += ("coarse_aggregate", "fine_aggregate")
    records = rows("concrete/records.csv")
    X = np.array([[float(row[c]) for c in names] for row in records])
    X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
    X = np.column_stack([X, np.ones(len(X))])
    strength = np.array([float(row["compressive_strength_mpa"]) for row in records])
    strata = [(int(r["age_bin"]), int(r["ash_bin"])) for r in rows("concrete/strata.csv")]
    return X, strength, strata, train
