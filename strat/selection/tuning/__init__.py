"""Tuning of the prior graph and hyperparameters by held-out loss."""

from strat.selection.tuning.result import Tuned
from strat.selection.tuning.tune import tune

__all__ = ["Tuned", "tune"]
