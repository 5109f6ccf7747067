"""The convex problem in theta of a fitted model, rebuilt in CVXPY from the records of its fit."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from strat.compiler import coupling
from strat.compiler.expressions import folded
from strat.errors import OptionError
from strat.graphs.prior_graph import read_graph


def weighted_problem(model, i, j, weights, kept=()):
    """The problem for given weights on edges with ends i < j, and a dict of each stratum's variables by name.

    The weights are numbers or Parameters; `kept` has Parameters that stay as hyperparameters, by name.
    """
    base, records, weight = model.base, training_records(model), 1.0
    if model.shared:
        weight = len(model.strata_) if model.regularizer_weight is None else model.regularizer_weight
        records = replace(records, strata=records.strata.merged(["common"]))
    terms, constraints, copies = [], [], []
    for k in range(records.strata.K):
        parts = _stratum_terms(base, records, model.values, k, weight, dict(kept))
        copies.append(parts[0])
        terms.append(parts[1])
        constraints += parts[2]
    prior = None if model.graph is None else read_graph(model.graph)
    couple = coupling.on_edges(base, model.values, prior, i, j)
    roots = np.broadcast_to(np.sqrt(couple), (len(i), base.layout.n))
    for a, b, w, root in zip(i, j, weights, roots, strict=True):
        for name, part in base.layout.slices.items():
            difference = copies[a][name] - copies[b][name]
            scaled = cp.multiply(root[part].reshape(difference.shape), difference)
            terms.append(0.5 * w * cp.sum_squares(scaled))
    return cp.Problem(cp.Minimize(_sum(terms)), constraints), copies


def training_records(model, what="to_cvxpy"):
    """The records of a model's fit; `what` is the caller, for messages."""
    if getattr(model, "_training", None) is None:
        raise OptionError(f"{what} needs the records of the fit, which a saved model lacks. Fit it again.")
    return model._training


def _stratum_terms(base, records, values, k, regularizer_weight, kept):
    """One stratum's part of the problem: its variables by name, loss plus regularizer, and constraints."""
    label = records.strata.labels[k]
    variables = {}
    for v in base.loss_program.variables:
        attributes = {k: a for k, a in v.attributes.items() if a is not False and a is not None}
        variables[v.name()] = cp.Variable(v.shape, name=f"{v.name()}[{label}]", **attributes)
    leaves = {id(v): variables[v.name()] for v in base.loss_program.variables}
    for name, p in base.hyperparameters.items():
        leaves[id(p)] = kept[name] if name in kept else cp.Constant(values.get(name, p.value))
    symbolic = {id(p) for name, p in base.hyperparameters.items() if name in kept}
    terms = [regularizer_weight * folded(base.regularizer, leaves, symbolic)]
    rows = np.flatnonzero((records.strata.index == k) & (records.weight > 0))
    arrays = [a[rows].toarray() if sp.issparse(a) else a[rows] for a in records.arrays]
    for *values_of_record, w in zip(*arrays, records.weight[rows], strict=True):
        pairs = zip(base.data, values_of_record, strict=True)
        data = {id(p): cp.Constant(np.reshape(value, p.shape)) for p, value in pairs}
        loss = folded(base.loss, leaves | data, symbolic)
        terms.append(loss if w == 1 else float(w) * loss)
    constraints = [c.copy([folded(a, leaves, symbolic) for a in c.args]) for c in base.constraints]
    return variables, _sum(terms), constraints


def _sum(terms):
    """One flat sum: long chains of additions are slow to analyse."""
    return cp.sum(cp.hstack([cp.reshape(t, (1,), order="C") for t in terms]))
