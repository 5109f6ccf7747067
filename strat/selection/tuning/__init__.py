"""Tuning of the prior graph and hyperparameters by held-out loss."""

from strat.selection.tuning.procedure import tune
from strat.selection.tuning.result import Tuned

__all__ = ["Tuned", "tune"]
