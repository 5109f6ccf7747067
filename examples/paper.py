"""The paper's four data sets and its printed results, for the other scripts in this folder.

The data are in the folders ``mesothelioma``, ``election``, ``wine`` and ``concrete``, made from the files in ``data/`` of
https://github.com/cvxgrp/joint-lrsm. The path that contains these folders is the scripts' argument or the environment
variable STRAT_DATA.

Source: Z. Cheng, J. Zhang, A. Agrawal, S. Boyd, "Joint Graph Learning and Model Fitting in Laplacian Regularized
Stratified Models", sections 5.1 and 5.2.
"""

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
from sklearn.metrics import f1_score, roc_auc_score

import strat

#: The tables of the paper.
PRINTED = {
    "mesothelioma": {
        "common": (33.3, 0.728, 0.529, 0.593),
        "separate": (39.4, 0.695, 0.402, 0.439),
        "LRSM": (24.2, 0.532, 0.582, 0.592),
        "joint": (21.2, 0.479, 0.583, 0.618),
    },
    "senate": {
        "common": (64.7, 0.701, 0.500, 0.522),
        "separate": (64.7, 0.998, 0.500, 0.522),
        "LRSM": (27.9, 0.608, 0.756, 0.689),
        "joint": (19.1, 0.546, 0.814, 0.755),
    },
    "wine": {
        "common": (31.2, 0.585, 0.761, 0.679),
        "separate": (28.1, 0.827, 0.689, 0.715),
        "LRSM": (27.8, 0.537, 0.802, 0.717),
        "log-diagonal": (28.4, 0.621, 0.625, 0.712),
        "trace constraint": (27.5, 0.781, 0.692, 0.721),
        "joint": (26.6, 0.549, 0.789, 0.729),
    },
    "concrete": {
        "common": (2.06, 2.27),
        "separate": (1.23, 2.52),
        "LRSM": (1.56, 1.74),
        "log-diagonal": (1.59, 1.99),
        "trace constraint": (1.37, 1.85),
        "joint": (1.49, 1.58),
    },
}


@dataclass
class Records:
    """The records of one data set.

    Attributes
    ----------
    X : ndarray, shape (N, n), or None
        Features, as measured.
    y : ndarray, shape (N,)
        Labels 0 and 1, or the response.
    z : list of tuple
        Strata.
    train : ndarray of bool, shape (N,)
        The training records of the paper's split.
    """

    X: np.ndarray
    y: np.ndarray
    z: list
    train: np.ndarray

    def part(self, rows, train, constant=False):
        """Return (X, z) of some rows: features standardised on the rows `train`, with a constant 1 at the end."""
        X = self.X[train]
        scale = X.std(axis=0)
        X = (self.X[rows] - X.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
        z = [self.z[i] for i in np.arange(len(self.z))[rows]]
        return (np.column_stack([X, np.ones(len(X))]) if constant else X), z


def arguments(description, splits=0):
    """Read the options that the scripts share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "data",
        nargs="?",
        default=os.environ.get("STRAT_DATA", ""),
        help="folder of the data sets (STRAT_DATA)",
    )
    parser.add_argument("--splits", type=int, default=splits, help="splits of the second table")
    parser.add_argument("--pictures", default=None, help="folder for pictures; none are drawn without it")
    return parser.parse_args()


def folder(root, name):
    """Return the folder of one data set, or exit with a message that says where to get it."""
    for place in (Path(root) / name, Path(root)):
        if (place / "records.csv").is_file() and (place / "split.csv").is_file():
            return place
    sys.exit(
        f"No data: give the folder that holds {name}/records.csv and {name}/split.csv as an argument or in STRAT_DATA; "
        f"they are made from the data/ folder of https://github.com/cvxgrp/joint-lrsm."
    )


def _read(root, name):
    place = folder(root, name)
    records, split = pd.read_csv(place / "records.csv"), pd.read_csv(place / "split.csv").split
    return place, records, (split == "train").to_numpy()


def wine(root):
    """Red wine, good (1) or bad (0), by 10 x 10 bins of density and sulphates; 8 features."""
    place, records, train = _read(root, "wine")
    bins = pd.read_csv(place / "strata.csv")
    X = records.drop(columns=["density", "sulphates", "alcohol", "quality"]).to_numpy(float)
    z = list(zip(bins.density_bin, bins.sulphates_bin, strict=True))
    return Records(X, (records.quality == "good").to_numpy(float), z, train)


def concrete(root):
    """Compressive strength of concrete in MPa by 10 x 10 bins of age and fly ash; 6 features."""
    place, records, train = _read(root, "concrete")
    bins = pd.read_csv(place / "strata.csv")
    names = ["cement", "blast_furnace_slag", "water", "superplasticizer", "coarse_aggregate"]
    X = records[[*names, "fine_aggregate"]].to_numpy(float)
    z = list(zip(bins.age_bin, bins.ash_bin, strict=True))
    return Records(X, records.compressive_strength_mpa.to_numpy(float), z, train)


def mesothelioma(root):
    """Diagnosis (1 for class 2, 0 for class 1) of 324 patients by sex and age; 46 features."""
    _, records, train = _read(root, "mesothelioma")
    z = [
        ("Male" if sex == 1 else "Female", int(age))
        for sex, age in zip(records.gender, records.age, strict=True)
    ]
    y = (records.class_of_diagnosis == 2).to_numpy(float)
    # The diagnosis method is the label itself; age and sex make the strata.
    X = records.drop(columns=["age", "gender", "class_of_diagnosis", "diagnosis_method"])
    coded = ["city", "keep_side", "type_of_mm", "habit_of_cigarette"]
    coded = [column for column in coded if column in X]
    X = pd.concat([X.drop(columns=coded), pd.get_dummies(X[coded], columns=coded)], axis=1)
    return Records(X.to_numpy(float), y, z, train)


def mesothelioma_graph():
    """The two sexes (weight 10) times the path of ages 19 to 85 (weight 500)."""
    sexes = strat.graphs.path(["Male", "Female"], weight=10, name="sex")
    return strat.graphs.product(sexes, strat.graphs.path(range(19, 86), weight=500, name="age"))


def senate(root):
    """Senate elections by state and year, 1 where a Democrat won; no features."""
    _, records, train = _read(root, "election")
    z = list(zip(records.state, records.year.astype(int), strict=True))
    return Records(None, records.democrat.to_numpy(float), z, train)


def senate_graph(root):
    """States that border on each other (weight 1) times the path of election years (weight 4)."""
    place = folder(root, "election")
    states = nx.Graph(name="state")
    states.add_nodes_from(pd.read_csv(place / "states.csv").state)
    states.add_edges_from(pd.read_csv(place / "state_neighbors.csv").to_numpy().tolist(), weight=1.0)
    return strat.graphs.product(states, strat.graphs.path(range(1976, 2017, 2), weight=4, name="year"))


def classification(y, probability, average="macro"):
    """Return the paper's four figures: error in percent, mean negative log-likelihood, AUC, F1 (whose kind differs)."""
    likelihood = np.where(y == 1, probability, 1 - probability)
    guess = probability > 0.5
    return {
        "error %": 100 * np.mean(guess != (y == 1)),
        "ANLL": -np.mean(np.log(likelihood)),
        "AUC": roc_auc_score(y, probability),
        "F1": f1_score(y, guess, average=average),
    }


def table(name, ours, columns):
    """Print the figures of our fits beside those of the paper."""
    printed = PRINTED[name]
    rows = {}
    for row, figures in ours.items():
        paper = printed.get(row.split(",")[0])
        beside = dict(zip(columns, paper, strict=True)) if paper else {}
        rows[row] = {column: f"{figures[column]:.3f}" for column in columns}
        rows[row] |= {f"paper {column}": f"{beside[column]:g}" if beside else "-" for column in columns}
        rows[row] |= {key: value for key, value in figures.items() if key not in columns}
    print(pd.DataFrame.from_dict(rows, orient="index").fillna("").to_string(), end="\n\n")
