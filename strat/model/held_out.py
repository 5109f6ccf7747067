"""Records that are not fitted: their losses as functions of theta."""

from strat.errors import NoOracleError
from strat.model.binding_cache import BindingCache
from strat.records.strata import Strata


class HeldOut:
    """Records that are not fitted, bound once.

    Parameters
    ----------
    base : BaseModel
        The declaration.
    records : Records
        The records.
    values : dict
        The model's own values of hyperparameters, by name.
    smooth : bool
        Whether the declared smoothing applies, as a derivative needs it.
    """

    def __init__(self, base, records, values, smooth=False):
        self.base, self.records, self.own, self.smooth = base, records, values, smooth
        self._oracle = BindingCache(base.loss_program, self._bind)
        self._evaluation = BindingCache(base.loss_program, self._evaluate)

    def oracle(self, values=None):
        """The loss, without smoothing unless asked for, as an oracle over the strata; `values` of hyperparameters by name."""
        return self._oracle({**self.own, **(values or {})})

    def mean_loss(self, theta, values=None):
        """Mean of the records' losses, weighted where weights were given.

        Parameters
        ----------
        theta : ndarray, shape (K, n)
            The parameters.
        values : dict, optional
            Values of hyperparameters by name, which go before the model's own.

        Returns
        -------
        float
            The mean, +inf outside the loss's domain.
        """
        return float(self.oracle(values).value(theta).sum()) / self.records.weight.sum()

    def mean_loss_and_gradient(self, theta, values=None):
        """The same, and its gradient in theta, shape (K, n).

        Raises
        ------
        NoOracleError
            If the loss has no gradient.
        """
        oracle = self.oracle(values)
        if not oracle.has("value_and_gradient"):
            raise NoOracleError(
                f"the loss has no gradient: {oracle.missing('value_and_gradient')}. "
                f"Smooth it: smoothing= on the BaseModel."
            )
        value, gradient = oracle.value_and_gradient(theta)
        total = self.records.weight.sum()
        return float(value.sum()) / total, gradient / total

    def losses(self, theta, values=None):
        """Loss of each record, shape (N,); arguments as in `mean_loss`."""
        return self._evaluation({**self.own, **(values or {})})(theta)

    def _bind(self, values):
        records, program = self.records, self.base.loss_program
        return program.bind_records(
            records.arrays, records.strata, records.weight, values, smooth=self.smooth
        )

    def _evaluate(self, values):
        return self.base.loss_program.evaluation(self.records.arrays, self.records.strata, values)


def one_stratum(strata):
    """The same records in a single stratum."""
    return Strata([None], strata.index * 0)
