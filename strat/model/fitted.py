"""What a fitted model provides: parameters of one stratum or all, their names, the graph, the problem in CVXPY, a file."""

import copy
from collections.abc import Hashable
from dataclasses import replace
from functools import cached_property
from itertools import chain
from os import PathLike
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from strat.compiler import coupling
from strat.compiler.cone_form import stacked
from strat.compiler.expressions import folded
from strat.errors import DataWarning, GraphError, OptionError, optional
from strat.graphs.prior_graph import read_graph
from strat.model.saving import save
from strat.records.labels import axis_factors, plain
from strat.records.strata import did_you_mean, some_of
from strat.rules import atoms, short
from strat.rules.approximated import approximations
from strat.solvers import Result

if TYPE_CHECKING:
    import pandas as pd


class FittedParameters:
    """The part of a StratifiedModel that reads ``theta_``, ``W_`` and ``strata_``."""

    theta_: dict[str, np.ndarray]
    strata_: list
    result_: Result

    def at(self, label: Hashable) -> dict:
        """Parameters of one stratum.

        Parameters
        ----------
        label : hashable
            The stratum.

        Returns
        -------
        dict
            ``{variable name: array}``.

        Raises
        ------
        GraphError
            If the label is not a stratum.
        """
        check_is_fitted(self, "theta_")
        label, strata = plain(label), self.strata_
        if label not in strata:
            raise GraphError(
                f"{label!r} is not a stratum of the model, which has {len(strata):,}, such as {some_of(strata)}. "
                f"{did_you_mean(label, strata)}".rstrip()
            )
        k = strata.index(label)
        return {name: np.array(value[k]) for name, value in self.theta_.items()}

    def coefficients(self, errors: dict | None = None) -> "pd.DataFrame":
        """The parameters as a table.

        Parameters
        ----------
        errors : dict, optional
            Standard errors to put beside the parameters, as returned by ``strat.standard_errors(model)``.

        Returns
        -------
        pandas.DataFrame
            One row per stratum, one column per parameter; columns have the names of features where fit was given a
            DataFrame. With `errors` there are two groups of columns, "estimate" and "standard error".

        Examples
        --------
        >>> import cvxpy as cp, pandas as pd, strat
        >>> theta, x, y = cp.Variable(2, name="theta"), cp.Parameter(2, name="x"), cp.Parameter(name="y")
        >>> base = strat.BaseModel(cp.square(y - x @ theta), data=(x, y))
        >>> X = pd.DataFrame({"rooms": [1.0, 0.0, 2.0, 1.0], "age": [0.0, 1.0, 1.0, 1.0]})
        >>> model = strat.separate(base).fit(X, [1.0, 2.0, 5.0, 4.0], strata=["a", "a", "b", "b"])
        >>> model.coefficients().round(2)
                 rooms  age
        stratum
        a          1.0  2.0
        b          1.0  3.0
        """
        check_is_fitted(self, "theta_")
        pd, labels = optional("pandas", "coefficients", "pandas"), self.strata_
        if all(type(label) is tuple and len(label) == len(labels[0]) > 1 for label in labels):
            factors = axis_factors(self.graph)
            index = pd.MultiIndex.from_tuples(labels, names=[factors.get(a) for a in range(len(labels[0]))])
        else:
            index = pd.Index(labels, tupleize_cols=False, name="stratum")
        columns = column_names(self.base, self._columns)
        table = pd.DataFrame(self._flat(), index, columns)
        if errors is None:
            return table
        shapes = {name: value.shape for name, value in self.theta_.items()}
        if not isinstance(errors, dict) or any(np.shape(errors.get(name)) != shapes[name] for name in shapes):
            what = "errors must be what strat.standard_errors returns for this model, arrays of the shapes"
            raise OptionError(f"{what} {shapes}, not {short(repr(errors), 100)}.")
        errors = np.concatenate([np.reshape(errors[v], (len(labels), -1)) for v in self.theta_], axis=1)
        return pd.concat({"estimate": table, "standard error": pd.DataFrame(errors, index, columns)}, axis=1)

    def to_cvxpy(self) -> cp.Problem:
        """The convex problem in theta for the current W, as CVXPY sees it.

        Returns
        -------
        cvxpy.Problem
            It has one variable ``NAME[LABEL]`` for each variable and stratum, with its declared shape and attributes; for a
            common model, only those of one stratum.
        """
        check_is_fitted(self, "theta_")
        base = self.base
        names = approximations(base.loss, base.regularizer, *(a for c in base.constraints for a in c.args))
        if names:
            DataWarning.warn(
                f"the problem holds CVXPY's approximation of {' and '.join(names)}, and the fit the exact function: their "
                f"optimal values differ. Compare the fit with scipy.special instead."
            )
        W = sp.triu(sp.csr_array(self.W_)).tocoo()
        return weighted_problem(self, *W.coords, W.data.tolist(), kept={})[0]

    def save(self, path: str | PathLike) -> None:
        """Store arrays, labels, options and a readable copy of the declaration (npz with JSON, no pickle).

        Parameters
        ----------
        path : str or path
            File to write; ``strat.load`` reads it. An existing file is replaced only once the new one is complete; an
            OptionError leaves it unchanged.
        """
        check_is_fitted(self, "theta_")
        save(self, path)

    @cached_property
    def W_(self) -> Any:
        """The fitted graph's weights, (K, K); the matrix is built on first use, as many fits never need it."""
        if "_weights" not in vars(self):
            raise AttributeError(f"this {type(self).__name__} has no W_: it is not fitted. Call fit first.")
        return self._weights()

    def _flat(self):
        """Parameters as (K, n)."""
        return self.base.layout.pack(self.theta_)


def weighted_problem(model, i, j, weights, kept):
    """The problem for given weights on edges with ends i < j, and a dict of each stratum's variables by name.

    The weights are numbers or Parameters; `kept` has the Parameters, by name, that stay as hyperparameters.
    """
    model = as_fitted(model)
    base, records, weight = model.base, training_records(model), 1.0
    if model.shared:
        weight = len(model.strata_) if model.regularizer_weight is None else model.regularizer_weight
        records = replace(records, strata=records.strata.merged(["common"]))
    stay = {id(base.hyperparameters[name]) for name in kept}
    parts = [_stratum_terms(model, label, weight, kept, stay) for label in records.strata.labels]
    copies, terms, constraints, leaves = map(list, zip(*parts, strict=True))
    theta = cp.hstack([cp.vec(v, order="C") for variables in copies for v in variables.values()])
    terms += _losses(model, records, theta, leaves, stay)
    prior = None if model.graph is None else read_graph(model.graph)
    couple = coupling.on_edges(base, model.values, prior, i, j)
    n, E = base.layout.n, len(i)
    if E:  # w_e/2 ||root * (theta_i - theta_j)||^2
        root, c = np.broadcast_to(np.sqrt(couple), (E, n)).ravel(), np.arange(n)
        places = np.tile(np.arange(E * n), 2), np.concatenate([(k[:, None] * n + c).ravel() for k in (i, j)])
        D = sp.csr_array((np.concatenate([root, -root]), places), (E * n, theta.size))
        squares = cp.sum(cp.reshape(cp.square(D @ theta), (E, n), order="C"), axis=1)
        terms.append(0.5 * cp.sum(cp.multiply(cp.hstack(weights), squares)))
    # One flat sum: long chains of additions are slow to analyse.
    objective = cp.sum(cp.hstack([cp.reshape(t, (1,), order="C") for t in terms]))
    return cp.Problem(cp.Minimize(objective), list(chain(*constraints))), copies


def as_fitted(model):
    """A copy of a fitted model with the graph and scale of its fit, even if others were set since."""
    fitted = copy.copy(model)
    vars(fitted).update(getattr(model, "_of_fit", {}))
    return fitted


def training_records(model, what="to_cvxpy"):
    """The records of a model's fit; `what` is the caller, for messages."""
    if getattr(model, "_training", None) is None:
        why = "which models that were loaded, or fitted to chunks, do not keep. Fit it to records in memory."
        raise OptionError(f"{what} needs the records of the fit, {why}")
    return model._training


def _stratum_terms(model, label, regularizer_weight, kept, stay):
    """One stratum's part of the problem: variables by name, the regularizer, constraints, and variables and constants by id."""
    base, variables, leaves = model.base, {}, {}
    for v in base.loss_program.variables:
        attributes = {k: a for k, a in v.attributes.items() if a is not False and a is not None}
        leaves[id(v)] = variables[v.name()] = cp.Variable(v.shape, name=f"{v.name()}[{label}]", **attributes)
    for name, p in base.hyperparameters.items():
        leaves[id(p)] = kept[name] if name in kept else cp.Constant(model.values.get(name, p.value))
    constraints = [c.copy([folded(a, leaves, stay) for a in c.args]) for c in base.constraints]
    return variables, regularizer_weight * folded(base.regularizer, leaves, stay), constraints, leaves


def _losses(model, records, theta, leaves, stay):
    """The losses of all records: one vector where possible, else one by one, at milliseconds of CVXPY's time each."""
    base, strata = model.base, records.strata
    walker, binder, origin = base.loss_program._read(model.values, records.arrays, strata, records.weight)
    losses = None if stay else stacked(base.loss, walker, binder, theta, leaves[0])
    if losses is not None and losses.is_convex():
        return [cp.sum(cp.multiply(records.weight[origin.order], losses))]
    terms, rows = [], np.flatnonzero(records.weight > 0)
    arrays = [a[rows].toarray() if sp.issparse(a) else a[rows] for a in records.arrays]
    for *values, k, w in zip(*arrays, strata.index[rows], records.weight[rows], strict=True):
        data = {id(p): cp.Constant(np.reshape(v, p.shape)) for p, v in zip(base.data, values, strict=True)}
        loss = folded(base.loss, leaves[k] | data, stay)
        terms.append(loss if w == 1 else float(w) * loss)
    return terms


def feature_names(base, columns):
    """The names of the entries of variables that multiply a data Parameter, ``{variable: (axis, names)}``.

    In ``x @ theta``, ``theta @ x`` and ``multiply(x, theta)`` the entries of theta along one axis belong to those of x. `columns`
    are the column names of the arguments that were DataFrames, by Parameter name.
    """
    data, found = {p.id: p.name() for p in base.data}, {}
    sources = [e for e in (base.loss, base.predict) if e is not None]
    for node in reversed([*atoms.nodes(*sources)]):  # reversed, so that the first one counts
        if not isinstance(node, atoms.MulExpression | atoms.multiply):
            continue
        for p, v in (node.args, node.args[::-1]):
            if isinstance(v, atoms.Variable) and getattr(p, "id", None) in data and p.ndim == 1:
                axis = v.ndim - 1 if p is node.args[1] else 0
                names = columns.get(data[p.id], ())
                if v.ndim and v.shape[axis] == len(names):
                    found[v.name()] = axis, [str(name) for name in names]
    return found


def entry_names(base, columns):
    """Names of all entries, ``{variable: {index: name}}``: "b", "theta[0]", or "theta[alcohol]" where columns are known."""
    features, names = feature_names(base, columns), {}
    for variable, shape in base.layout.shapes.items():
        axis, along = features.get(variable, (None, ()))
        names[variable] = {}
        for index in np.ndindex(shape):
            parts = [along[i] if a == axis else str(i) for a, i in enumerate(index)]
            names[variable][index] = variable + (f"[{', '.join(parts)}]" if parts else "")
    return names


def column_names(base, columns):
    """Names of the n parameters of a stratum for a table: a feature's own name where no other entry has that name."""
    features, full, bare = feature_names(base, columns), [], []
    for variable, names in entry_names(base, columns).items():
        full += names.values()
        alone = variable in features and len(base.layout.shapes[variable]) == 1
        bare += features[variable][1] if alone else names.values()
    return [short if bare.count(short) == 1 else name for short, name in zip(bare, full, strict=True)]
