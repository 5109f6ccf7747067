"""Forms and atoms bound to records on a device."""

from types import SimpleNamespace

import numpy as np
import scipy.sparse as sp

from strat.compiler.binder import Binder, shared_rows
from strat.compiler.walk import DATA, Product
from strat.errors import NoOracleError
from strat.oracles.base import host
from strat.oracles.device import BlockLoss, Device
from strat.rules import rules, text
from strat.rules.base import Chained


class DeviceBinder(Binder):
    """A `Binder` of the records at the places of `blocks`, on a device; the coefficients of variables stay there.

    Targets, offsets and weights, of which a record has only a few, pass through the host once.
    """

    def __init__(self, blocks, symbols, leaves, *others):
        super().__init__(symbols, leaves, *others)
        first = next(iter(leaves.values()))
        self.blocks, self.device = blocks, Device(first)
        self._ones = self.device.xp.ones_like(first[:, :1])

    def columns(self, ids, scale=None):
        """Values of coefficients, times `scale`: (N, len(ids)) on the device where they depend on data."""
        ids, xp = np.asarray(ids), self.device.xp
        if not self.symbols.depends(ids) & DATA:
            return super().columns(ids, scale)
        scale = np.ones(len(ids)) if scale is None else scale
        found = [self._column(i) * s for i, s in zip(ids.tolist(), scale.tolist(), strict=True)]
        dtype = xp.result_type(*found)
        return xp.concat([xp.astype(column, dtype, copy=False) for column in found], axis=1)

    def _column(self, i):
        if i == 0:
            return self._ones
        node = self.symbols.nodes[self.symbols.owner(i)]
        place = i - node.start
        if isinstance(node, Product):
            return self._column(int(node.left[place])) * self._column(int(node.right[place]))
        if node.start not in self._values:
            self._values[node.start] = self.device.array(self._value(node))
        return self._values[node.start][:, place : place + 1] * self._ones

    def sums(self, values, weight):
        """Σ weight × values (N, T) over each stratum's records: (K, T)."""
        product = self._placed(values) * self._placed(weight[:, None])
        return self.blocks.sum(host(self.device.xp.sum(product, axis=1)))

    def oracles(self, roots, active):
        """Oracles whose sum is that of atoms with weights; atoms without data are evaluated by stratum, on the host."""
        found = [self._loss(node, weight) for node, weight in roots.items() if node.has_data]
        rest = {node: weight for node, weight in roots.items() if not node.has_data}
        return found + (super().oracles(rest, active) if rest else [])

    def _placed(self, values):
        """Values (N, m), or (1, m) for all, as a (M, B, m) array on the device."""
        shape, xp = (*self.blocks.places.shape, values.shape[1]), self.device.xp
        same, values = values.shape[0] == 1, self.device.array(values)
        return xp.broadcast_to(values, shape) if same else xp.reshape(values, shape)

    def _design(self, form, on_records):
        columns, data = self.flat(form.column), self.symbols.depends(form.coefficient) & DATA
        shared = shared_rows(form) if data else None
        if not on_records or (data and shared is None):
            return None if data else super()._design(form, on_records)
        a, values, rows = np.ones((1, 1)), None if data else self.terms(form)[0], form.row
        if data:
            a, columns = self.terms(form.at(shared[0])), columns[shared].T.reshape(-1)
            values, rows = np.ones(len(columns)), np.arange(len(columns))
        S = sp.csr_array((values, (rows, columns)), (a.shape[1] * form.size, self.n))
        return SimpleNamespace(a=a, S=S)

    def _loss(self, node, weight):
        bound, rule = self.node(node), node.rule
        inner, entries = self.symbols.single(node.forms[0]) or (node, None)
        own = rule.separable and inner.rule.separable and np.array_equal(entries, np.arange(inner.size))
        if own and len(node.forms) == 1 and np.ptp(node.forms[0].scale) == 0:
            bound, rule = self.node(inner), Chained(rule, inner.rule, float(node.forms[0].scale[0]))
        both = node.rule.portable and bound.rule.portable
        if not both or len(bound.varying) != 1 or any(form.inner for form in bound.forms):
            known = ", ".join(name for name, rule in rules().items() if rule.portable)
            raise NoOracleError(
                f"{node.rule.name}, in {text(node.expression)}, is not computed on a device: squares, smoothed kinks and {known} "
                f"are, of one affine expression whose entries multiply the same data, and one within another. "
                f"Leave out device=, and pass NumPy arrays."
            )
        (i,) = bound.varying
        offsets = (np.zeros((1, form.m)) if form.offset is None else form.offset for form in bound.forms)
        design, offsets = bound.forms[i].design, [*map(self._placed, offsets)]
        a, weight = self._placed(design.a), self._placed(weight)
        return BlockLoss(self.device, self.blocks, rule, offsets, i, a, weight, design.S)
