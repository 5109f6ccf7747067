"""Step lengths along directions of descent of convex functions, many at once."""

import numpy as np


class Search:
    """Brackets of step lengths for increasing slopes: secants, and halving where they are slow."""

    def __init__(self, start, trial, active, noise):
        self.start, self.trial, self.active, self.noise = np.abs(start), trial, active, noise
        self.low, self.high = np.zeros(len(start)), np.full(len(start), np.nan)
        self.slope_low, self.slope_high = start.copy(), np.zeros(len(start))

    def take(self, strata):
        """The same for some strata."""
        out = object.__new__(Search)
        out.__dict__.update({name: part[strata] for name, part in self.__dict__.items()})
        return out

    def update(self, slope, round_):
        """New trial lengths where the slope is still too steep; where that is."""
        steep = self.active & ~(slope <= np.maximum(0.3 * self.start, self.noise))
        short = self.active & np.isfinite(self.high) & (slope < -np.maximum(0.5 * self.start, self.noise))
        pending = steep | short
        if not pending.any():
            return pending
        self.low, self.slope_low = (
            np.where(short, self.trial, self.low),
            np.where(short, slope, self.slope_low),
        )
        self.high, self.slope_high = (
            np.where(steep, self.trial, self.high),
            np.where(steep, slope, self.slope_high),
        )
        width = self.high - self.low
        with np.errstate(all="ignore"):
            secant = self.low - self.slope_low * width / (self.slope_high - self.slope_low)
            bad = ~np.isfinite(secant) | (np.abs(secant - 0.5 * (self.low + self.high)) > 0.45 * width)
        trial = np.where(bad | (round_ % 3 == 2), 0.5 * (self.low + self.high), secant)
        self.trial = np.where(pending, trial, self.trial)
        return pending
