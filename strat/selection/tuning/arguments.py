"""Arguments of tune, checked: names, candidate edges, ties, penalties."""

import math

import networkx as nx
import numpy as np

from strat.derivatives.hypergradient import wrt_names
from strat.errors import GraphError, OptionError, type_name
from strat.graphs.candidates import candidate_edges
from strat.graphs.prior_graph import PriorGraph
from strat.graphs.reading import read_graph
from strat.model.estimator import StratifiedModel

#: Penalties that are tried on edges, from strong to weak.
PENALTIES = (1.0, 0.1, 0.01, 0.001)


def check_model(model):
    """Raise unless the model is an LRSM with a graph."""
    if not isinstance(model, StratifiedModel):
        raise OptionError(
            f"tune needs a StratifiedModel such as strat.lrsm(base, graph), not {type_name(model)}."
        )
    if model.shared:
        raise OptionError(
            "tune: the strata of a common model share their parameters, so no graph matters; use strat.lrsm."
        )
    if model.graph_regularizer.learned:
        raise OptionError(
            "tune: the model learns W itself. Tune the prior on an LRSM, tuned = strat.tune(strat.lrsm(base, graph), …), "
            "and pass it on: strat.joint(base, graph=tuned.W0)."
        )
    if model.graph is None:
        raise OptionError("tune: the model has no graph. Give one, such as strat.lrsm(base, graph).")


def checked_names(model, wrt, edges, tie):
    """Names of what to tune, each once."""
    names = wrt_names(model, wrt)
    if not names:
        raise OptionError('wrt is empty; name "scale", "W0" or a hyperparameter.')
    used = {"edges": not (isinstance(edges, str) and edges == "prior"), "tie": tie is not None}
    for option, is_used in used.items():
        if is_used and "W0" not in names:
            raise OptionError(
                f'{option}= says which edges to tune, but wrt has no "W0"; add it, or leave {option} out.'
            )
    return names


def with_candidate_edges(prior, edges, parameters=None):
    """The graph with candidate edges of weight 0 added, and a mask of the candidates among its edges."""
    i, j = candidate_edges(edges, prior, parameters)
    terms = [np.r_[prior.i[prior.term_edge], i], np.r_[prior.j[prior.term_edge], j]]
    codes = [prior.factors[c] if c >= 0 else None for c in prior.term_factor] + [None] * len(i)
    weight = np.r_[prior.term_weight, np.zeros(len(i))]
    wide = PriorGraph.from_terms(prior.labels, *terms, weight, codes, prior.name)
    return wide, np.isin(wide.i * wide.K + wide.j, i * wide.K + j)


def groups_of(graph, wide, tie):
    """The number (E,) of each edge's group: edges of one value of an attribute, and all edges without it."""
    if not isinstance(tie, str):
        raise OptionError(f'tie is the name of an edge attribute, such as "factor", not {tie!r}.')
    graph = graph if isinstance(graph, nx.Graph) else read_graph(graph).to_networkx()
    position, values = {node: k for k, node in enumerate(graph)}, {}
    for u, v, value in graph.edges(data=tie):
        if value is not None:
            values[frozenset((position[u], position[v]))] = _hashable(value)
    if not values:
        raise OptionError(f"tie={tie!r}, but no edge of the graph has that attribute.")
    numbers = {value: k for k, value in enumerate(dict.fromkeys(values.values()))}
    edges = map(frozenset, zip(wide.i.tolist(), wide.j.tolist(), strict=True))
    return np.array([numbers[values[edge]] if edge in values else len(numbers) for edge in edges])


def checked_penalties(penalty, names):
    """Penalties to try, from strong to weak."""
    if penalty is None:
        return PENALTIES if "W0" in names else (0.0,)
    penalties = [penalty] if np.ndim(penalty) == 0 else list(penalty)
    for value in penalties:
        is_number = not isinstance(value, bool | str) and isinstance(value, int | float | np.number)
        if not is_number or not 0 <= value < math.inf:
            raise OptionError(
                f"penalty must be a number of at least 0, or several to choose from, not {penalty!r}."
            )
    if not penalties:
        raise OptionError("penalty is empty; give a number, several to choose from, or None.")
    return tuple(sorted({float(value) for value in penalties}, reverse=True))


def check_counts(max_iter, patience):
    """Raise unless the limits have a meaning."""
    for name, value in {"max_iter": max_iter, "patience": patience}.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise OptionError(f"{name} must be a whole number of at least 1, not {value!r}.")


def is_by_evidence(method, options):
    """Whether the method is "evidence", for which some options must have their defaults."""
    if method not in ("validation", "evidence"):
        raise OptionError(f'method is {method!r}; it is "validation" or "evidence".')
    if method == "validation":
        return False
    defaults = {"wrt": [("scale",), ["scale"], "scale"], "edges": ["prior"], "candidates": [(), [], {}]}
    for name, value in options.items():
        if repr(value) not in map(repr, defaults.get(name, [None])):
            raise OptionError(
                f'{name}= is no option of method="evidence", which tunes one weight for each axis and coefficient; leave '
                f'it out, or tune by held-out loss (method="validation").'
            )
    return True


def check_scale(prior, names, scale):
    """Raise where there is no weight to scale."""
    if "scale" in names and "W0" not in names and not prior.weights(scale).any():
        raise GraphError(
            'wrt has "scale", but all weights of the graph are 0, so that no multiplier changes anything. '
            'Give it positive weights, or tune "W0".'
        )


def _hashable(value):
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value
