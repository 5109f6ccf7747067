"""The weights of the variables in the distance between strata: for all edges, or for each factor of the graph."""

from collections.abc import Mapping

import numpy as np

from strat.errors import DeclarationError, GraphError, OptionError
from strat.rules import atoms, short


def declared(couple, variables):
    """``couple`` of a ``BaseModel`` as weights by name: numbers, arrays, Parameters or dicts by factor; variables are by id."""
    if couple is None:
        return {}
    couple = (couple,) if isinstance(couple, atoms.Variable) else couple
    if not isinstance(couple, (dict, tuple, list, set, frozenset)):
        raise DeclarationError(
            f"couple must be a dict {{variable: weight}} or a tuple of the variables that the graph couples, not {couple!r}."
        )
    names, out = {v.name(): v for v in variables.values()}, {}
    if not isinstance(couple, dict):
        couple = [names.get(v, v) if isinstance(v, str) else v for v in couple]
        coupled = {getattr(v, "id", None): v for v in couple}
        if unknown := [v for key, v in coupled.items() if key not in variables]:
            raise DeclarationError(f"couple holds {unknown[0]}, which is not a variable of the model.")
        return {name: 0.0 for name, v in names.items() if v.id not in coupled}
    for key, weight in couple.items():
        name = key.name() if isinstance(key, atoms.Variable) else key
        if name not in names or (isinstance(key, atoms.Variable) and key.id != names[name].id):
            raise DeclarationError(
                f"couple has the key {name!r}, which is not a variable of the model: {', '.join(names)}."
            )
        out[name] = dict(weight) if isinstance(weight, Mapping) else weight
    return out


def parameters(couple):
    """The Parameters among declared weights."""
    found = [v for w in couple.values() for v in (w.values() if isinstance(w, dict) else [w])]
    return [weight for weight in found if isinstance(weight, atoms.Parameter)]


def by_factor(couple):
    """Whether some variable has a weight for each factor of the graph."""
    return any(isinstance(weight, dict) for weight in couple.values())


def factors(couple):
    """None, for edges without a factor, followed by the factors that declared weights name."""
    return list(dict.fromkeys([None, *(f for w in couple.values() if isinstance(w, dict) for f in w)]))


def weights(couple, layout, given, factor=None):
    """Weight of each coordinate, (n,), on edges of a factor, or of none for None; `given` overrides the Parameters' values."""
    out = np.ones(layout.n)
    for name, weight in couple.items():
        where = f"couple[{name!r}]"
        if isinstance(weight, dict):
            where, weight = f"{where}[{factor!r}]", weight.get(factor, 1.0)
        if isinstance(weight, atoms.Parameter):
            parameter, weight = weight, given.get(weight.name(), weight.value)
            if weight is None:
                raise DeclarationError(
                    f"the Parameter {parameter.name()} in couple has no value; set {parameter.name()}.value."
                )
        shape = layout.shapes[name]
        try:
            value = np.broadcast_to(np.asarray(weight, dtype=float), shape)
        except (ValueError, TypeError) as error:
            kinds = f"a number, a Parameter or an array of the variable's shape {shape}"
            raise OptionError(f"{where} must be {kinds}, not {short(repr(weight), 60)}.") from error
        if not (np.all(np.isfinite(value)) and np.all(value >= 0)):
            raise OptionError(f"{where} must be finite and at least 0, but it is {short(str(value), 60)}.")
        out[layout.slices[name]] = value.reshape(-1)
    return out


def on_edges(base, given, prior, i, j):
    """Weight of each coordinate in the distance: (n,), or (E, n) on the edges (i, j) of the graph `prior` with factors.

    Raises where a factor is not one of the graph's, and where an edge has several factors.
    """
    if prior is None or not len(i) or not by_factor(base.couple):
        return weights(base.couple, base.layout, given)
    prior.check_factors("couple", factors(base.couple)[1:])
    codes, several = prior.factor_on(i, j)
    if several.any():
        e = int(np.flatnonzero(several)[0])
        raise GraphError(
            f"couple has weights by factor, but the edge {prior.labels[i[e]]!r} – {prior.labels[j[e]]!r} belongs to several "
            f"factors. Give each edge one factor, or couple one weight for all."
        )
    table = [weights(base.couple, base.layout, given, factor) for factor in (*prior.factors, None)]
    return np.stack(table)[codes]
