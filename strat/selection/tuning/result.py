"""The result of tuning."""

from dataclasses import InitVar, dataclass
from functools import cached_property

import numpy as np

from strat.graphs.prior_graph import read_graph
from strat.plot import history
from strat.records.tables import Table, text_of

SHOWN = 5  # edges and hyperparameters that are printed
VANISHED = 1e-9  # a weight that is smaller than this, relative to the largest, has vanished


@dataclass(eq=False, repr=False)
class Tuned(Table):
    """A tuned model, or the start where tuning did not help; made by ``strat.tune``.

    Attributes
    ----------
    model : StratifiedModel
        The model with the tuned constants, fitted to all records.
    W0 : networkx.Graph
        The model's graph, with the nodes and attributes of the given one; ``strat.joint(base, graph=tuned.W0)`` takes it.
    parameters : dict
        What was tuned: "scale" (a dict by factor), "W0" (K, K), hyperparameters by name; by evidence "scale" and "couple".
    improved : bool
        Whether tuning lowered the loss of records held out of it by more than the standard error of the difference.
        Otherwise the start was kept.
    gain, gain_se : float
        That difference, the mean over records, and its standard error.
    before, after : float
        Mean validation loss of the start and of ``W0`` and ``parameters``, smoothed where the declaration says so. Tuning
        has used these records.
    folds : list of dict
        For each fold: the number of records, and the mean loss before and after.
    history : list of float
        Mean validation loss at the start and after each accepted step; the start alone where it was kept.
    table : list of dict
        What was tried: its held-out loss at the best step, and its gain over the start. The gain of the row with the
        lowest loss is a little too high, because these records chose it; `gain` is not.
    choice : str
        What had the lowest held-out loss.
    grew, fell, vanished : list of tuple
        Edges (u, v, before, after) whose weights grew, fell or vanished; the largest change first.
    log_evidence : list of float or None
        With ``method="evidence"``: values at the start and at the end of each maximisation, over all records.
    status : {"finished", "time_limit", "interrupted"}
        How tuning ended.
    seconds : float
        Time of the whole call.
    unguarded : Tuned
        The result without the guard, computed on first use.
    """

    start: InitVar[object]
    model: object
    W0: object
    parameters: dict
    improved: bool
    gain: float
    gain_se: float
    choice: str
    history: list
    folds: list
    table: list
    log_evidence: list | None = None
    status: str = "finished"
    seconds: float = 0.0
    unguarded_call: object = None
    layout = ("tried", None), ("step", None), ("held-out loss", 5), ("gain", 3, "gain", "gain s.e.")

    def __post_init__(self, start):
        records, *both = zip(*(self.folds or [(1, np.nan, np.nan)]), strict=True)
        self.before, self.after = (float(np.average(losses, weights=records)) for losses in both)
        self.folds = [dict(zip(("records", "before", "after"), fold, strict=True)) for fold in self.folds]
        nodes, prior, new = list(self.W0), read_graph(start.graph), read_graph(self.W0)
        before, after = prior.weights_on(new.i, new.j, start.scale), new.weights()
        gone = (before > 0) & (after <= VANISHED * after.max(initial=0.0))
        fell = (after < before * (1 - VANISHED)) & ~gone
        order = np.argsort(-abs(after - before), kind="stable")
        self.grew, self.fell, self.vanished = (
            [(nodes[new.i[e]], nodes[new.j[e]], float(before[e]), float(after[e])) for e in order if mask[e]]
            for mask in (after > before * (1 + VANISHED), fell, gone)
        )

    @cached_property
    def unguarded(self):
        """The result of the same call with ``guard=False``; this result itself if it was made so."""
        return self if self.unguarded_call is None else self.unguarded_call()

    def cells(self):
        """Rows of values, one for each thing tried."""
        return [[row[key] for key in ("tried", "step", "loss", "gain", "gain_se")] for row in self.table]

    def plot(self, ax=None):
        """Draw the mean validation loss after each accepted step.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib.axes.Axes
            The axes with the drawing.
        """
        ax = history({"tuned": self}, ax=ax)
        ax.axhline(self.before, color="0.6", linestyle="--", label="start")
        title = "Tuning" if self.improved else "Tuning (the start was kept)"
        ax.set(xlabel="accepted step", ylabel="mean validation loss", title=title)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.legend(frameon=False)
        return ax

    def __str__(self):
        verdict, gain = "the start was kept", "not measured"
        if self.improved and self.unguarded_call is None:
            verdict = "the lowest point, which no other records have judged"
        elif self.improved:
            verdict = "tuning improved the held-out loss"
        if np.isfinite(self.gain_se):
            records = sum(fold["records"] for fold in self.folds)
            gain = f"{text_of(self.gain, self.gain_se, 3)} (standard error over {records} records)"
        lines = [
            f"tuned       {', '.join(self.parameters)}: {verdict}",
            f"gain        {gain}, on records held out of tuning",
            f"validation  {text_of(self.before, digits=5)} at the start, {text_of(self.after, digits=5)} now, with {self.choice}",
        ]
        lines += [f"{name:<11} {_text(value)}" for name, value in self.parameters.items() if name != "W0"]
        if self.log_evidence:
            first, *_, last = self.log_evidence
            lines.append(f"evidence    log {text_of(first, digits=6)} → {text_of(last, digits=6)}")
        moved = {"grew": self.grew, "fell": self.fell, "vanished": self.vanished}
        if any(moved.values()):
            counts = ", ".join(f"{len(edges)} {name}" for name, edges in moved.items())
            lines.append(f"edges       {counts}, of {self.W0.number_of_edges()}")
            for name, (u, v, a, b) in ((n, edge) for n in moved for edge in moved[n][:SHOWN]):
                lines.append(f"  {name:<9} {u!r} – {v!r}  {text_of(a, digits=3)} → {text_of(b, digits=3)}")
        lines += self.printed() if self.table else []
        return "\n".join([*lines, f"{self.status} after {self.seconds:.1f} s"])


def _text(value):
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(entry)}" for name, entry in value.items())
    flat = np.ravel(value)
    return ", ".join(text_of(float(entry)) for entry in flat[:SHOWN]) + (", …" if len(flat) > SHOWN else "")
