"""Names of a variable's entries, from the columns of the data that they multiply."""

import numpy as np

from strat.rules import atoms


def feature_names(base, columns):
    """The names of the entries of variables that multiply a data Parameter, ``{variable: (axis, names)}``.

    In ``x @ theta``, ``theta @ x`` and ``multiply(x, theta)`` the entries of theta along one axis belong to those of x. `columns`
    are the column names of the arguments that were DataFrames, by Parameter name.
    """
    data, found = {p.id: p.name() for p in base.data}, {}
    sources = [e for e in (base.loss, base.predict) if e is not None]
    for node in reversed([*atoms.nodes(*sources)]):  # the first counts
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
    """Names of the n numbers of a stratum for a table: a feature's own name where no other entry is called so."""
    features, full, bare = feature_names(base, columns), [], []
    for variable, names in entry_names(base, columns).items():
        full += names.values()
        alone = variable in features and len(base.layout.shapes[variable]) == 1
        bare += features[variable][1] if alone else names.values()
    return [short if bare.count(short) == 1 else name for short, name in zip(bare, full, strict=True)]
