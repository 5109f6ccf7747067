"""The prox of a bound program: closed forms for blocks of coordinates, Newton's method, or one cone program of all strata."""

from contextlib import suppress

import numpy as np
from scipy.sparse import csr_array, vstack
from scipy.sparse.csgraph import connected_components

from strat.compiler.component import Component
from strat.compiler.cone_form import record_cones, stratum_cones
from strat.compiler.pieces import NoProx, Sets, Support, affine, quadratic, single_rows
from strat.compiler.piecewise import interval_below
from strat.compiler.separable import separable
from strat.compiler.value_checks import check_fixed
from strat.errors import NoOracleError, OptionError
from strat.oracles.cone_prox import ConeProx
from strat.oracles.interior_point import KinkedProx
from strat.oracles.memory import check_memory
from strat.oracles.prox_base import BlockProx
from strat.oracles.prox_newton import NewtonProx
from strat.oracles.prox_quadratic import QuadraticProx
from strat.oracles.quadratic import summed_quadratics


def with_prox(program, assembly, walker, prox=True, constrained=True, smoothed=False, apart=None):
    """The oracle of a program with the prox of the expression, and of its constraints and attributes where `constrained`.

    ``why["prox"]`` says why the prox has no closed form, where it has none. What is smoothed has no cones, as those of its
    records are of another function. Symmetry of variables the prox always holds. ``apart()`` gives the same parts with
    piecewise linear functions read as such, where the expression is of records.
    """
    binder, values = assembly.binder, walker.values

    def of_records():
        return [record_cones(program, walker, binder, assembly.weight)]

    def of_stratum():
        return [stratum_cones(program, values, *builder.domain(), sets.transposed)]

    def of_both():
        if not constrained:
            return records()
        alone = program.constraints_alone
        return [*records(), stratum_cones(alone, values, sets.low, sets.high, sets.transposed)]

    if not program.data:
        cones = Once(of_stratum)
    else:
        records = cones = None if smoothed else Once(of_records, binder.segments.N * binder.n)
    if not prox:
        return assembly.oracle(cones)
    check_fixed(program.constraints, values)
    sets = Sets(program.variables, program.layout)
    # Attributes that need not be held are held where they are free, in closed forms: a loss is steep outside.
    if constrained:
        sets.restrict_to(program, walker, binder)
    if apart and not smoothed and not sets.restrict and sets.transposed is None:
        parts = apart()
        kinked = KinkedProx.of(parts, ConeProx(Once(of_both), program.what))
        if kinked:
            oracle = assembly.oracle(cones, parts)
            oracle.prox = kinked
            return oracle
    builder = ProxBuilder(binder, assembly.roots, assembly.linear, sets, program.layout, assembly.active)
    oracle = assembly.oracle(cones)
    # The loss of all records of a stratum may be one function of the stratum, as a regularizer is.
    if not assembly.quadratics and not any(node.has_data for node in assembly.roots):
        try:
            oracle.prox = builder.build()
            return oracle
        except NoProx as error:
            oracle.why["prox"] = str(error)
    if not program.data:
        cone_prox = ConeProx(cones, program.what, restricted=sets.restrict)
    else:
        cone_prox = None if smoothed else ConeProx(Once(of_both), program.what, builder.domain())
    if not sets.restrict and not assembly.roots:
        oracle.prox = QuadraticProx(summed_quadratics(assembly.parts()), sets.transposed)
    elif not sets.restrict and oracle.has("hessian_operator"):
        oracle.prox = NewtonProx(oracle, sets.transposed, cone_prox)
    else:
        oracle.prox = cone_prox
        oracle.why.setdefault("prox", "losses of records with kinks or a domain have no prox in closed form")
    return oracle


#: Bytes that CVXPY and Clarabel take for each number of the records in a cone program.
BYTES = 450


class Once:
    """A function without arguments that is called once, when its result is first needed.

    `size` tells how many numbers of records the result will hold, before it is made.
    """

    def __init__(self, make, size=0):
        self._make, self._made, self._error, self.size = make, None, None, size

    def __call__(self):
        if self._made is None and self._error is None:
            try:
                if self.size:
                    way = "smooth the loss (smoothing=1e-3 on the BaseModel)"
                    check_memory("the cone program of all records", BYTES * self.size, way)
                self._made = self._make()
            except (NoOracleError, OptionError) as error:
                self._error = str(error)
        if self._error is not None:
            raise NoOracleError(self._error)
        return self._made

    def __getstate__(self):
        with suppress(NoOracleError):
            self()  # functions inside functions are not pickled, their result is
        return {**self.__dict__, "_make": None}


class ProxBuilder:
    """Builds the prox of Σ weight × atom + linear + quadratic over a set, all on strata, by blocks that do not touch.

    `weights` is ``{atom node: (K or 1, size) weights}``, `linear` (K or 1, n), and `active` a mask of the strata that have
    records.
    """

    def __init__(self, binder, weights, linear, sets, layout, active=None):
        self.binder, self.sets, self.layout, self.active = binder, sets, layout, active
        self.n, self.q, self._affine, self.support = binder.n, linear, {}, Support(binder)
        self.nodes, matrices = {}, []
        for node, weight in weights.items():
            found = quadratic(binder, node, weight)
            if found is None:
                self.nodes[node] = weight
            else:
                matrices.append(found[0])
                self.q = self.q + found[1]
        self.H = sum(matrices[1:], matrices[0]) if matrices else csr_array((self.n, self.n))
        if sets.transposed is not None:
            self._symmetric_parts()
        self.diagonal = self.H.diagonal()
        self.pieces = [(node, self.support.node(node)) for node in self.nodes]

    def _symmetric_parts(self):
        """What the linear, quadratic and equality parts are on symmetric variables."""
        p, n = self.sets.transposed, np.arange(self.n)
        half = csr_array((np.full(2 * self.n, 0.5), (np.tile(n, 2), np.concatenate([n, p]))))
        self.q = 0.5 * (self.q + self.q[:, p])
        if not np.array_equal(*self.H.nonzero()):
            self.H = csr_array(half @ self.H @ half)
        else:  # a diagonal stays one: an entry and its transpose share theirs
            diagonal = self.H.diagonal()
            self.H = csr_array((0.5 * (diagonal + diagonal[p]), (n, n)), shape=self.H.shape)
        self.sets.equalities = [(csr_array(A @ half), b) for A, b in self.sets.equalities]
        self.sets.inequalities = [(csr_array(A @ half), b) for A, b in self.sets.inequalities]

    def affine(self, form):
        """(A, b) of a form, computed once; None where it is not affine on strata."""
        if id(form) not in self._affine:
            self._affine[id(form)] = (form, affine(self.binder, form))
        return self._affine[id(form)][1]

    def rows(self, form):
        """``single_rows`` of a form; None where it is something else."""
        found = self.affine(form)
        return None if found is None else single_rows(*found)

    def build(self):
        """The prox in closed form; raises NoProx with the reason where some coordinates have none."""
        if self.sets.other:
            raise NoProx(f"the constraint {self.sets.other[0]} has no projection in closed form")
        labels = self._components()
        sizes = np.bincount(labels, minlength=self.n)
        single = sizes[labels] == 1
        single[self._bound(single)] = False
        order, ends = np.argsort(labels, kind="stable"), np.cumsum(sizes)
        parts = [np.flatnonzero(single)] if single.any() else []
        parts += [order[ends[k] - sizes[k] : ends[k]] for k in np.unique(labels[~single])]
        blocks, reasons = [], []
        for columns in parts:
            try:
                if np.any(self.sets.low[columns] > self.sets.high[columns]):
                    raise NoProx("no point satisfies the constraints on one coordinate")
                alone = single[columns[0]]
                blocks += separable(self, columns) if alone else [Component(self, columns).block()]
            except NoProx as error:
                reasons.append(str(error))
        if reasons:
            raise NoProx("; ".join(reasons))
        return BlockProx(blocks, self.sets.transposed)

    def domain(self):
        """Bounds of all coordinates, those from atoms that are not finite everywhere among them."""
        low, high = self.sets.low.copy(), self.sets.high.copy()
        for node in self.binder.inside([*self.nodes, *(node for node, *_ in self.sets.balls)]):
            for i, ends in node.rule.intervals.items():
                rows = self.rows(node.forms[i]) if np.isfinite(ends).any() else None
                if rows is not None:
                    _, column, scale, offset = rows
                    bounds = np.sort([(end - offset) / scale for end in ends], axis=0)
                    np.maximum.at(low, column, bounds[0])
                    np.minimum.at(high, column, bounds[1])
        return low, high

    def _bound(self, single):
        """Turn constraints on one coordinate alone into bounds; return the coordinates where that cannot be done."""
        sets, left = self.sets, []
        for A, b in sets.equalities:
            rows = np.flatnonzero((np.diff(A.indptr) == 1) & single[A.indices[A.indptr[:-1]]])
            column, value = A.indices[A.indptr[rows]], b[rows] / A.data[A.indptr[rows]]
            np.maximum.at(sets.low, column, value)
            np.minimum.at(sets.high, column, value)
        for node, weight, radius, _ in sets.balls:
            entries = np.flatnonzero(weight)
            touched = np.unique(self.support.node(node)[entries].indices)
            if len(touched) != 1 or not single[touched[0]]:
                continue
            interval = interval_below(self.binder, node, entries, weight[entries], radius)
            if interval is None:
                left.append(touched[0])
                continue
            sets.low[touched] = np.maximum(sets.low[touched], interval[0])
            sets.high[touched] = np.minimum(sets.high[touched], interval[1])
        return left

    def _components(self):
        """Label of the block that each coordinate belongs to."""
        sets, links = self.sets, [matrix for _, matrix in self.pieces]
        links += [A for A, _ in sets.equalities + sets.inequalities]
        for node, weight, _, _ in sets.balls:
            touched = np.unique(self.support.node(node)[np.flatnonzero(weight)].indices)
            links.append(csr_array((np.ones(len(touched)), (np.zeros_like(touched), touched)), (1, self.n)))
        for name in sets.cones:
            where = self.layout.slices[name]
            columns = np.arange(where.start, where.stop)
            links.append(csr_array((np.ones(len(columns)), (np.zeros_like(columns), columns)), (1, self.n)))
        if not links and np.array_equal(*self.H.nonzero()):
            return np.arange(self.n)
        # A graph of the coordinates and of one node for each row that ties some of them.
        rows, columns = (links := vstack([self.H, *links])).nonzero()
        graph = csr_array((np.ones(len(rows)), (rows, columns)), shape=links.shape[:1] * 2)
        return connected_components(graph, directed=False)[1][: self.n]
