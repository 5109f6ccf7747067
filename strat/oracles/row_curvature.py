"""Hessians of smooth functions as weights of fixed rows and a few products of vectors, which costs less than blocks."""

import numpy as np

from strat.oracles.on_columns import OnColumns
from strat.oracles.quadratic import Quadratic


def _single(node):
    """Whether an atom is of one affine form on strata, with a Hessian of this kind."""
    if not (node.rule.separable or node.rule.split_curvature is not None):
        return False
    form = node.forms[node.varying[0]] if len(node.varying) == 1 else None
    return form is not None and form.design is not None and not form.inner and not form.design.on_records


def _design(node):
    return node.forms[node.varying[0]].design


class RowCurvature:
    """The Hessian Σ_i weight_i a_i a_iᵀ − Σ_j v_j v_jᵀ + H₀ of a quadratic plus a tape of atoms of affine forms.

    Attributes
    ----------
    rows : (m, n) ndarray
        All a_i.
    constant : (1 or K, n, n) ndarray or None
        H₀, None where it is 0.
    """

    @classmethod
    def of(cls, oracle):
        """That of an oracle; None where its Hessian is not of this kind."""
        tape = oracle.tape if isinstance(oracle, OnColumns) else None
        if isinstance(oracle, Quadratic):
            return cls(oracle, None, np.arange(oracle.n))
        if tape is None:
            return None
        if all(node in tape.weights and _single(node) for node in tape.nodes):
            return cls(oracle.quadratic, tape, oracle.columns)
        return cls(oracle.quadratic, tape, oracle.columns, diagonal=True) if oracle.apart else None

    def __init__(self, quadratic, tape, columns, diagonal=False):
        self.columns, self.tape, self.diagonal = columns, tape, diagonal
        H = quadratic.H
        self.constant = None if H is None or not np.any(H) else H
        if diagonal:
            self.rows = np.eye(len(columns))
            return
        designs = [] if tape is None else [_design(node) for node in tape.weights]
        parts = [design.dense_matrix()[:, columns] for design in designs]
        self.rows = np.concatenate([np.zeros((0, len(columns))), *parts])

    def take(self, strata):
        """That of some strata."""
        out = object.__new__(RowCurvature)
        out.__dict__.update(self.__dict__)
        out.tape = None if self.tape is None else self.tape.take(strata)
        if self.constant is not None and len(self.constant) > 1:
            out.constant = self.constant[strata]
        return out

    def at(self, z):
        """The weights (K, m) and the vectors (K, r, n) at points (K, n)."""
        weights, vectors = [np.zeros((len(z), 0))], [np.zeros((len(z), 0, len(self.columns)))]
        if self.tape is not None:
            theta = np.zeros((len(z), self.tape.n))
            theta[:, self.columns] = z
            if self.diagonal:  # one product tells all of it
                weights.append(self.tape.hessian_operator(theta)(np.ones_like(theta))[:, self.columns])
                return weights[1], vectors[0]
            states, _, _ = self.tape.run(theta)
            for node, weight in self.tape.weights.items():
                state, design = states[node], _design(node)
                weight = np.broadcast_to(weight, state[1].shape)
                if node.rule.separable:
                    (i,), ones = node.varying, np.ones_like(state[0][node.varying[0]])
                    weights.append(node.rule.curve(i, *state, weight, {i: ones}).reshape(len(z), -1))
                    continue
                diagonal, along = node.rule.split_curvature(*state, weight)
                weights.append(diagonal.reshape(len(z), -1))
                rows = design.dense_matrix()[:, self.columns].reshape(node.size, -1, len(self.columns))
                along = along.reshape(len(z), node.size, -1)
                # One product for all groups where there is one, and one for each otherwise.
                vectors.append(np.stack([along[:, g] @ rows[g] for g in range(node.size)], axis=1))
        return np.concatenate(weights, axis=1), np.concatenate(vectors, axis=1)
