"""What held-out records say of a start and of ways to better it, each of which has to beat what was kept before."""

import numpy as np


class HeldOutLosses:
    """Losses of held-out records, for a start and for what was tried.

    Parameters
    ----------
    tried : sequence of str
        Names of what was tried; 0 is the start, 1 the first of these.
    in_time : bool
        Whether folds follow one another in time, so that standard errors are over folds and not over records.

    Attributes
    ----------
    folds : list of list of ndarray
        For each fold the losses of its records, of the start and of all that was tried.
    """

    def __init__(self, tried, in_time):
        self.tried, self.in_time, self.folds = tried, in_time, []

    def gain(self, a, b):
        """How much lower the mean loss of b is than that of a, and the paired standard error."""
        gaps = [losses[a] - losses[b] for losses in self.folds]
        units = [gap.mean() for gap in gaps] if self.in_time else np.concatenate([np.zeros(0), *gaps])
        if len(units) < 2 or not np.isfinite(units).all():
            return 0.0, np.nan
        return float(np.concatenate(gaps).mean()), float(np.std(units, ddof=1) / np.sqrt(len(units)))

    def chosen(self):
        """The last, 0 for the start, that gains more over what was kept before it than the standard error."""
        kept = 0
        for way in range(1, len(self.tried) + 1):
            gain, error = self.gain(kept, way)
            kept = way if gain > error else kept
        return kept

    def best(self):
        """What was tried with the lowest mean loss."""
        return 1 + int(np.argmin(self.means()[1:]))

    def means(self):
        """Mean loss of the start and of all that was tried."""
        return [float(np.concatenate(losses).mean()) for losses in zip(*self.folds, strict=True)] or [np.nan]

    def by_fold(self, way):
        """Records, and mean loss before and after, of each fold."""
        return [
            {"records": len(losses[0]), "before": float(losses[0].mean()), "after": float(losses[way].mean())}
            for losses in self.folds
        ]

    def table(self):
        """A row for the start and for each that was tried, with its gain over the start."""
        rows = []
        for way, (name, loss) in enumerate(zip(("start", *self.tried), self.means(), strict=False)):
            gain, error = self.gain(0, way) if way else (None, None)
            rows.append({"tried": name, "step": None, "loss": loss, "gain": gain, "gain_se": error})
        return rows if self.folds else []
