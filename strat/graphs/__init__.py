"""Graphs over strata: what networkx lacks.

Everything here returns a ``networkx.Graph`` with the edge attribute ``weight``, the type that every
part of the package takes; a graph with a name also has the edge attribute ``factor``, by which
``scale={name: multiplier}`` of a model finds its edges.
"""

from strat.graphs.families import complete, cycle, path, star
from strat.graphs.features import exponential_kernel, knn
from strat.graphs.from_parameters import from_parameters
from strat.graphs.products import grid, product
from strat.graphs.report import GraphReport, report

__all__ = [
    "GraphReport",
    "complete",
    "cycle",
    "exponential_kernel",
    "from_parameters",
    "grid",
    "knn",
    "path",
    "product",
    "report",
    "star",
]
