"""One model for all records, as a problem of its own."""

from dataclasses import replace

import cvxpy as cp
from sklearn.utils.validation import check_is_fitted

from strat.model.estimator import StratifiedModel
from strat.model.export import stratum_terms, training_records
from strat.problem.graph_regularizers import FixedGraph
from strat.records.records import Records
from strat.records.strata import Strata


class CommonModel(StratifiedModel):
    """A StratifiedModel whose strata are one; see ``strat.common``."""

    shared = True

    def __init__(
        self,
        base,
        graph=None,
        graph_regularizer=FixedGraph(),  # noqa: B008 (it has no state)
        *,
        regularizer_weight=None,
        solver=None,
        scale=1.0,
        edges="all",
        strata=None,
        n_starts=1,
        warm_start=False,
        random_state=0,
    ):
        super().__init__(
            base,
            graph,
            graph_regularizer,
            solver=solver,
            scale=scale,
            edges=edges,
            strata=strata,
            n_starts=n_starts,
            warm_start=warm_start,
            random_state=random_state,
        )
        self.regularizer_weight = regularizer_weight

    def to_cvxpy(self):
        """The convex problem in the one set of parameters, as CVXPY sees it.

        Returns
        -------
        cvxpy.Problem
            Its variables are those of one stratum.
        """
        check_is_fitted(self, "theta_")
        records = training_records(self)
        weight = len(self.strata_) if self.regularizer_weight is None else self.regularizer_weight
        records = replace(records, strata=Strata(["common"], records.strata.index * 0))
        _, objective, constraints = stratum_terms(self.base, records, self.values, 0, weight)
        return cp.Problem(cp.Minimize(objective), constraints)

    def _read(self, parameters, data, strata, where, sample_weight=None):
        """Records for the fitted model; labels it has not seen are read as the first stratum."""
        records = Records.read(
            parameters,
            data,
            strata,
            where,
            declared=self.strata,
            sample_weight=sample_weight,
            columns=self._columns,
        )
        index = records.strata.index * 0
        records.strata = Strata(self.strata_, index)
        return records
