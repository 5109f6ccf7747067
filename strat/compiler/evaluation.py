"""Values of an expression on each record: losses and predictions."""

import numpy as np

from strat.compiler.binder import Binder
from strat.compiler.evaluate import Evaluator, leaves
from strat.compiler.symbols import DATA, Symbols
from strat.oracles.segments import Segments
from strat.oracles.tape import Tape


class Evaluation:
    """One value (of any shape) a record, as a function of theta.

    Parameters
    ----------
    program : Program or Prediction
        What has an expression, data, a walker and coordinates.
    arrays : list of arrays
    strata : Strata
    values : dict
        Values of hyperparameters by CVXPY id.
    """

    def __init__(self, program, arrays, strata, values):
        self.order = strata.order
        self.segments = Segments(strata.index[self.order], strata.K)
        symbols = Symbols()
        form = program._walker(symbols, values)(program.expression)
        self.shape = form.shape
        evaluator = Evaluator(symbols, leaves(program.data, arrays, self.order))
        binder = Binder(symbols, evaluator, program._coordinates(), program.layout.n, self.segments)
        self.on_records = bool(binder.has_data(form) or symbols.depends(form.column) & DATA)
        self.bound = binder.form(form, self.on_records)
        self.tape = Tape(
            binder.nodes([node for node, _ in binder.atoms_of(form)]), {}, self.segments, program.layout.n
        )

    def __call__(self, theta):
        """(N, *shape) values in the records' order; +inf outside the domain of an atom."""
        with np.errstate(all="ignore"):
            states, outs, _ = self.tape.run(theta)
            value = self.bound.value(theta, outs)
        value = np.where(np.isnan(value), np.inf, value)
        for node, (args, _, _) in states.items():
            legal = node.rule.domain(args)
            if legal is not None and not legal.all():
                bad = ~legal
                if self.on_records and not node.on_records:
                    bad = bad[self.segments.index]
                value[np.broadcast_to(bad, len(value))] = np.inf
        if not self.on_records:
            value = value[self.segments.index]
        out = np.empty((len(self.order), *self.shape))
        out[self.order] = value
        return out
