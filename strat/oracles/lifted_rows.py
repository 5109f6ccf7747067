"""Functions of rows that are piecewise linear or quadratic in more coordinates: φ(u) = min over τ of such a function of (u, τ).

The largest entry is min {τ : u_i <= τ}, the sum of the k largest min kτ + Σ max(u_i − τ, 0), Huber's function
min s² + 2M|u − s|.
"""

from dataclasses import dataclass

import numpy as np

from strat.oracles.design import ConstantDesign
from strat.oracles.group_terms import GroupFunctions
from strat.oracles.row_functions import PiecewiseRows, ScalarRows

__all__ = ["LiftedRows"]


@dataclass
class LiftedRows:
    """Piecewise linear functions of the rows A z + B τ + offset, and cost · τ + Σ curvature τ²/2.

    Attributes
    ----------
    A : (m, n) ndarray
    B : (m, e) ndarray
    offset : (R or 1, m) ndarray
    knots, slopes : (J, R or 1, m), (J + 1, R or 1, m) ndarray
        As those of `PiecewiseRows`, weights in the slopes; no knots where a weight is 0.
    cost, curvature : (R or 1, e) ndarray
        One of them is 0 for each coordinate of τ.
    """

    A: np.ndarray
    B: np.ndarray
    offset: np.ndarray
    knots: np.ndarray
    slopes: np.ndarray
    cost: np.ndarray
    curvature: np.ndarray

    @property
    def free(self):
        """Which coordinates of τ are without curvature, (e,)."""
        return ~self.curvature.any(axis=0)

    @classmethod
    def none(cls, n):
        """No rows of n coordinates."""
        empty = np.zeros((1, 0))
        return cls(np.zeros((0, n)), np.zeros((0, 0)), empty, empty[None], np.zeros((2, 1, 0)), empty, empty)

    @classmethod
    def of(cls, term):
        """The rows of a `RowTerm`, None where it has other functions."""
        if term.segments is not None or not isinstance(term.design, ConstantDesign):
            return None
        functions = term.functions
        if isinstance(functions, PiecewiseRows):
            return cls._piecewise(term.design.dense_matrix(), term.offset, functions)
        if isinstance(functions, ScalarRows):
            return cls._scalar(term, functions)
        if type(functions) is GroupFunctions and functions.rule.epigraph is not None:
            return cls._groups(term, functions)
        return None

    @classmethod
    def _piecewise(cls, A, offset, functions, B=None, cost=None, curvature=None):
        none = np.zeros((1, 0 if B is None else B.shape[1]))
        return cls(
            A,
            np.zeros((len(A), 0)) if B is None else B,
            offset,
            np.where(functions.weight == 0, np.inf, functions.knots),
            functions.slopes,
            none if cost is None else cost,
            none if curvature is None else curvature,
        )

    @classmethod
    def _scalar(cls, term, functions):
        """Functions with ``splitting``: curvature s²/2 + slope |u − s|."""
        free = np.all(np.isinf(functions.low)) and np.all(np.isinf(functions.high))
        if functions.rule.splitting is None or functions.absolute or functions.place or not free:
            return None
        curvature, slope = functions.rule.splitting(*functions.others)
        m, weight = term.design.m, functions.weight
        if np.any(weight < 0):
            return None
        slope = np.broadcast_to(slope, (1, m))
        rows = PiecewiseRows(np.zeros((1, 1, m)), np.stack([-slope, slope]), weight)
        # Rows and s are measured alike.
        scale = term.norms.reshape(-1)
        curvature = np.where(weight > 0, weight * curvature, 1.0) * scale**2
        B = -np.diag(scale)
        return cls._piecewise(term.design.dense_matrix(), term.offset, rows, B, curvature=curvature)

    @classmethod
    def _groups(cls, term, functions):
        """Groups with ``epigraph``."""
        groups, design = functions.groups, term.design
        A = design.dense_matrix().reshape(groups, -1, design.n)
        found = functions.rule.epigraph(A.shape[1], functions.absolute)
        if functions.weight is None or found is None:
            return None
        rows, tops, knots, slopes, cost = found
        r, weight = len(rows), np.abs(functions.weight)
        offset = term.offset.reshape(len(term.offset), groups, -1)
        # A top is measured as its rows are.
        scale = np.sqrt((A**2).sum(axis=2).mean(axis=1))
        scale[scale == 0] = 1.0
        B = np.zeros((groups, r, groups))
        B[np.arange(groups), :, np.arange(groups)] = tops * scale[:, None]
        knots, slopes = (np.tile(part[:, None, :], (1, 1, groups)) for part in (knots, slopes))
        return cls._piecewise(
            np.matmul(rows, A).reshape(-1, design.n),
            (offset @ rows.T).reshape(len(offset), -1),
            PiecewiseRows(knots, slopes, np.repeat(weight, r, axis=1)),
            B.reshape(-1, groups),
            cost=weight * cost * scale,
        )

    @classmethod
    def squares(cls, A, offset, place, weight):
        """Σ weight τ² with τ_i at least each of the rows A z + offset whose place is i, and 0: squares of their largest."""
        m, e = len(A), weight.shape[1]
        size = np.sqrt((A**2).sum(axis=1))
        scale = np.zeros(e)
        np.maximum.at(scale, place, size)  # τ is measured as its rows are
        scale[scale == 0] = 1.0
        B = np.zeros((m, e))
        B[np.arange(m), place] = -scale[place]
        A, B, offset = (
            np.concatenate([A, np.zeros((e, A.shape[1]))]),
            np.concatenate([B, -np.eye(e)]),
            np.append(offset, np.zeros(e)),
        )
        rows = PiecewiseRows(
            np.zeros((1, 1, m + e)), np.repeat([[[0.0]], [[np.inf]]], m + e, axis=2), np.ones((1, m + e))
        )
        curvature = np.where(weight > 0, 2.0 * weight, 1.0) * scale**2
        out = cls._piecewise(A, offset[None], rows, B, curvature=curvature)
        # What counts for nothing bounds nothing, as in strata without records.
        idle = weight[:, np.append(place, np.arange(e))] == 0
        out.knots = np.where(idle, np.inf, out.knots)
        return out

    @classmethod
    def beside(cls, parts):
        """Several, one after the other."""
        e = np.cumsum([0] + [part.B.shape[1] for part in parts])
        B = [
            np.pad(part.B, ((0, 0), (start, e[-1] - stop)))
            for part, start, stop in zip(parts, e[:-1], e[1:], strict=True)
        ]
        functions = PiecewiseRows.beside(
            [PiecewiseRows(part.knots, part.slopes, np.ones((1, len(part.A)))) for part in parts]
        )
        own = [_beside([getattr(part, name) for part in parts]) for name in ("offset", "cost", "curvature")]
        return cls(
            np.concatenate([part.A for part in parts]),
            np.concatenate(B),
            own[0],
            functions.knots,
            functions.slopes,
            *own[1:],
        )


def _beside(parts):
    rows = max(len(part) for part in parts)
    return np.concatenate([np.broadcast_to(part, (rows, part.shape[1])) for part in parts], axis=1)
