"""Tuning of the prior graph and hyperparameters by held-out loss."""

from strat.tuning.procedure import tune
from strat.tuning.result import Tuned

__all__ = ["Tuned", "tune"]
