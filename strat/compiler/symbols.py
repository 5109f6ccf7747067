"""Symbols: every number that may occur in an expression of one record, under an integer id.

Id 0 is the number one. Each variable, parameter, product of data and atom owns a contiguous block of ids,
one for each of its entries in C order. An id either is a *column* (its value depends on the variables) or a
*coefficient* (it depends on record data or hyperparameters alone). Nothing here has the size of the data.
"""

import copy
import math

import numpy as np

DATA, HYPER, VARIABLE = 1, 2, 4


class Node:
    """A block of symbols; ``depends`` tells what its values change with (DATA | HYPER | VARIABLE)."""

    def __init__(self, shape, depends):
        self.shape, self.size = tuple(shape), math.prod(shape)
        self.depends, self.start = depends, None

    @property
    def ids(self):
        """Ids of the entries, in the node's shape."""
        return np.arange(self.start, self.start + self.size).reshape(self.shape)

    @property
    def has_data(self):
        """Whether the value differs between records of a stratum."""
        return bool(self.depends & DATA)


class Leaf(Node):
    """A CVXPY Variable, or a Parameter that holds record data or a hyperparameter."""

    def __init__(self, leaf, depends):
        super().__init__(leaf.shape, depends)
        self.leaf = leaf
        self.name = leaf.name()


class Product(Node):
    """Products of two coefficients, entry by entry."""

    def __init__(self, left, right, depends):
        super().__init__(left.shape, depends)
        self.left, self.right = left, right


class Value(Node):
    """A form without variables, evaluated as a whole and used as coefficients from there on."""

    def __init__(self, form, depends):
        super().__init__(form.shape, depends)
        self.form = form


class AtomNode(Node):
    """A rule applied to forms: a nonlinear atom of the expression."""

    def __init__(self, rule, forms, shape, depends, expression):
        super().__init__(shape, depends)
        self.rule, self.forms, self.expression = rule, forms, expression


class Symbols:
    """The blocks of one expression, in order of creation (arguments come before what uses them)."""

    def __init__(self):
        self.nodes, self._leaves, self._atoms, self._products = [], {}, {}, {}
        self._starts, self._first = [], np.zeros(0, dtype=np.int64)  # the second is the first as an array
        self._end = 1

    def copy(self):
        """The same blocks, to which others may be added."""
        twin = copy.copy(self)
        for name in ("nodes", "_leaves", "_atoms", "_products", "_starts"):
            setattr(twin, name, getattr(self, name).copy())
        return twin

    def add(self, node):
        """Give a node its ids."""
        node.start = self._end
        self._end += max(node.size, 1)
        self.nodes.append(node)
        self._starts.append(node.start)
        return node

    def leaf(self, leaf, depends):
        """Node of a CVXPY leaf, the same one at every occurrence."""
        if leaf.id not in self._leaves:
            self._leaves[leaf.id] = self.add(Leaf(leaf, depends))
        return self._leaves[leaf.id]

    def atom(self, rule, forms, shape, depends, expression):
        """Node of an atom; equal rules on equal forms share one node."""
        key = (rule.key, tuple(shape), *(f.fingerprint() for f in forms))
        if key not in self._atoms:
            self._atoms[key] = self.add(AtomNode(rule, forms, shape, depends, expression))
        return self._atoms[key]

    def owner(self, ids):
        """Position in ``nodes`` of the node that owns each id, -1 for the id 0."""
        if len(self._first) != len(self._starts):
            self._first = np.array(self._starts)
        return self._first.searchsorted(ids, side="right") - 1

    def depends(self, ids):
        """Union of what the given ids change with."""
        out = 0
        for position in set(self.owner(ids[ids > 0]).tolist()):
            out |= self.nodes[position].depends
        return out

    def product(self, left, right):
        """Ids of the products of two arrays of coefficients; equal products get equal ids."""
        out = np.where(left == 0, right, left)
        both = (left > 0) & (right > 0)
        if not both.any():
            return out
        low, high = np.minimum(left[both], right[both]), np.maximum(left[both], right[both])
        pairs, inverse = np.unique(np.stack([low, high]), axis=1, return_inverse=True)
        keys = list(zip(*pairs.tolist(), strict=True))
        ids = np.array([self._products.get(key, 0) for key in keys])
        new = np.flatnonzero(ids == 0)
        if len(new):
            ids[new] = self.add(Product(*pairs[:, new], self.depends(pairs[:, new].ravel()))).ids
            self._products.update((keys[i], int(ids[i])) for i in new)
        out[both] = ids[inverse.reshape(-1)]
        return out
