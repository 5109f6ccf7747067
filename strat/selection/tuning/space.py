"""The variables of tuning: logarithms of scales, edge weights >= 0, hyperparameters."""

import numpy as np

from strat.errors import OptionError

#: Most that a logarithm may move: a factor of three millions either way.
MOST = 15.0


class Space:
    """Maps a vector x to the weights of all edges and the values of hyperparameters, and gradients back.

    The weight of edge e is w_e = ref m_e u_e. Here m_e = Σ_f share_ef exp(s_f) is the mean of its factors' multipliers,
    and u_e = pattern_e r_group(e) is linear: edges of one group keep their ratios, and each edge is a group of its own
    unless they are tied. x holds the logarithms s, the groups' r >= 0 and the hyperparameters (the logarithms of those
    declared with a sign, so that they keep it).

    Parameters
    ----------
    model : StratifiedModel
        The start.
    prior : PriorGraph
        Its graph, candidate edges included.
    names : list of str
        What to tune: "scale", "W0", hyperparameters.
    varied : (E,) ndarray of bool, optional
        The edges to tune, all by default.
    group : (E,) ndarray of int, optional
        The group of each edge, each its own by default.
    scale : float or dict, optional
        The graph's multipliers at the start, by default the model's.
    common : bool
        Whether all edges have one multiplier, in place of one for each factor.

    Attributes
    ----------
    start, lower, upper : ndarray
        The start and its bounds.
    """

    def __init__(self, model, prior, names, varied=None, group=None, scale=None, common=False):
        self.model, self.prior, self.names = model, prior, names
        self.scale = model.scale if scale is None else scale
        self.weights = prior.weights(self.scale)
        positive = self.weights[self.weights > 0]
        self.ref = float(positive.mean()) if len(positive) else 1.0
        self.factors = ("all",) if common or not prior.factors else prior.factors
        self.shares = self._shares()
        self._group_edges(varied, group)
        self.parameters = [_Coordinates(model, name) for name in names if name not in ("W0", "scale")]
        blocks = [np.zeros(len(self.factors)), self.first, *(p.start for p in self.parameters)]
        ends = np.cumsum([len(block) for block in blocks])
        self.slices = [slice(end - len(block), end) for end, block in zip(ends, blocks, strict=True)]
        self.start = np.concatenate(blocks)
        lower = [
            np.full(len(self.factors), -MOST),
            np.zeros(len(self.first)),
            *(p.lower for p in self.parameters),
        ]
        upper = [np.full(len(self.factors), MOST), np.full(len(self.first), np.inf)]
        self.lower = np.concatenate(lower)
        self.upper = np.concatenate([*upper, *(p.upper for p in self.parameters)])

    def active(self, names):
        """Mask of the coordinates of some names."""
        mask = np.zeros(len(self.start), dtype=bool)
        mask[self.slices[0]] = "scale" in names
        mask[self.slices[1]] = "W0" in names
        for p, where in zip(self.parameters, self.slices[2:], strict=True):
            mask[where] = p.name in names
        return mask

    def at(self, x):
        """Edge weights (E,) and values of hyperparameters by name."""
        w = self.ref * self._multipliers(x) * self._linear(x)
        pairs = zip(self.parameters, self.slices[2:], strict=True)
        return w, {p.name: p.value(x[where]) for p, where in pairs}

    def scales(self, x):
        """The factors' multipliers by name."""
        s = np.exp(x[self.slices[0]])
        given = self.scale if isinstance(self.scale, dict) else dict.fromkeys(self.factors, self.scale)
        return {f: float(given.get(f, 1.0) * e) for f, e in zip(self.factors, s, strict=True)}

    def back(self, x, edges, values):
        """Gradient in x from the gradients in the edges' weights and in hyperparameters by name."""
        gradient = np.zeros(len(x))
        m, u = self._multipliers(x), self._linear(x)
        in_m = self.shares[:, : len(self.factors)].T @ (self.ref * u * edges)
        gradient[self.slices[0]] = np.exp(x[self.slices[0]]) * in_m
        in_u = (self.ref * m * edges * self.pattern)[self.varied]
        gradient[self.slices[1]] = np.bincount(self.group[self.varied], in_u, len(self.first))
        for p, where in zip(self.parameters, self.slices[2:], strict=True):
            gradient[where] = p.slope(x[where]) * values[p.name].ravel()
        return gradient

    def distance(self, x, names):
        """Mean squared change of what `names` are, and its gradient; of edges only, where they are among them."""
        change = x - self.start
        weight = np.zeros(len(x))
        if "W0" in names:
            squares = np.bincount(self.group[self.varied], self.pattern[self.varied] ** 2, len(self.first))
            weight[self.slices[1]] = squares / max(self.varied.sum(), 1)
        else:
            mask = self.active(names)
            weight[mask] = 1 / max(mask.sum(), 1)
        return float(weight @ change**2), 2 * weight * change

    def _multipliers(self, x):
        s = np.append(np.exp(x[self.slices[0]]), 1.0)
        return self.shares @ s

    def _linear(self, x):
        u = self.weights / self.ref
        u[self.varied] = self.pattern[self.varied] * x[self.slices[1]][self.group[self.varied]]
        return u

    def _group_edges(self, varied, group):
        """Groups, the pattern within each and the start r of each."""
        E = len(self.weights)
        self.varied = np.ones(E, dtype=bool) if varied is None else varied
        u = self.weights / self.ref
        self.group = np.full(E, -1)
        if group is None:
            self.group[self.varied] = np.arange(self.varied.sum())
            self.pattern, self.first = np.ones(E), u[self.varied]
            return
        self.group[self.varied] = np.unique(group[self.varied], return_inverse=True)[1]
        count = self.group.max(initial=-1) + 1
        total = np.bincount(self.group[self.varied], u[self.varied], count)
        # A group without weight starts at 0, and its edges grow alike.
        self.pattern = np.where(total[self.group] > 0, u, 1.0)
        self.first = (total > 0).astype(float)

    def _shares(self):
        """(E, F + 1) share of each factor in an edge, the last column of what has none; rows sum to 1."""
        prior, F = self.prior, len(self.factors)
        if self.factors == ("all",) != prior.factors:
            return np.tile([1.0, 0.0], (len(prior.i), 1))
        weight = prior.term_weight * prior._multipliers(self.scale)[prior.term_factor]
        code = np.where(prior.term_factor < 0, F, prior.term_factor)
        shares, named = np.zeros((len(prior.i), F + 1)), np.zeros((len(prior.i), F + 1))
        np.add.at(shares, (prior.term_edge, code), weight)
        known = prior.term_factor >= 0
        np.add.at(named, (prior.term_edge[known], code[known]), 1.0)
        whole = shares.sum(axis=0) if shares.any() else np.eye(F + 1)[F]
        empty = shares.sum(axis=1) == 0  # an edge of weight 0: its factor's, or the mean edge's
        shares[empty] = np.where(named[empty].any(axis=1, keepdims=True), named[empty], whole)
        return shares / shares.sum(axis=1, keepdims=True)


class _Coordinates:
    """The entries of one hyperparameter as coordinates: logarithms where its sign is declared, else numbers."""

    def __init__(self, model, name):
        p = model.base.hyperparameters[name]
        value = np.asarray(model.values.get(name, p.value), dtype=float)
        special = [
            key for key in ("symmetric", "PSD", "NSD", "diag", "sparsity") if _is_set(p.attributes.get(key))
        ]
        if special:
            raise OptionError(
                f"wrt has the Parameter {name}, whose entries are tied ({special[0]}); tune varies each by itself. "
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
        flat = self.unit * np.where(self.log, np.exp(np.where(self.log, x, 0.0)), x)
        return flat.reshape(self.shape) if self.shape else float(flat[0])

    def slope(self, x):
        return self.unit * np.where(self.log, np.exp(np.where(self.log, x, 0.0)), 1.0)


def _is_set(attribute):
    return attribute is not None and attribute is not False
