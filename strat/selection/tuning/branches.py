"""What tuning by held-out loss varies: scales, edge weights and hyperparameters, of the model's own graph or of a candidate."""

from collections.abc import Hashable, Mapping
from functools import partial

import networkx as nx
import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from strat import graphs
from strat.errors import GraphError, OptionError, is_nonnegative
from strat.graphs.candidates import candidate_edges, position_of
from strat.graphs.prior_graph import PriorGraph, read_graph
from strat.model.baselines import joint
from strat.model.estimator import StratifiedModel
from strat.model.fit import fit_within
from strat.model.hypergradient import wrt_names
from strat.selection.tuning.path import InnerFits, Objective, Stage

MOST = 15.0  # most that a logarithm may move: a factor of three million either way
PENALTIES = (1.0, 0.1, 0.01, 0.001)  # penalties that are tried on edges, from strong to weak
KERNELS = ("knn", "exponential", "entropy")  # kernels of ``graphs.from_parameters``


class Branch:
    """One graph to tune: ``space_of(part)`` is its Space; a candidate graph is learned from the training records `part`."""

    def __init__(self, model, rounds, stages, space_of):
        self.model, self.rounds, self.stages = model, rounds, stages
        self.space_of, self.known = space_of, {}

    def __getstate__(self):
        return {**vars(self), "known": {}}

    def objective(self, pairs, notes):
        """Mean held-out loss over pairs of positions (training records, held-out records); `notes` counts warnings."""
        folds = [(self.fits(train), held) for train, held in self.rounds.parts(pairs)]
        return Objective(folds, notes)

    def fits(self, part):
        """Fits to some training records, shared by all rounds."""
        key = part.index.tobytes()
        if key not in self.known:
            self.known[key] = InnerFits(self.model, self.space_of(part), part)
        return self.known[key]


def branches_of(model, rounds, *, wrt, edges, tie, penalty, candidates):
    """The names of what to tune, and a dict of branches by name, with "model" for the model's own graph."""
    names = wrt_names(model, wrt)
    if not names:
        raise OptionError('wrt is empty; name "scale", "W0" or a hyperparameter.')
    used = {"edges": not (isinstance(edges, str) and edges == "prior"), "tie": tie is not None}
    for option in (option for option, is_used in used.items() if is_used and "W0" not in names):
        raise OptionError(f'{option}= is about edges, but wrt has no "W0"; add it, or drop {option}.')
    penalties = [penalty] if np.ndim(penalty) == 0 else list(penalty)
    if penalty is None:
        penalties = PENALTIES if "W0" in names and rounds.rounds else [0.0]
    if not penalties or not all(map(is_nonnegative, penalties)):
        raise OptionError(f"penalty must be a number of at least 0, or several of them, not {penalty!r}.")
    penalties = sorted(map(float, set(penalties)), reverse=True)
    candidates, prior = _named_candidates(candidates), read_graph(model.graph)
    if "scale" in names and "W0" not in names and not prior.weights(model.scale).any():
        raise GraphError('wrt has "scale", but all weights of the graph are 0. Give others, or tune "W0".')
    others = [name for name in names if name not in ("W0", "scale")]
    scaling, wide, varied = Stage("scale", ("scale", *others)), prior, None
    stages = [Stage(", ".join(names), tuple(names), penalty) for penalty in penalties]
    if "W0" in names:
        part = rounds.learned_from
        fitted = partial(fit_within, clone(model), part.data, part.strata)
        wide, varied = with_candidate_edges(prior, edges, lambda: fitted()._flat())
        # The scales stay free, so that the penalty pulls towards the ratios of the start's weights, not towards their size.
        moves = tuple(dict.fromkeys(["scale", *names]))
        stages = [scaling, *(Stage("edges", moves, penalty) for penalty in penalties)]
    group = None if tie is None else _groups_of(model.graph, wide, tie)
    # Separate multipliers of factors would change the ratios of tied edges.
    common = tie is not None and "scale" not in names
    space = Space(model, wide, names, varied, group, common=common)

    def scaled_space(candidate, part):
        graph = _learned_graph(candidate, model, prior, part)
        return Space(model, graph, ["scale", *others], np.zeros(len(graph.i), dtype=bool), scale=1.0)

    branches = {"model": Branch(model, rounds, stages, lambda part: space)}
    for name, candidate in candidates.items():
        branches[name] = Branch(model, rounds, [scaling], partial(scaled_space, candidate))
    return names, branches


def with_candidate_edges(prior, edges, parameters=None):
    """The graph with candidate edges of weight 0 added, and a mask of the candidates among its edges."""
    i, j = candidate_edges(edges, prior, parameters)
    terms = [np.r_[prior.i[prior.term_edge], i], np.r_[prior.j[prior.term_edge], j]]
    codes = [prior.factors[c] if c >= 0 else None for c in prior.term_factor] + [None] * len(i)
    weight = np.r_[prior.term_weight, np.zeros(len(i))]
    wide = PriorGraph.from_terms(prior.labels, *terms, weight, codes, prior.name)
    return wide, np.isin(wide.i * wide.K + wide.j, i * wide.K + j)


def _groups_of(graph, wide, tie):
    """The group number (E,) of each edge: edges with one value of an attribute form a group, and so do those without it."""
    if not isinstance(tie, str):
        raise OptionError(f'tie is the name of an edge attribute, such as "factor", not {tie!r}.')
    graph = nx.Graph(graph if isinstance(graph, nx.Graph) else read_graph(graph).to_networkx())
    nodes, ends = list(graph), zip(wide.i.tolist(), wide.j.tolist(), strict=True)
    found = [graph.get_edge_data(nodes[i], nodes[j], {}).get(tie) for i, j in ends]
    if all(value is None for value in found):
        raise OptionError(f"tie={tie!r}, but no edge of the graph has that attribute.")
    found = [value if isinstance(value, Hashable) else repr(value) for value in found]
    numbers = {value: k for k, value in enumerate(dict.fromkeys(found))}
    return np.array([numbers[value] for value in found])


def as_networkx(graph, prior, w):
    """A networkx graph with weights w and the nodes and attributes of `graph`; new edges of weight 0 are left out."""
    old = graph if isinstance(graph, nx.Graph) else read_graph(graph).to_networkx()
    nodes, old = list(old), nx.Graph(old)
    new = nx.create_empty_copy(old)
    for i, j, weight in zip(prior.i.tolist(), prior.j.tolist(), w.tolist(), strict=True):
        u, v = nodes[i], nodes[j]
        if weight > 0 or old.has_edge(u, v):
            new.add_edge(u, v, **{**old.get_edge_data(u, v, {}), "weight": weight})
    return new


def _named_candidates(candidates):
    """Candidates by name, checked: "knn", "exponential", "entropy", "joint", models that learn W, and graphs."""
    candidates = (candidates,) if isinstance(candidates, str) else candidates
    if not isinstance(candidates, Mapping):
        names = (c if isinstance(c, str) else f"candidate {k}" for k, c in enumerate(candidates, start=1))
        candidates = dict(zip(names, candidates, strict=True))
    for name, candidate in candidates.items():
        if name in ("start", "model"):
            raise OptionError(f"candidates: the name {name!r} is taken; give another one.")
        if isinstance(candidate, str):
            if candidate not in (*KERNELS, "joint"):
                raise OptionError(
                    f'candidates has {candidate!r}, but a candidate is "knn", "exponential", "entropy", "joint", a model '
                    f"that learns W, or a graph."
                )
        elif not isinstance(candidate, StratifiedModel):
            read_graph(candidate)
        elif candidate.shared or not candidate.graph_regularizer.learned:
            raise OptionError(f"candidates: the model {name!r} learns no graph; pass its graph instead.")
    return dict(candidates)


def _learned_graph(candidate, model, prior, part):
    """A candidate's graph over the model's strata, without factors, with the total weight of the model's graph `prior`."""
    if isinstance(candidate, str | StratifiedModel):
        learner = model if isinstance(candidate, str) else candidate
        if candidate == "joint":
            learner = joint(model.base, model.graph, scale=model.scale, strata=model.strata)
            learner._values = dict(model._values)
        fitted = fit_within(clone(learner), part.data, part.strata)
        kernel = candidate in KERNELS
        candidate = graphs.from_parameters(fitted, candidate) if kernel else (fitted.strata_, fitted.W_)
    graph = read_graph(candidate)
    position = np.array([position_of(label, prior, "candidates") for label in graph.labels])
    positive = graph.weights() > 0
    if not positive.any():
        raise GraphError("candidates: the graph has no edges of positive weight.")
    w = graph.weights()[positive]
    total = float(prior.weights(model.scale).sum()) or float(len(w))
    ends = position[graph.i[positive]], position[graph.j[positive]]
    return PriorGraph.from_terms(prior.labels, *ends, w * (total / w.sum()))


class Space:
    """Maps a vector x to the weights of all edges and the values of hyperparameters, and gradients back.

    The weight of edge e is w_e = unit m_e u_e. Here m_e = Σ_f share_ef exp(s_f) is the mean of its factors' multipliers,
    and u = fixed + pattern r is linear: edges of one group keep their ratios, and each edge is a group of its own unless
    they are tied. x holds the logarithms s, the groups' r >= 0 and the hyperparameters (the logarithms of those declared
    with a sign, so that they keep it).

    `names` says what to tune, starting from `model`: "scale", "W0", hyperparameters. `prior` is its graph, including candidate
    edges, with the multipliers `scale`; `varied` is a mask (E,) of the edges to tune, `group` (E,) the number of each edge's
    group; with `common` all edges have one multiplier, in place of one for each factor.
    """

    def __init__(self, model, prior, names, varied=None, group=None, scale=None, common=False):
        self.prior, self.scale = prior, model.scale if scale is None else scale
        self.factors = ("all",) if common or not prior.factors else prior.factors
        self.shares = self._shares()
        weights = prior.weights(self.scale)
        positive = weights[weights > 0]
        self.unit = float(positive.mean()) if len(positive) else 1.0
        self.fixed, self.pattern, r = _grouped(weights / self.unit, varied, group)
        self.parameters = [_Coordinates(model, name) for name in names if name not in ("W0", "scale")]
        s, unbounded = np.zeros(len(self.factors)), np.full(len(r), np.inf)
        blocks = {"scale": (s, s - MOST, s + MOST), "W0": (r, 0 * r, unbounded)}
        blocks |= {p.name: (p.start, p.lower, p.upper) for p in self.parameters}
        self.start, self.lower, self.upper = map(np.concatenate, zip(*blocks.values(), strict=True))
        owner = np.repeat(list(blocks), [len(start) for start, _, _ in blocks.values()])
        self.masks = {name: owner == name for name in blocks}

    def active(self, names):
        """Mask of the coordinates of some names."""
        return sum(self.masks[name] for name in names).astype(bool)

    def at(self, x):
        """Edge weights (E,) and values of hyperparameters by name."""
        m, u = self._factors(x)
        return self.unit * m * u, {p.name: p.value(x[self.masks[p.name]]) for p in self.parameters}

    def scales(self, x):
        """The factors' multipliers by name."""
        start = self.scale if isinstance(self.scale, dict) else dict.fromkeys(self.factors, self.scale)
        change = np.exp(x[self.masks["scale"]])
        return {f: float(start.get(f, 1.0) * e) for f, e in zip(self.factors, change, strict=True)}

    def back(self, x, edges, values):
        """Gradient in x from the gradients in the edges' weights and in hyperparameters by name."""
        edges, (m, u) = self.unit * edges, self._factors(x)
        in_m = self.shares[:, : len(self.factors)].T @ (u * edges)
        blocks = [np.exp(x[self.masks["scale"]]) * in_m, self.pattern.T @ (m * edges)]
        blocks += [p.slope(x[self.masks[p.name]]) * values[p.name].ravel() for p in self.parameters]
        return np.concatenate(blocks)

    def distance(self, x, names):
        """Mean squared change of the coordinates of `names`, or of edges alone if "W0" is among them, and its gradient."""
        change, weight = x - self.start, self.active(names) / max(self.active(names).sum(), 1)
        if "W0" in names:
            weight = np.zeros(len(x))
            weight[self.masks["W0"]] = (self.pattern**2).sum(axis=0) / max(self.pattern.nnz, 1)
        return float(weight @ change**2), 2 * weight * change

    def _factors(self, x):
        """The m and u of all edges, (E,)."""
        m = self.shares @ np.append(np.exp(x[self.masks["scale"]]), 1.0)
        return m, self.fixed + self.pattern @ x[self.masks["W0"]]

    def _shares(self):
        """Share of each factor in each edge, (E, F + 1); the last column is for no factor, and rows sum to 1."""
        prior, F = self.prior, len(self.factors)
        if self.factors != prior.factors:
            return np.tile([1.0, 0.0], (len(prior.i), 1))
        code = np.where(prior.term_factor < 0, F, prior.term_factor)
        # An edge of weight 0 belongs to its factors; without any, its shares are those of all edges together.
        least = np.where(code < F, np.finfo(float).tiny, 0.0)
        shares = np.zeros((len(prior.i), F + 1))
        np.add.at(shares, (prior.term_edge, code), np.maximum(prior.scaled_terms(self.scale), least))
        shares[shares.sum(axis=1) == 0] = shares.sum(axis=0) if shares.any() else np.eye(F + 1)[F]
        return shares / shares.sum(axis=1, keepdims=True)


def _grouped(u, varied, group):
    """Edge weights as fixed + pattern r: the edges that are not varied, a sparse matrix (E, groups), and r at the start."""
    varied = np.arange(len(u)) if varied is None else np.flatnonzero(varied)
    fixed = u.copy()
    fixed[varied] = 0.0
    if group is None:
        code, entries, start = np.arange(len(varied)), np.ones(len(varied)), u[varied]
    else:
        code = np.unique(group[varied], return_inverse=True)[1]
        total = np.bincount(code, u[varied])
        # A group without weight starts at 0, and its edges grow equally.
        entries, start = np.where(total[code] > 0, u[varied], 1.0), (total > 0).astype(float)
    return fixed, sp.csr_array((entries, (varied, code)), shape=(len(u), len(start))), start


class _Coordinates:
    """The entries of one hyperparameter as coordinates: logarithms where its sign is declared, else numbers."""

    def __init__(self, model, name):
        p = model.base.hyperparameters[name]
        value = np.asarray(model._values.get(name, p.value), dtype=float)
        for key in ("symmetric", "PSD", "NSD", "diag", "sparsity"):
            if p.attributes.get(key) not in (None, False):
                raise OptionError(
                    f"wrt has the Parameter {name}, whose entries are tied ({key}); tune varies each by itself. "
                    f"Write it as a function of a Parameter without attributes."
                )
        self.name, self.shape, flat = name, value.shape, value.ravel()
        sign = 1.0 if p.is_nonneg() else -1.0 if p.is_nonpos() else 0.0
        self.log = sign * flat > 0
        self.unit = np.where(self.log, flat, np.maximum(np.abs(flat), 1.0))
        self.start = np.where(self.log, 0.0, flat / self.unit)
        self.lower = np.where(self.log, -MOST, 0.0 if sign > 0 else -np.inf)
        self.upper = np.where(self.log, MOST, 0.0 if sign < 0 else np.inf)

    def value(self, x):
        flat = self.unit * np.where(self.log, np.exp(x * self.log), x)
        return flat.reshape(self.shape) if self.shape else float(flat[0])

    def slope(self, x):
        return self.unit * np.exp(x * self.log)
