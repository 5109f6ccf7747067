"""The prox of a bound program: closed forms for blocks of coordinates, Newton's method, or one cone program of all strata."""

from contextlib import suppress
from dataclasses import replace
from functools import cache, partial

import numpy as np
from scipy.sparse import csr_array, vstack
from scipy.sparse.csgraph import connected_components

from strat.compiler.component import Component
from strat.compiler.cone_form import record_cones, stratum_cones
from strat.compiler.pieces import NoProx, Sets, affine, quadratic, single_rows, supports
from strat.compiler.value_checks import check_fixed
from strat.errors import NoOracleError, OptionError, check_memory
from strat.oracles.base import symmetric
from strat.oracles.central_points import off_edges
from strat.oracles.interior_point import KinkedProx, kinked_and_quadratic
from strat.oracles.iterated_prox import ConeProx, NewtonProx
from strat.oracles.prox_base import BlockProx, NewtonBlock, QuadraticProx, ScalarBlock, SoftBlock, present
from strat.oracles.tape import Tape
from strat.rules import text
from strat.rules.piecewise import Abs


def with_prox(program, assembly, walker, prox=True, smoothed=False, apart=None, cones=True):
    """The oracle of a program with the prox of its expression, and of its constraints and attributes unless `prox` is "free".

    ``why["prox"]`` says why the prox has no closed form. `cones`: whether the records may be written as a cone program.
    ``apart()``, for records' losses with kinks, gives the same parts with piecewise linear functions recognised as such.
    """
    binder, values = assembly.binder, walker.values

    def of_records():
        if not smoothed:
            return [record_cones(program, walker, binder, assembly.weight)]
        part, *others = assembly.parts()
        if others or not part.kinked_rows:
            raise NoOracleError(
                f"{program.what} with smoothing= has no cone program, as it is not one atom with kinks"
            )
        return [part.kinked_rows.cones()]

    records = Once(of_records, binder.segments.N * binder.n) if program.data and cones else None
    if not prox:
        return assembly.oracle(records)
    check_fixed(program.constraints, values)
    sets = Sets(program.variables, program.layout)
    # A "free" prox satisfies no constraints, and no attributes except symmetry.
    if prox != "free":
        sets.restrict_to(program, walker, binder)

    def of_both():
        if prox == "free":
            return records()
        alone = program.constraints_alone
        return [*records(), stratum_cones(alone, values, sets.low, sets.high, sets.transposed)]

    if apart and records and not sets.restrict and sets.transposed is None:
        parts = apart()
        if known := kinked_and_quadratic(parts):
            oracle = assembly.oracle(records, parts)
            oracle.prox = KinkedProx(*known, ConeProx(Once(of_both), program.what))
            return oracle
    builder = ProxBuilder(binder, assembly.roots, assembly.linear, sets, program.layout, assembly.active)
    oracle = assembly.oracle(records)

    def of_stratum():
        cones = stratum_cones(program, values, *builder.domain(), sets.transposed)
        return [replace(cones, settle=partial(off_edges, oracle))]

    if not program.data:
        oracle.cones = Once(of_stratum)
    # Where no atom holds record data, a loss is a function of the stratum, as a regularizer is, and may have a closed form.
    if not assembly.quadratics and not any(node.has_data for node in assembly.roots):
        try:
            oracle.prox = builder.build()
            return oracle
        except NoProx as error:
            oracle.why["prox"] = str(error)
    cone_prox = None
    if not program.data:
        cone_prox = ConeProx(oracle.cones, program.what, restricted=sets.restrict)
    elif records:
        cone_prox = ConeProx(Once(of_both), program.what, builder.domain())
    # Newton's method cannot reach a minimum at an end of a domain where the value is finite. In losses such minima are rare,
    # and a cone program of all records in every iteration would be slow, so that only regularizers are examined.
    inside = () if program.data else binder.inside(assembly.roots)
    ends = any(not n.forms[i].is_data for n in inside for i in (*n.rule.steep, *n.rule.closed))
    if not sets.restrict and not assembly.roots:
        oracle.prox = QuadraticProx.of(assembly.parts(), sets.transposed)
    elif not sets.restrict and oracle.has("hessian_operator") and not (ends and cone_prox):
        oracle.prox = NewtonProx(oracle, sets.transposed, cone_prox)
    else:
        oracle.prox = cone_prox
        oracle.why.setdefault("prox", "losses of records with kinks or a domain have no prox in closed form")
    return oracle


#: Bytes that CVXPY and Clarabel take for each number of the records in a cone program.
BYTES = 450


class Once:
    """A function without arguments, called when its result, of about `size` numbers of records, is first needed, and cached."""

    def __init__(self, make, size=0):
        self._make, self._made, self.size = make, None, size

    def __call__(self):
        if self._made is None:  # concurrent threads may compute it twice
            try:
                way = "smooth the loss (smoothing=1e-3 on the BaseModel)"
                check_memory("the cone program of all records", BYTES * self.size, way)
                self._made = self._make()
            except (NoOracleError, OptionError) as error:
                self._made = str(error)
        if isinstance(self._made, str):
            raise NoOracleError(self._made)
        return self._made

    def __getstate__(self):
        with suppress(NoOracleError):
            self()  # nested functions cannot be pickled, but their result can
        return {**self.__dict__, "_make": None}


class ProxBuilder:
    """Builds the prox of Σ weight × atom + linear + quadratic over a set, for all strata, from disjoint blocks of coordinates.

    `weights` is ``{atom node: (K or 1, size) weights}``, `linear` is (K or 1, n), and `active` masks the strata with records.
    """

    def __init__(self, binder, weights, linear, sets, layout, active=None):
        self.binder, self.sets, self.layout, self.active = binder, sets, layout, active
        self.n, self.q, self.support = binder.n, linear, supports(binder)
        self.affine = cache(partial(affine, binder))
        self.nodes, matrices = {}, []
        for node, weight in weights.items():
            found = quadratic(binder, node, weight)
            if found is None:
                self.nodes[node] = weight
            else:
                matrices.append(found[0])
                self.q = self.q + found[1]
        self.H = sum(matrices[1:], matrices[0]) if matrices else csr_array((self.n, self.n))
        if sets.transposed is not None:  # restrict these parts to symmetric variables
            p, n = sets.transposed, np.arange(self.n)
            half = csr_array((np.full(2 * self.n, 0.5), (np.tile(n, 2), np.concatenate([n, p]))))
            self.q = symmetric(self.q, p)
            if not np.array_equal(*self.H.nonzero()):
                self.H = csr_array(half @ self.H @ half)
            else:  # a diagonal matrix stays diagonal: an entry and its transpose share their curvature
                diagonal = self.H.diagonal()
                self.H = csr_array((0.5 * (diagonal + diagonal[p]), (n, n)), shape=self.H.shape)
            for rows in (sets.equalities, sets.inequalities):
                rows[:] = [(csr_array(A @ half), b) for A, b in rows]
        self.diagonal = self.H.diagonal()
        self.pieces = [(node, self.support(node)) for node in self.nodes]

    def rows(self, form):
        """``single_rows`` of an affine form if none of its rows has several coordinates, else None."""
        found = self.affine(form)
        single = found is not None and np.diff(found[0].indptr).max(initial=0) <= 1
        return single_rows(*found) if single else None

    def build(self):
        """The prox in closed form; raises NoProx with the reason where some coordinates have none."""
        sets = self.sets
        if sets.other:
            raise NoProx(f"the constraint {sets.other[0]} has no projection in closed form")
        if np.any(sets.low > sets.high):
            raise NoProx("no point satisfies the constraints on one coordinate")
        labels, tied = self._components()
        sizes = np.bincount(labels, minlength=self.n)
        single = (sizes[labels] == 1) & ~tied
        order, ends = np.argsort(labels, kind="stable"), np.cumsum(sizes)
        parts = [np.flatnonzero(single)] if single.any() else []
        parts += [order[ends[k] - sizes[k] : ends[k]] for k in np.unique(labels[~single])]
        blocks, reasons = [], []
        for columns in parts:
            try:
                alone = single[columns[0]]
                blocks += self._separable(columns) if alone else [Component(self, columns).block()]
            except NoProx as error:
                reasons.append(str(error))
        if reasons:
            raise NoProx("; ".join(reasons))
        return BlockProx(blocks, sets.transposed)

    def domain(self):
        """Bounds of all coordinates, including those that the domains of atoms imply."""
        low, high = self.sets.low.copy(), self.sets.high.copy()
        for node in self.binder.inside([*self.nodes, *(node for node, *_ in self.sets.balls)]):
            for i, ends in node.rule.intervals.items():
                rows = self.rows(node.forms[i])
                if rows is not None:
                    _, column, scale, offset = rows
                    bounds = np.sort([(end - offset) / scale for end in ends], axis=0)
                    np.maximum.at(low, column, bounds[0])
                    np.minimum.at(high, column, bounds[1])
        return low, high

    def _components(self):
        """Label of the block that each coordinate belongs to, and whether it is in a ball or cone."""
        sets, links = self.sets, [matrix for _, matrix in self.pieces]
        links += [A for A, _ in sets.equalities + sets.inequalities]
        rows = [np.arange(self.n)[self.layout.slices[name]] for name in sets.cones]
        rows += [self.support(node)[np.flatnonzero(weight)].indices for node, weight, *_ in sets.balls]
        tied = np.isin(np.arange(self.n), np.concatenate([[], *rows]))
        links += [csr_array((np.ones(len(r)), r, [0, len(r)]), (1, self.n)) for r in rows]
        # The graph has a node for each coordinate and for each row that ties coordinates together.
        rows, columns = (links := vstack([self.H, *links])).nonzero()
        graph = csr_array((np.ones(len(rows)), (rows, columns)), shape=links.shape[:1] * 2)
        return connected_components(graph, directed=False)[1][: self.n], tied

    def _separable(self, columns):
        """Blocks of single coordinates: one for all absolute values, one for each atom with a prox, one by Newton's method."""
        owner, absolute = np.full(self.n, -1), np.zeros(self.n, dtype=bool)
        for i, (node, matrix) in enumerate(self.pieces):
            mine = np.intersect1d(matrix.indices, columns)
            if isinstance(node.rule, Abs):
                absolute[mine] = True
            else:
                owner[mine] = np.where(owner[mine] == -1, i, -2)
        if np.any(absolute & (owner != -1)):
            raise NoProx("functions and absolute values of one coordinate have no joint closed form")
        soft, others, blocks = columns[owner[columns] == -1], [np.flatnonzero(owner == -2)], []
        if len(soft):  # coordinates with absolute values alone, or without an atom
            nodes = [node for node, matrix in self.pieces if np.isin(matrix.indices, soft).any()]
            found, p = self.soft_parts(nodes), self.sets.transposed
            if found is None or (p is not None and not np.array_equal(found[1][soft], found[1][p[soft]])):
                raise NoProx(
                    "absolute values of one coordinate with several centres have no joint closed form"
                )
            weight, centre = symmetric(found[0], p)[:, soft], present(found[1][soft])
            blocks.append(SoftBlock(soft, *self._parts(soft), weight=weight, centre=centre))
        for i in np.unique(owner[owner >= 0]):
            mine = np.flatnonzero(owner == i)
            block = self._scalar(mine, self.pieces[i][0])
            (others if block is None else blocks).append(mine if block is None else block)
        others = np.sort(np.concatenate(others))
        return blocks + ([self._newton(others)] if len(others) else [])

    def soft_parts(self, nodes):
        """(weights (K, n), centres (n,)) of the absolute values of single coordinates; None where one has two centres."""
        K = max((len(self.nodes[node]) for node in nodes), default=1)
        weight, centre = np.zeros((K, self.n)), np.full(self.n, np.nan)
        for node in nodes:
            found = self.affine(node.forms[0])
            if found is None:
                return None
            row, column, scale, offset = single_rows(*found)
            at, before = -offset / scale, centre[column]
            centre[column] = at
            if np.any((before != at) & ~np.isnan(before)) or np.any(centre[column] != at):
                return None
            np.add.at(weight, (slice(None), column), self.nodes[node][:, row] * np.abs(scale))
        return weight, np.nan_to_num(centre) + 0.0

    def _scalar(self, columns, node):
        """The block of one elementwise atom that has a prox and takes each coordinate once; None for other atoms."""
        p, rows, constants = self.sets.transposed, self.rows(node.forms[0]), node.forms[1:]
        known = node.rule.separable and hasattr(node.rule, "prox") and all(form.is_data for form in constants)
        plain = p is None or np.array_equal(p[columns], columns)
        if not (known and plain) or rows is None or len(rows[1]) != len(columns):
            return None
        row, column, scale, offset = (part[np.argsort(rows[1])] for part in rows)
        others = [self.binder.values(form).reshape(1, -1)[:, row] for form in constants]
        own = {"rule": node.rule, "others": others, "weight": self.nodes[node][:, row]}
        return ScalarBlock(columns, *self._parts(columns), **own, scale=scale, offset=offset)

    def _newton(self, columns):
        """The block of coordinates with smooth functions, by Newton's method; raises NoProx where a function is not smooth."""
        binder, weights, p = self.binder, {}, self.sets.transposed
        touching = {node: part for node, m in self.pieces if (part := m[:, columns].tocsr()).nnz}
        paired = p is not None and np.any(p[columns] != columns)
        for node in binder.inside(touching):
            smooth = node.rule.curved and node.rule.kinks == "none"
            known = all(self.rows(node.forms[i]) is not None for i in node.rule.intervals)
            known = known and all(form.is_data for form in node.forms[1:])
            if paired or not (smooth and known):
                why = f"{node.rule.name} in {text(node.expression)}"
                raise NoProx(f"functions of one coordinate have no joint closed form: {why}")
        for node, matrix in touching.items():  # only the entries that touch these columns have a weight
            weight = self.nodes[node] * (np.diff(matrix.indptr) > 0)
            weights[binder.node(node)] = weight.reshape(len(weight), *node.shape)
        tape = Tape(binder.nodes(touching), weights, None, self.n, self.active)
        bounds = [end[None, columns] for end in self.domain()]
        return NewtonBlock(columns, *self._parts(columns)[:2], *bounds, tape=tape)

    def _parts(self, columns):
        """The linear and quadratic parts and the bounds of some coordinates."""
        low, high = self.sets.low[columns], self.sets.high[columns]
        return self.q[:, columns], self.diagonal[columns][None, :], low, high
