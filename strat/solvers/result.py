"""What a solver returns."""

from dataclasses import dataclass, field

import numpy as np

from strat.records.tables import Shown


@dataclass(repr=False)
class Result(Shown):
    """Outcome of a fit.

    Parameters
    ----------
    status : {"converged", "early_stopped", "max_iter", "time_limit", "interrupted"}
        Why the solver stopped.
    iterations : int
        Number of iterations.
    objective : float
        Recomputed at the returned point, with the true loss where the loss was smoothed.
    parts : dict
        The objective's terms: loss, regularizer, laplacian, graph.
    residual : dict
        Relative distance from stationarity in "theta" and "W".
    history : list of float
        Objective at the start, then after every iteration.
    seconds : float
        Wall-clock time of the whole call.
    factorizations : int
        Cholesky factorisations of K x K matrices.
    init : str
        Name of the start.
    starts : list of dict
        One entry per start tried: init, objective, status.
    notes : list of str
        Remarks on the solution.
    theta, w : ndarray
        The returned point, flat: (K, n), and an edge array.
    smoothed_objective : float, optional
        The objective that was minimised, where the loss was smoothed.
    history_seconds : list of float
        Wall-clock time since the call at each entry of `history`.
    """

    status: str
    iterations: int
    objective: float
    parts: dict
    residual: dict
    history: list
    seconds: float
    factorizations: int
    init: str = "given"
    starts: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    theta: np.ndarray = field(default=None, repr=False)
    w: np.ndarray = field(default=None, repr=False)
    smoothed_objective: float | None = None
    history_seconds: list = field(default_factory=list)

    @property
    def smoothing_bound(self) -> float | None:
        """A bound on how far the true objective is above its minimum at this graph; None without smoothing.

        A Moreau envelope is nowhere above its function, so the smoothed minimum is a lower bound of the true one.
        """
        return None if self.smoothed_objective is None else max(self.objective - self.smoothed_objective, 0.0)

    def __str__(self):
        parts, plural = "  ".join(f"{k} {v:.6g}" for k, v in self.parts.items()), "s" * (self.iterations != 1)
        lines = [
            f"status      {self.status} after {self.iterations} iteration{plural} from init {self.init!r}",
            f"objective   {self.objective:.9g}",
            f"  parts     {parts}",
            *([] if self.smoothed_objective is None else [f"  smoothed  {self.smoothed_objective:.9g}"]),
            f"residual    theta {self.residual['theta']:.1e}  W {self.residual['W']:.1e}",
            f"work        {self.seconds:.2f} s, {self.factorizations} factorizations",
        ]
        for s in self.starts if len(self.starts) > 1 else ():
            lines.append(f"start       {s['init']:<10} objective {s['objective']:.9g}  {s['status']}")
        return "\n".join(lines + [f"note        {note}" for note in self.notes])
