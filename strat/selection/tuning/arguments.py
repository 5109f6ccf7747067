"""What a user asks to tune, checked: names, candidate edges, ties, penalties."""

import math

import networkx as nx
import numpy as np

from strat.derivatives.hypergradient import wanted
from strat.errors import GraphError, OptionError, type_name
from strat.graphs.candidates import candidate_edges
from strat.graphs.prior_graph import PriorGraph
from strat.graphs.reading import read_graph
from strat.model.estimator import StratifiedModel

#: Pulls towards the start that are tried on edges, from strong to weak.
PENALTIES = (1.0, 0.1, 0.01, 0.001)


def checked_model(model):
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
    names = wanted(model, wrt)
    if not names:
        raise OptionError('wrt is empty; name "scale", "W0" or a hyperparameter.')
    if "W0" not in names:
        for option, given in (
            ("edges", not (isinstance(edges, str) and edges == "prior")),
            ("tie", tie is not None),
        ):
            if given:
                raise OptionError(
                    f'{option}= says which edges to tune, but wrt has no "W0"; add it, or leave {option} out.'
                )
    return names


def widened(prior, edges):
    """The graph with candidate edges of weight 0 added, and a mask of the candidates among its edges."""
    i, j = candidate_edges(edges, prior)
    terms = [np.r_[prior.i[prior.term_edge], i], np.r_[prior.j[prior.term_edge], j]]
    codes = [prior.factors[c] if c >= 0 else None for c in prior.term_factor] + [None] * len(i)
    weight = np.r_[prior.term_weight, np.zeros(len(i))]
    wide = PriorGraph.from_terms(prior.labels, *terms, weight, codes, prior.name)
    return wide, np.isin(wide.i * wide.K + wide.j, i * wide.K + j)


def tied(graph, wide, tie):
    """The group of each edge: the value of an edge attribute, one group more for edges without it."""
    if not isinstance(tie, str):
        raise OptionError(f'tie is the name of an edge attribute, such as "factor", not {tie!r}.')
    values = {}
    if isinstance(graph, nx.Graph):
        position = {label: k for k, label in enumerate(read_graph(graph).labels)}
        place = dict(zip(graph, position.values(), strict=True))
        for u, v, value in graph.edges(data=tie):
            if value is not None:
                values[frozenset((place[u], place[v]))] = value
    elif tie == "factor":
        prior = read_graph(graph)
        for edge, code in zip(prior.term_edge.tolist(), prior.term_factor.tolist(), strict=True):
            if code >= 0:
                values[frozenset((int(prior.i[edge]), int(prior.j[edge])))] = prior.factors[code]
    if not values:
        raise OptionError(f"tie={tie!r}, but no edge of the graph has that attribute.")
    numbers = {value: k for k, value in enumerate(dict.fromkeys(map(_hashable, values.values())))}
    ends = zip(wide.i.tolist(), wide.j.tolist(), strict=True)
    found = (values.get(frozenset(pair)) for pair in ends)
    return np.array([len(numbers) if value is None else numbers[_hashable(value)] for value in found])


def checked_penalties(penalty, names):
    """Penalties to try, from strong to weak."""
    if penalty is None:
        return PENALTIES if "W0" in names else (0.0,)
    given = [penalty] if np.ndim(penalty) == 0 else list(penalty)
    for value in given:
        number = not isinstance(value, bool | str) and isinstance(value, int | float | np.number)
        if not number or not 0 <= value < math.inf:
            raise OptionError(
                f"penalty must be a number of at least 0, or several to choose from, not {penalty!r}."
            )
    if not given:
        raise OptionError("penalty is empty; give a number, several to choose from, or None.")
    return tuple(sorted({float(value) for value in given}, reverse=True))


def checked_counts(max_iter, patience, time_limit):
    """Raise unless the limits have a meaning."""
    for name, value in {"max_iter": max_iter, "patience": patience}.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise OptionError(f"{name} must be a whole number of at least 1, not {value!r}.")
    if time_limit is not None and (isinstance(time_limit, bool | str) or not time_limit > 0):
        raise OptionError(f"time_limit must be a number of seconds above 0, or None, not {time_limit!r}.")


def by_evidence(method, given):
    """Whether the method is "evidence", which takes none of some arguments."""
    if method not in ("validation", "evidence"):
        raise OptionError(f'method is {method!r}; it is "validation" or "evidence".')
    if method == "validation":
        return False
    usual = {"wrt": (("scale",), ["scale"], "scale"), "edges": ("prior",), "tie": (None,), "penalty": (None,)}
    usual["candidates"] = ((), [], {})
    for name, value in given.items():
        if not any(type(value) is type(one) and value == one for one in usual[name]):
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
