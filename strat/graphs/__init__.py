"""Graphs over strata, beyond those of networkx.

Every function returns a ``networkx.Graph`` with the edge attribute ``weight``, as the rest of the package takes it. The edges
of a graph with a name also have the attribute ``factor``, which a model's ``scale={name: multiplier}`` refers to.
"""

from strat.graphs.families import complete, cycle, grid, path, product, star
from strat.graphs.features import exponential_kernel, from_geometry, knn
from strat.graphs.from_parameters import from_parameters
from strat.graphs.report import GraphReport, report

__all__ = [
    "GraphReport", "complete", "cycle", "exponential_kernel", "from_geometry", "from_parameters", "grid", "knn", "path",
    "product", "report", "star",
]  # fmt: skip
