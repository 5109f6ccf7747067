"""Pictures of a fit: weights, parameters, graph, history.

Each function draws into ``ax`` (a new figure's by default) and returns it; nothing is shown or saved. Needs matplotlib:
``pip install "strat[plot]"``.
"""

from strat.plot.graphs import graph, weights
from strat.plot.histories import history
from strat.plot.strata import parameters

__all__ = ["graph", "history", "parameters", "weights"]
