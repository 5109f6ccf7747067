"""Pictures of a fit: weights, parameters, graph, history.

Each function draws into ``ax`` (a new figure's by default) and returns it; nothing is shown or saved. Needs matplotlib:
``pip install "strat[plot]"``.
"""

from strat.plot.fits import history, parameters
from strat.plot.graphs import graph, weights

__all__ = ["graph", "history", "parameters", "weights"]
