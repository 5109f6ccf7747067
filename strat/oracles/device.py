"""Losses of records on a device, such as a GPU, by any library of the array API standard (data-apis.org/array-api).

Records are sorted by stratum and cut into M blocks of B records of one stratum. For an atom phi of u = A theta + b,

    Σ phi(u),    Aᵀ phi'(u),    Aᵀ diag(phi''(u)) A

of each block are elementwise functions and products of small matrices on the device. The host adds the blocks of a stratum.
"""

from functools import cache, partial
from itertools import combinations_with_replacement

import numpy as np
import scipy.sparse as sp

from strat.errors import OptionError, first_line, optional
from strat.oracles.base import Oracle, compat, host, is_elsewhere, is_foreign, namespace
from strat.oracles.design import Segments
from strat.oracles.shards import Local, LocalSum

LONGEST = 2**16  # records of a block
TRANSFER = 64  # records whose computation takes as long as the transfer of a block's sums to the host
PIECE = 2**24  # numbers that are computed with at a time


class Device(Local):
    """The engine that keeps records on the device of an array, and sums over them there in float64."""

    def __init__(self, array):
        self.xp, self.device = namespace(array), compat().device(array)

    def array(self, values):
        """Numbers as an array on the device, of float32 if they have that type, else of float64."""
        xp, foreign = self.xp, is_foreign(values)
        dtype = xp.float32 if values.dtype == (xp.float32 if foreign else np.float32) else xp.float64
        values = values if foreign else np.require(values, requirements=["C", "W"])  # torch takes no other
        return xp.asarray(values, dtype=dtype, device=self.device)

    def start(self, make, chunks, K):
        """The sum over ``make(chunk)``, made once and kept."""
        shards = [cache(partial(make, chunk)) for chunk in chunks()]
        return LocalSum(lambda: shards, K)


def device_of(device, data, engine=None):
    """The `Device` that the arguments of ``fit`` mean: by default that of data in memory that NumPy cannot read."""
    if engine is not None:
        raise OptionError("device= and engine= both say where records are kept; pass only one of them.")
    found = next(filter(is_foreign, data), None)
    xp = namespace(optional("torch", "device=", "device").empty(0) if found is None else found)
    try:
        device = device or compat().device(next(filter(is_elsewhere, data)))
        (empty := xp.empty(0, dtype=xp.float64, device=device)).__dlpack_device__()
        return Device(empty)
    except Exception as error:  # each library has its own, also for memory that nothing can be read from
        why = f"cannot be used with {xp.__name__}, or has no float64: {first_line(error)}"
        raise OptionError(f"device={device!r} {why}") from None


class Blocks:
    """Records, of the ascending strata `index`, in blocks of equal length; repeated records fill a stratum's last block.

    ``places`` (M, B) are the records, ``real`` says which are no repetitions, ``stratum`` (M,) numbers the blocks' strata.
    """

    def __init__(self, index):
        first = np.flatnonzero(np.diff(index, prepend=-1))
        ends, K = np.append(first[1:], len(index)), len(first)
        # Blocks of the mean length have at most twice as many places as records; for similar counts, other lengths have fewer.
        lengths = np.quantile(ends - first, np.linspace(0, 1, 9)), -(-len(index) // K)
        lengths = np.minimum(np.hstack(lengths).astype(int), LONGEST)
        B = int(min(lengths, key=lambda B: (-(-(ends - first) // B)).sum() * (B + TRANSFER)))
        counts = -(-(ends - first) // B)
        self.stratum, starts = np.repeat(np.arange(K), counts), np.cumsum(counts) - counts
        begin = first[self.stratum] + B * (np.arange(len(self.stratum)) - starts[self.stratum])
        places, last = begin[:, None] + np.arange(B), ends[self.stratum, None] - 1
        self.real, self.places = places <= last, np.minimum(places, last)
        self.sum = Segments(self.stratum, K).sum  # (M, …) to (K, …)


class BlockLoss(Oracle):
    """Σ weight × atom(arguments) over the records of each stratum, arrays (M, B, m) on a device.

    Argument i is u = A theta + offset; `arguments` holds the offset. Row r of a record's A is Σ_j a_j S_jr, with coefficients
    a (M, B, p) and combinations S (p m, n) of the variables. An atom of rows takes u in the shape (groups, length).
    """

    def __init__(self, device, blocks, rule, arguments, i, a, weight, S):
        self.device, self.blocks, self.rule, self.arguments, self.i = device, blocks, rule, arguments, i
        self.a, self.S, self.weight = a, sp.csr_array(S), weight
        self.m, self.n = S.shape[0] // a.shape[2], S.shape[1]
        self.length = 1 if rule.separable else self.m // weight.shape[2]
        self.shape = (self.m,) if rule.separable else (weight.shape[2], self.length)

    def _sums(self, task, *points):
        """Sums over strata of the atom at points[0], and of Aᵀ g for each g from ``task(state, a, *A points[1:])``."""
        device, xp, M, found = self.device, self.device.xp, len(self.blocks.stratum), []
        step = max(1, PIECE // (self.a.shape[1] * max(self.a.shape[2], self.m)))
        spread = [(each @ self.S.T).reshape(len(each), -1, self.m)[self.blocks.stratum] for each in points]
        for first in range(0, M, step):
            part = slice(first, min(first + step, M))
            own = (each[part, ...] for each in (self.a, self.weight, *self.arguments))
            a, weight, *args = (xp.astype(each, xp.float64, copy=False) for each in own)
            u, *along = (xp.matmul(a, device.array(each[part])) for each in spread)
            args[self.i] = xp.reshape(args[self.i] + u, (*u.shape[:2], *self.shape))
            out, memo = self.rule.forward(args)
            values = xp.sum(xp.where(weight == 0, 0.0, weight * out), axis=(1, 2))  # 0 · inf = 0
            slopes = (xp.reshape(g, (*a.shape[:2], -1)) for g in task((args, out, memo, weight), a, *along))
            products = [xp.matmul(xp.matrix_transpose(a), g) for g in slopes]
            found.append([host(values), *map(host, products)])
        values, *sums = (self.blocks.sum(np.concatenate(each)) for each in zip(*found, strict=True))
        return np.where(np.isnan(values), np.inf, values), *sums

    def value(self, theta):
        return self._sums(lambda *_: (), theta)[0]

    def value_and_gradient(self, theta):
        value, slopes = self._sums(lambda state, a: [self.rule.pullback(self.i, *state)], theta)
        return value, slopes.reshape(len(theta), -1) @ self.S

    def _curve(self, state, along):
        along = self.device.xp.reshape(along, (*along.shape[:2], *self.shape))
        return self.rule.curve(self.i, *state, {self.i: along})

    def hessian(self, theta):
        pairs, groups = list(combinations_with_replacement(range(self.length), 2)), self.weight.shape[2]

        def task(state, a):
            if self.rule.separable:
                bends = [self._curve(state, self.device.xp.ones_like(state[1]))]
            else:
                bends = [self.rule.pair_curvature(*state, r, s) for r, s in pairs]
            return [h[..., q : q + 1] * a for h in bends for q in range(groups)]

        out = np.zeros((len(theta), self.n, self.n))
        places = [(q * self.length + r, q * self.length + s) for r, s in pairs for q in range(groups)]
        for (r, s), grams in zip(places, self._sums(task, theta)[1:], strict=True):
            spread = sp.kron(self.S[r :: self.m], self.S[s :: self.m], format="csr")
            block = (grams.reshape(len(theta), -1) @ spread).reshape(out.shape)
            out += block if r == s else block + block.swapaxes(1, 2)
        return out

    def hessian_operator(self, theta):
        """The Hessian as a map; every product is a pass over the records."""

        def product(v):
            _, bends = self._sums(lambda state, a, along: [self._curve(state, along)], theta, v)
            return bends.reshape(len(v), -1) @ self.S

        return product
