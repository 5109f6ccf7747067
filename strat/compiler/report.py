"""Programs as text: which rule each piece got and what can be computed of it."""

import numpy as np

from strat.compiler.bind import first_kink
from strat.compiler.binder import Binder
from strat.compiler.random_records import random_records
from strat.compiler.symbols import DATA, AtomNode, Leaf, Product, Value
from strat.rules.text import short, text

_WIDTH = 46


def describe(program):
    """The program's table."""
    rows = piece_rows(program)
    head = ("weight", "piece", "rule", "argument", "oracles")
    lines = [header(program), table(head, rows), *prox_line(program)]
    return "\n".join(lines)


def prox_line(program, constrained=True):
    """How the prox is computed, where hyperparameters have values; of a loss, as at a few random records."""
    if any(p.value is None for p in program.hyperparameters):
        return []
    if program.data:
        records, oracle = random_records(program, np.random.default_rng(0), {})
        if records is None:
            return []
        if not constrained:
            given = records.arrays, records.strata, records.weight
            oracle = program.bind_records(*given, prox=True, constrained=False)
    else:
        oracle = program.bind_regularizer()
    kind = oracle.prox.kind if oracle.has("prox") else "none"
    if getattr(oracle.prox, "costly", False):
        kind += ", so that a given graph is fitted by strat.Cone()"
    return [f"prox  {kind}" + (f" ({oracle.why['prox']})" if "prox" in oracle.why else "")]


def header(program):
    """Variables and data on one line."""
    variables = ", ".join(f"{v.name()} {_shape(v.shape)}" for v in program.variables) or "none"
    data = ", ".join(f"{p.name()} {_shape(p.shape)}" for p in program.data)
    n = program.layout.n
    line = f"{program.what}: variables {variables}; {n} number{'s' * (n != 1)} per stratum"
    return line + (f"; data {data}" if data else "")


def piece_rows(program):
    """Rows (weight, piece, rule, argument, oracles) of the sum."""
    symbols, form = program.symbols, program.form
    binder = Binder(symbols, None, {}, program.layout.n, None)
    owners = np.full(len(form.column), -1)
    owners[form.column > 0] = symbols.owner(form.column[form.column > 0])
    rows, linear = [], []
    for o in dict.fromkeys(owners.tolist()):
        terms = np.flatnonzero(owners == o)
        node = symbols.nodes[o] if o >= 0 else None
        if isinstance(node, AtomNode):
            affine = not any(binder.atoms_of(inner) for inner in node.forms)
            rows.append(_atom_row(symbols, form, terms, node, first_kink(binder, [node]) is None, affine))
        elif node is not None:
            linear.append(node.name)
    if linear:
        what = "sum of records" if symbols.depends(form.coefficient) & DATA else "number"
        rows.append(
            ("1", f"linear in {', '.join(linear)}", "linear", f"{what} a stratum", "value gradient hvp prox")
        )
    return rows


def _atom_row(symbols, form, terms, node, smooth, affine):
    weights = {
        weight_text(symbols, form, terms[form.column[terms] == c]) for c in np.unique(form.column[terms])
    }
    weight = weights.pop() if len(weights) == 1 else "by row"
    on_records = bool(node.depends & DATA)
    size = node.forms[0].size
    entries = f"{size} row{'s' * (size != 1)}" if on_records else f"{size} entr{'ies' if size != 1 else 'y'}"
    argument = f"record data, {entries}" if on_records else f"no data, {entries}"
    if on_records and affine and node.rule.name == "Square":
        argument += ", Gram matrix if smaller"
    oracles = ["value", *["gradient"] * smooth, *["hvp"] * (smooth and node.rule.curved), "prox"]
    return (weight, text(node.expression, _WIDTH), node.rule.name, argument, " ".join(oracles))


def weight_text(symbols, form, terms):
    """Σ scale × coefficient of some terms, as text."""
    out = ""
    for t in terms:
        scale, coefficient = form.scale[t], form.coefficient[t]
        name = symbol_text(symbols, coefficient)
        size = f"{abs(scale):g}" if name == "" or abs(scale) != 1 else ""
        part = "*".join(p for p in (size, name) if p)
        sign = "-" if scale < 0 else "+" if out else ""
        out += (f" {sign} " if out else sign) + part
    return short(out, 24)


def symbol_text(symbols, symbol):
    """A coefficient's name, such as x[2] or y*x[2]."""
    if symbol == 0:
        return ""
    node = symbols.node_of(symbol)
    position = int(symbol - node.start)
    if isinstance(node, Product):
        return f"{symbol_text(symbols, node.left[position])}*{symbol_text(symbols, node.right[position])}"
    if isinstance(node, Leaf):
        return node.name if node.size == 1 else f"{node.name}[{position}]"
    if isinstance(node, Value):
        rows = np.flatnonzero(node.form.row == position)
        return f"({weight_text(symbols, node.form, rows)})"
    return text(node.expression, 16)


def table(head, rows):
    """Fixed-width text of rows of strings."""
    rows = [head, *rows]
    widths = [max(len(r[c]) for r in rows) for c in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(r, widths, strict=True)).rstrip() for r in rows
    )


def _shape(shape):
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"
