"""What a declaration says, as plain numbers and text, to tell whether two are the same."""

from strat.rules import atoms


def contents(base):
    """Every node of a declaration's expressions once, with its numbers and the places of its arguments.

    Variables and Parameters go by the order in which they occur, as CVXPY numbers those without a name anew in every
    session. Values of Parameters have no part in it.
    """
    nodes, places = [], {}

    def read(part):
        if isinstance(part, (list, tuple)):
            return [read(inner) for inner in part]
        if isinstance(part, slice):
            return [read(inner) for inner in (part.start, part.stop, part.step)]
        if not isinstance(part, atoms.Expression | atoms.Constraint):
            return part
        if id(part) not in places:
            if isinstance(part, atoms.Constant):
                says = part.value
            elif isinstance(part, atoms.Variable | atoms.Parameter):
                says = [(name, read(value)) for name, value in part.attributes.items()]
            else:  # a constraint's data end with its number
                data = part.get_data() or []
                says = read(data[:-1] if isinstance(part, atoms.Constraint) else data)
            node = (type(part).__name__, getattr(part, "shape", None), says, read(part.args))
            places[id(part)] = len(nodes)
            nodes.append(node)
        return places[id(part)]

    ends = read([base.loss, base.regularizer, base.constraints, base.data, *base.hyperparameters.values()])
    return nodes, ends, base.smoothing
