"""The variables of tuning: logarithms of scales, edge weights >= 0, hyperparameters."""

import numpy as np
import scipy.sparse as sp

from strat.errors import OptionError

MOST = 15.0  # most that a logarithm may move: a factor of three million either way


class Space:
    """Maps a vector x to the weights of all edges and the values of hyperparameters, and gradients back.

    The weight of edge e is w_e = unit m_e u_e. Here m_e = Σ_f share_ef exp(s_f) is the mean of its factors' multipliers,
    and u = fixed + pattern r is linear: edges of one group keep their ratios, and each edge is a group of its own unless
    they are tied. x holds the logarithms s, the groups' r >= 0 and the hyperparameters (the logarithms of those declared
    with a sign, so that they keep it).

    `names` says what to tune at the start `model`: "scale", "W0", hyperparameters; `prior` is its graph, candidate edges
    included, with the multipliers `scale`; `varied` is a mask (E,) of the edges to tune, `group` (E,) the number of each edge's
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
        """Mean squared change of what `names` are, and its gradient; of edges only, where they are among them."""
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
        """(E, F + 1) share of each factor in an edge, the last column of what has none; rows sum to 1."""
        prior, F = self.prior, len(self.factors)
        if self.factors != prior.factors:
            return np.tile([1.0, 0.0], (len(prior.i), 1))
        code = np.where(prior.term_factor < 0, F, prior.term_factor)
        # An edge of weight 0 is its factors', or like the mean edge.
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
        # A group without weight starts at 0, and its edges grow alike.
        entries, start = np.where(total[code] > 0, u[varied], 1.0), (total > 0).astype(float)
    return fixed, sp.csr_array((entries, (varied, code)), shape=(len(u), len(start))), start


class _Coordinates:
    """The entries of one hyperparameter as coordinates: logarithms where its sign is declared, else numbers."""

    def __init__(self, model, name):
        p = model.base.hyperparameters[name]
        value = np.asarray(model.values.get(name, p.value), dtype=float)
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
