"""Random affine CVXPY expressions of variables and of one record's data."""

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from against_cvxpy import saved


class Declaration:
    """Variables, data Parameters, a hyperparameter, and random values for K strata and N records."""

    def __init__(self, seed, K=3, N=5):
        self.rng = rng = np.random.default_rng(seed)
        self.K, self.N = K, N
        b, theta, B = (cp.Variable(s, name=name) for name, s in (("b", ()), ("theta", 3), ("B", (2, 3))))
        self.variables = (b, theta, B, cp.Variable((3, 3), symmetric=True, name="S"))
        shapes = {"y": (), "x": 3, "A": (3, 3), "C": (2, 3)}
        self.data = tuple(cp.Parameter(s, name=name) for name, s in shapes.items())
        self.hyper = cp.Parameter(3, name="h", value=rng.normal(size=3))
        self.theta = {v.name(): rng.normal(size=(K, *v.shape)) for v in self.variables}
        self.theta["S"] = self.theta["S"] + np.swapaxes(self.theta["S"], 1, 2)
        self.arrays = [rng.normal(size=(N, *p.shape)) for p in self.data]
        self.z = rng.integers(0, K, size=N)

    def cvxpy_values(self, expression):
        """CVXPY's value at each record, (N, *shape); parameters and variables are left without values."""
        out = []
        for i in range(self.N):
            saved((v, self.theta[v.name()][self.z[i]]) for v in self.variables)
            saved((p, array[i]) for p, array in zip(self.data, self.arrays, strict=True))
            value = expression.value
            value = value.toarray() if sp.issparse(value) else np.array(value, dtype=float)
            out.append(value.reshape(expression.shape))  # CVXPY's values may have an axis of 1 too many
        saved((leaf, None) for leaf in (*self.variables, *self.data))
        return np.stack(out)

    def affine(self, steps):
        """A random affine expression and the operations it was made with."""
        rng = self.rng
        pool = [*self.variables, *self.variables, *self.data, self.hyper]
        pool += [cp.Constant(rng.normal(size=s)) for s in ((), (3,), (2, 3))]
        used = []
        while len(used) < steps:
            name = list(OPERATIONS)[rng.integers(len(OPERATIONS))]
            # Recent results are taken more often, so that expressions get deep.
            a, b = (pool[-1 - min(int(rng.geometric(0.2)) - 1, len(pool) - 1)] for _ in range(2))
            if name in TWO and a.variables() and b.variables():
                b = (*self.data, self.hyper, cp.Constant(rng.normal(size=3)))[rng.integers(6)]
            if name in TWO and rng.random() < 0.5:
                a, b = b, a
            try:
                e = OPERATIONS[name](rng, a, b)
            except (ValueError, IndexError, NotImplementedError):
                continue
            if e.size > 60 or e.ndim > 3 or e.size == 0 or not e.is_affine():
                continue
            if name in ELEMENTWISE and (a.shape == (*b.shape, 1) or b.shape == (*a.shape, 1)):
                continue  # (n,) with (n, 1), which is refused
            pool.append(e)
            used.append(name)
        varying = [e for e in pool[-steps:] if e.variables()]
        return varying[-1] if varying else self.variables[1] + pool[-1].flatten(order="C")[0], used


def _axis(rng, a):
    return None if rng.random() < 0.3 else int(rng.integers(a.ndim)) - (a.ndim if rng.random() < 0.3 else 0)


def _index(rng, a, b):
    n = a.shape[0]
    keys = [
        int(rng.integers(-n, n)),
        slice(None, None, -1),
        slice(0, max(1, n - 1)),
        slice(-1, None),
        list(rng.integers(0, n, size=2)),
        np.arange(n) % 2 == 0,
        (Ellipsis, int(rng.integers(a.shape[-1]))),
        (slice(None), None),
    ]
    return a[keys[rng.integers(len(keys))]]


def _constant(rng, *shape):
    value = rng.normal(size=shape) * (rng.random(shape) < 0.7)
    return sp.csr_array(value) if len(shape) == 2 and rng.random() < 0.3 else value


def _broadcast_sum(rng, a, b):
    return cp.reshape(a, (a.size, 1), order="C") + cp.reshape(b, (1, b.size), order="C")


def _bmat(rng, a, b):
    column, row = cp.reshape(a, (a.size, 1), order="F"), np.ones((a.size, 2))
    return cp.bmat([[column, row], [row, column]]) if a.size < 8 else cp.bmat([[column, row]])


def _order(rng):
    return "C" if rng.random() < 0.5 else "F"


OPERATIONS = {
    "add": lambda rng, a, b: a + b,
    "subtract": lambda rng, a, b: a - b,
    "scalar": lambda rng, a, b: -1.7 * a,
    "negative": lambda rng, a, b: -a,
    "product": lambda rng, a, b: cp.multiply(a, b),
    "matmul": lambda rng, a, b: a @ b,
    "matmul constant": lambda rng, a, b: a @ _constant(rng, a.shape[-1], 2),
    "constant matmul": lambda rng, a, b: _constant(rng, 2, a.shape[0]) @ a,
    "divide": lambda rng, a, b: a / 0.8,
    "divide by constants": lambda rng, a, b: a / (1.5 + rng.random(a.shape)),
    "index": _index,
    "hstack": lambda rng, a, b: cp.hstack([a, b]),
    "vstack": lambda rng, a, b: cp.vstack([a, b]),
    "bmat": _bmat,
    "concatenate": lambda rng, a, b: cp.concatenate([a, b], axis=int(rng.integers(max(a.ndim, 1)))),
    "stack": lambda rng, a, b: cp.stack([a, b], axis=int(rng.integers(a.ndim + 1))),
    "reshape": lambda rng, a, b: cp.reshape(a, (a.size // 3, 3), order=_order(rng)),
    "vec": lambda rng, a, b: cp.vec(a, order=_order(rng)),
    "flatten": lambda rng, a, b: a.flatten(order=_order(rng)),
    "transpose": lambda rng, a, b: a.T,
    "sum": lambda rng, a, b: cp.sum(a, axis=_axis(rng, a), keepdims=bool(rng.random() < 0.3)),
    "mean": lambda rng, a, b: cp.mean(a, axis=_axis(rng, a)),
    "diff": lambda rng, a, b: cp.diff(a, k=int(rng.integers(1, 3)), axis=int(rng.integers(a.ndim))),
    "cumsum": lambda rng, a, b: cp.cumsum(a, axis=_axis(rng, a)),
    "trace": lambda rng, a, b: cp.trace(a),
    "diag": lambda rng, a, b: cp.diag(a, k=int(rng.integers(-1, 2))),
    "kron": lambda rng, a, b: cp.kron(a, b),
    "convolve": lambda rng, a, b: cp.convolve(a, b),
    "outer": lambda rng, a, b: cp.outer(a, b),
    "broadcast": _broadcast_sum,
    "broadcast_to": lambda rng, a, b: cp.broadcast_to(a, (2, *a.shape)),
    # CVXPY's upper_tri has the shape (n, 1) but values of shape (n,), hence the vec.
    "upper_tri": lambda rng, a, b: cp.vec(cp.upper_tri(a), order="C"),
    "python sum": lambda rng, a, b: sum(a[i] for i in range(a.shape[0])),
    "symmetric_wrap": lambda rng, a, b: cp.psd_wrap(a + a.T),
    "partial_trace": lambda rng, a, b: cp.partial_trace(cp.kron(np.eye(2), a), (2, a.shape[0]), axis=1),
    "permute": lambda rng, a, b: cp.moveaxis(a, 0, -1),
    "vec_to_upper_tri": lambda rng, a, b: cp.vec_to_upper_tri(cp.vec(a, order="C")[:3]),
}
ELEMENTWISE = {"add", "subtract", "product"}
#: Products, of which one side must be free of variables.
TWO = {"product", "matmul", "kron", "convolve", "outer"}
