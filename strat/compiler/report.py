"""Programs as text: the rule of each piece, and which oracles it has."""

import numpy as np

from strat.compiler.binder import Binder
from strat.compiler.piecewise import first_kink
from strat.compiler.verify import random_records
from strat.compiler.walk import DATA, Leaf, Product, Value
from strat.rules import atoms, short, text


def prox_line(program, prox=True):
    """The line, in a list, that says how the prox is computed, for a loss at random records; none while values are missing."""
    known = all(p.value is not None for p in program.hyperparameters)
    oracle = random_records(program, np.random.default_rng(0), {}, prox)[1] if known else None
    if oracle is None:
        return []
    kind = oracle.prox.kind if oracle.has("prox") else "none"
    if getattr(oracle.prox, "costly", False):
        kind += ", so that a given graph is fitted by strat.Cone()"
    return [f"prox  {kind}" + (f" ({oracle.why['prox']})" if "prox" in oracle.why else "")]


def header(program):
    """Variables and data on one line."""
    shapes = [[f"{x.name()} {x.shape}" for x in some] for some in (program.variables, program.data)]
    (variables, data), n = map(", ".join, shapes), program.layout.n
    line = f"{program.what}: variables {variables or 'none'}; {n} number{'s' * (n != 1)} per stratum"
    return line + (f"; data {data}" if data else "")


def piece_rows(program):
    """Rows (weight, piece, rule, argument, oracles) of the sum."""
    symbols, form = program.symbols, program.form
    binder = Binder(symbols, {}, {}, program.layout.n, None)
    rows = []
    for node, terms in binder.atoms_of(form):
        part, size, data = form.at(terms), node.forms[0].size, node.has_data
        weights = {_weight(symbols, part.at(part.column == c)) for c in np.unique(part.column)}
        count = "row" + "s" * (size != 1) if data else "entry" if size == 1 else "entries"
        argument = f"{'record data' if data else 'no data'}, {size} {count}"
        if data and node.rule.name == "Square" and not any(map(binder.atoms_of, node.forms)):
            argument += ", Gram matrix if smaller"
        smooth = first_kink(binder, [node]) is None
        oracles = ["value", *["gradient"] * smooth, *["hvp"] * (smooth and node.rule.curved), "prox"]
        weight = weights.pop() if len(weights) == 1 else "by row"
        minus = "-" * isinstance(node.expression, (atoms.min, atoms.minimum))  # these are read as maxima
        rows.append((weight, minus + text(node.expression, 46), node.rule.name, argument, " ".join(oracles)))
    linear = [symbols.nodes[o].name for o in np.unique(symbols.owner(form.column[binder.kinds(form)[0]]))]
    if linear:
        what = "sum of records" if symbols.depends(form.coefficient) & DATA else "number"
        piece = "1", f"linear in {', '.join(linear)}", "linear", f"{what} a stratum"
        rows.append((*piece, "value gradient hvp prox"))
    return rows


def _weight(symbols, form):
    """Σ scale × coefficient of a form's terms, as text."""
    out = ""
    for scale, coefficient in zip(form.scale, form.coefficient, strict=True):
        name = _name(symbols, coefficient)
        size = f"{abs(scale):g}" if name == "" or abs(scale) != 1 else ""
        sign = "-" if scale < 0 else "+" if out else ""
        out += (f" {sign} " if out else sign) + "*".join(filter(None, (size, name)))
    return short(out, 24)


def _name(symbols, symbol):
    """A coefficient's name, such as x[2] or y*x[2]; empty for the number one."""
    if symbol == 0:
        return ""
    node = symbols.nodes[symbols.owner(symbol)]
    position = int(symbol - node.start)
    if isinstance(node, Product):
        return f"{_name(symbols, node.left[position])}*{_name(symbols, node.right[position])}"
    if isinstance(node, Leaf):
        return node.name if node.size == 1 else f"{node.name}[{position}]"
    if isinstance(node, Value):
        return f"({_weight(symbols, node.form.at(node.form.row == position))})"
    return text(node.expression, 16)
