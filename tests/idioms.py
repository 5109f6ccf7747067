"""The expressions people write for losses, regularizers and constraints, restated for one record or one stratum.

One table: tests/test_idioms.py compiles every row and compares it with CVXPY, or expects the refusal.
"""

from dataclasses import dataclass, field

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

import strat

N, K = 14, 6
D, C = 3, 4

# Variables. Their points are legal for every row that has them, except where a row says otherwise.
w, b = cp.Variable(D, name="w"), cp.Variable(name="b")
W, c0 = cp.Variable((D, C), name="W"), cp.Variable(C, name="c0")
v, q, a, p = cp.Variable(5, name="v"), cp.Variable(4, name="q"), cp.Variable(name="a"), cp.Variable(name="p")
V, T = cp.Variable((3, 4), name="V"), cp.Variable((2, 2), symmetric=True, name="T")
T3, m0 = cp.Variable((3, 3), symmetric=True, name="T3"), cp.Variable(2, name="m0")
n5, b5 = cp.Variable(5, nonneg=True, name="n5"), cp.Variable(5, bounds=[-0.4, 0.6], name="b5")
POSITIVE = ("q", "a")

# Data of one record.
x, y = cp.Parameter(D, name="x"), cp.Parameter(name="y")
yb, y01 = cp.Parameter(name="yb"), cp.Parameter(name="y01")
n, s, offset = cp.Parameter(name="n"), cp.Parameter(name="s"), cp.Parameter(name="offset")
mask, onehot, f = cp.Parameter(name="mask"), cp.Parameter(C, name="onehot"), cp.Parameter(C, name="f")
A, yp = cp.Parameter(4, name="A"), cp.Parameter(name="yp")
g, S = cp.Parameter(2, name="g"), cp.Parameter((2, 2), symmetric=True, name="S")
DATA = (x, y, yb, y01, n, s, offset, mask, onehot, f, A, yp, g, S)

# Hyperparameters.
lam, tau = cp.Parameter(nonneg=True, value=0.7, name="lam"), cp.Parameter(value=0.8, name="tau")
M, ratio = cp.Parameter(nonneg=True, value=0.6, name="M"), cp.Parameter(value=0.4, name="ratio")
W0 = cp.Parameter(5, value=[0.5, -0.2, 0.0, 1.0, 0.3], name="w0")

z = x @ w + b
r, m = y - z, cp.multiply(yb, z)
score = x @ W + c0
LAPLACIAN = np.diag([1.0, 2, 2, 2, 1]) - np.eye(5, k=1) - np.eye(5, k=-1)
PSD5 = LAPLACIAN + np.diag([1.0, 0, 0, 2, 0])
DIFFERENCES = sp.csr_array(np.diff(np.eye(5), axis=0))
TAUS = np.array([0.1, 0.5, 0.7, 0.9])


def records(seed=0, count=N):
    """Random data that every row is convex for, by Parameter name."""
    rng = np.random.default_rng(seed)
    out = {
        "x": rng.normal(size=(count, D)),
        "y": rng.normal(size=count),
        "yb": rng.choice([-1.0, 1.0], size=count),
        "y01": rng.integers(0, 2, size=count).astype(float),
        "n": rng.poisson(1.0, size=count).astype(float),
        "s": rng.uniform(0.5, 2, size=count),
        "offset": rng.normal(size=count),
        "mask": rng.integers(0, 2, size=count).astype(float),
        "onehot": np.eye(C)[rng.integers(0, C, size=count)],
        "f": rng.normal(size=(count, C)),
        "A": rng.uniform(0.1, 1, size=(count, 4)),
        "yp": rng.gamma(2.0, size=count),
        "g": rng.normal(size=(count, 2)),
    }
    return out | {"S": np.einsum("ni,nj->nij", out["g"], out["g"])}


def points(variables, seed=1, count=K):
    """Random points by variable name, (count, *shape), inside the domains."""
    rng, out = np.random.default_rng(seed), {}
    for variable in variables:
        point = rng.normal(size=(count, *variable.shape))
        if variable.name() == "p":
            point = rng.uniform(0.05, 0.95, size=count)
        if variable.name() in POSITIVE:
            point = rng.uniform(0.3, 2, size=point.shape)
        if variable.name() in ("T", "T3"):
            point = point @ np.swapaxes(point, 1, 2) + 0.3 * np.eye(variable.shape[0])
        out[variable.name()] = point
    return out


@dataclass
class Idiom:
    """One row: what is written, and what is expected of it."""

    id: str
    expression: object
    constraints: tuple = ()
    #: The prox that the row must have: "closed" (closed form), "newton", "interior" (interior points), "solver" (announced).
    prox: str = "closed"
    smooth: bool = True
    #: Points by variable name that replace the random ones.
    at: dict = field(default_factory=dict)
    error: type | None = None
    match: str = ""
    warns: str = ""

    @property
    def data(self):
        """The data Parameters of the row."""
        sources = (self.expression, *self.constraints)
        ids = {parameter.id for source in sources for parameter in source.parameters()}
        return tuple(parameter for parameter in DATA if parameter.id in ids)


def loss(id, expression, prox="newton", **expected):
    return Idiom(id, expression, prox=prox, **expected)


def kinked(id, expression, *constraints, prox="closed", **expected):
    return Idiom(id, expression, constraints, prox=prox, smooth=False, **expected)


def smooth(id, expression, *constraints, prox="closed", **expected):
    return Idiom(id, expression, constraints, prox=prox, **expected)


def refused(id, expression, error, match, *constraints):
    return Idiom(id, expression, constraints, error=error, match=match)


CONVEX, RECORD = strat.NotConvexError, strat.NotPerRecordError

LOSSES = [
    loss("L01", cp.sum_squares(z - y), prox="closed"),
    loss("L02", cp.sum_squares(z - y) / (2 * 40), prox="closed"),
    loss("L03", cp.norm(z - y, 2) ** 2, prox="closed"),
    kinked("L04", cp.norm(z - y, 2), prox="interior"),
    loss("L05", cp.sum(cp.multiply(s, cp.square(z - y))), prox="closed"),
    loss("L06", cp.sum_squares(cp.multiply(cp.sqrt(s), z - y)), prox="closed"),
    loss("L07", cp.hstack([s]) @ cp.square(cp.hstack([z - y])), prox="closed"),
    loss("L08", cp.logistic(-cp.multiply(yb, z))),
    loss("L09", cp.logistic(z) - cp.multiply(y01, z)),
    loss("L10", cp.sum(cp.log_sum_exp(cp.vstack([0, -yb * z]), axis=0))),
    refused("L11", cp.log(1 + cp.exp(-yb * z)), CONVEX, "cp.logistic"),
    refused("L12", -cp.log(1 / (1 + cp.exp(-yb * z))), CONVEX, "cp.logistic"),
    loss("L13", cp.log_sum_exp(score) - cp.sum(cp.multiply(onehot, score))),
    loss("L14", sum([cp.log_sum_exp(score) - score @ onehot])),
    loss("L15", cp.huber(z - y, M), prox="closed"),
    loss("L16", cp.huber(cp.norm(x @ W - f, 2), M)),
    kinked("L17", cp.maximum(tau * r, (tau - 1) * r), prox="interior"),
    kinked("L18", tau * cp.pos(r) + (1 - tau) * cp.pos(-r), prox="interior"),
    kinked("L19", 0.5 * cp.abs(r) + (tau - 0.5) * r, prox="interior"),
    kinked("L20", cp.pos(r) - (1 - tau) * r, prox="interior"),
    kinked("L21", cp.sum(cp.maximum(cp.multiply(TAUS, y - x @ W), cp.multiply(TAUS - 1, y - x @ W))), prox="solver"),
    refused("L21 rows", cp.sum(cp.abs(y - x @ W)), strat.DeclarationError, "contains the record data x",
            (x @ W)[1:] >= (x @ W)[:-1]),
    loss("L22", cp.exp(z) - cp.multiply(n, z)),
    loss("L23", cp.exp(z + offset) - cp.multiply(n, z + offset)),
    loss("L24", cp.kl_div(n, A @ q)),
    loss("L25", z + cp.multiply(yp, cp.exp(-z))),
    loss("L26", -y01 * cp.log(p) - (1 - y01) * cp.log(1 - p)),
    kinked("L27", cp.pos(1 - m), prox="interior"),
    loss("L28", cp.square(cp.pos(1 - m)), prox="closed"),
    loss("L29", cp.maximum(0, 1 - yb * z) ** 2, prox="closed"),
    kinked("L30", cp.norm1(z - y), prox="interior"),
    loss("L31", cp.power(cp.abs(z - y), 1.5)),
    loss("L32", cp.power(z - y, 1.5), at={"b": np.full(K, 12.0)}, warns=">= 0"),
    kinked("L33", cp.pos(cp.abs(z - y) - 0.3), prox="interior"),
    loss("L34", tau * cp.square(cp.pos(r)) + (1 - tau) * cp.square(cp.neg(r)), prox="closed"),
    loss("L35", cp.logistic(2 * (z - y)) - (z - y) - np.log(2)),
    loss("L36", cp.exp(-m)),
    loss("L37", mask * cp.square(r) + (1 - mask) * cp.square(cp.pos(r)), prox="closed"),
    loss("L38", cp.trace(S @ T) - cp.log_det(T), prox="closed"),
    loss("L39", 0.5 * cp.sum_squares(g @ T - m0) - cp.log_det(T)),
    loss("L40", 0.5 * cp.sum_squares(y * a - x @ w) - cp.log(a)),
    refused("L41", cp.log_sum_exp(cp.hstack([z])) - z, RECORD, "log-sum-exp of one number"),
    refused("L42", cp.cvar(cp.hstack([cp.abs(r)]), 0.6), RECORD, "sum over records"),
    refused("L43", cp.sum_largest(cp.hstack([cp.square(r)]), 1) / 3, RECORD, "largest entries of one number"),
    refused("L44", cp.norm_inf(r) + cp.max(cp.abs(r)), RECORD, "maximum of one number"),
    refused("L45", cp.log_sum_exp(cp.square(r)), RECORD, "log-sum-exp of one number"),
    loss("L46", a - n * cp.log(a), prox="closed"),
    loss("L47", cp.norm(x @ W - f, "fro") ** 2, prox="closed"),
]  # fmt: skip

REGULARIZERS = [
    kinked("R01", lam * cp.norm1(v)),
    kinked("R01 sum", lam * cp.sum(cp.abs(v))),
    smooth("R02", lam * cp.sum_squares(v)),
    refused("R02 product", lam * v @ v, CONVEX, "cp.sum_squares"),
    kinked("R03", 0.5 * cp.norm1(v) + 0.2 * cp.sum_squares(v)),
    kinked("R04", lam * (ratio * cp.norm1(v) + (1 - ratio) * cp.sum_squares(v))),
    kinked("R05", lam * cp.norm(v, 2)),
    kinked("R06", lam * (np.sqrt(3) * cp.norm(v[:3]) + cp.norm(v[3:]))),
    kinked("R07", lam * cp.norm(v, "inf")),
    kinked("R07 groups", lam * (cp.norm(v[:2], "inf") + cp.norm(v[2:], "inf"))),
    kinked("R08", lam * cp.mixed_norm(V, 2, 1)),
    kinked("R08 columns", lam * cp.mixed_norm(V.T, 2, 1)),
    kinked("R09", lam * cp.sum(cp.norm(V, 2, axis=1))),
    kinked("R10", lam * cp.norm(V), warns="spectral norm"),
    kinked("R11", lam * cp.norm(V, "fro")),
    kinked("R12", lam * cp.normNuc(V)),
    kinked("R13", lam * cp.tv(v)),
    kinked("R14", lam * cp.norm1(DIFFERENCES @ v)),
    kinked("R15", 0.3 * cp.norm1(v) + lam * cp.norm1(cp.diff(v))),
    smooth("R16", lam * cp.sum_squares(cp.diff(v, k=2))),
    smooth("R17", lam * cp.quad_form(v, LAPLACIAN)),
    smooth("R18", lam * cp.quad_form(v - W0, cp.psd_wrap(PSD5))),
    kinked("R19", lam * cp.norm1(v - W0)),
    kinked("R20", cp.norm1(cp.multiply(np.array([0.5, 0, 1, 2, 0]), v))),
    kinked("R21", lam * cp.norm1(v[:-1])),
    smooth("R22", 0 * cp.sum(v), v >= -0.5, v <= 0.8),
    smooth("R22 bounds", 0 * cp.sum(b5)),
    smooth("R23", 0 * cp.sum(v), v >= 0),
    smooth("R23 attribute", 0 * cp.sum(n5)),
    smooth("R24", 0 * cp.sum(v), v >= 0, cp.sum(v) == 1),
    smooth("R25", 0 * cp.sum(v), cp.diff(v) >= 0),
    smooth("R25 slices", 0 * cp.sum(v), v[1:] >= v[:-1]),
    smooth("R26", 0 * cp.sum(v), cp.norm(v, 2) <= 0.9),
    smooth("R27", 0 * cp.sum(v), cp.norm(v, 1) <= 0.9),
    smooth("R28", 0 * cp.sum(v), cp.sum(v) == 0),
    smooth("R28 equations", 0 * cp.sum(v), LAPLACIAN[:2] @ v == np.array([0.3, -0.1])),
    smooth("R29", -lam * cp.sum(cp.log(q))),
    smooth("R30", -lam * cp.sum(cp.entr(q))),
    kinked("R31", lam * cp.sum_largest(cp.abs(v), 2)),
    smooth("R32", lam * cp.sum(cp.huber(v, M))),
    smooth("R32 zero", lam * cp.sum(cp.huber(v, 0.0))),
    kinked("R33", lam * cp.norm1(V)),
    kinked("R34", lam * cp.norm(V, 1), warns="largest column sum", prox="solver"),
    kinked("R35", lam * cp.norm1(cp.multiply(1 - np.eye(3), T3))),
    smooth("R36", 0 * cp.sum(V), cp.sum(V, axis=1) == 0),
    smooth("R37", lam * cp.sum_squares(v[1:]) + cp.quad_over_lin(v[0], 2)),
    smooth("R38", cp.power(v[0], 4) + cp.sum(cp.square(v)) ** 2, prox="newton"),
    smooth("R39", cp.power(q[0], 3) + cp.sum(q[1:] ** 3), prox="newton", warns=">= 0"),
    smooth("R40", v.T @ PSD5 @ v),
    refused("R41", cp.trace(V.T @ np.eye(3) @ V), CONVEX, "cp.quad_form"),
    smooth("R42", sum(cp.quad_form(V[:, j], np.eye(3) + np.ones((3, 3))) for j in range(C))),
]

IDIOMS = LOSSES + REGULARIZERS
