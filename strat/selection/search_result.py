"""The result of a search: its table of candidates."""

from strat.errors import OptionError
from strat.records.tables import Table

SHOWN = 40  # most rows that are printed


class Search(Table):
    """The candidates of a search, from the lowest cross-validated loss to the highest.

    Attributes
    ----------
    table : list of dict
        One for each candidate: candidate (name), constants (dict), mean (held-out loss), se (its standard error over
        records), difference (to the best, record by record), difference_se, trials, seconds, error.
    best : StratifiedModel
        The candidate with the lowest loss, fitted to all records; ``found[name]`` is the best of another candidate.
    folds, records : int
        Number of folds, and of held-out records.
    seconds : float
        Time of the whole search.
    notes : list of str
        Remarks.
    """

    def __init__(self, table, best, fitted, folds, records, seconds, notes):
        inner = ("model", "losses", "infinite")
        self.table = [{k: v for k, v in row.items() if k not in inner} for row in table]
        self.best, self.folds, self.records = best, folds, records
        self.seconds, self.notes = seconds, notes
        first = {row["candidate"]: row for row in reversed(table) if not row["error"]}
        self._fitted, self._rows, self._models = fitted, first, {table[0]["candidate"]: best}
        names = dict.fromkeys(name for row in table for name in row["constants"])
        constants = [(n.removeprefix("graph_regularizer__").removeprefix("base__"), 3, n) for n in names]
        self.layout = [("candidate", None), ("held-out loss", 5, "mean", "s.e.")]
        self.layout += [("above the best", 2, "difference", "difference s.e."), *constants]
        self.layout += [("trials", None), ("seconds", 2), ("error", None)]

    @property
    def chosen(self):
        """The constants of the best candidate, by their names in ``set_params``."""
        return dict(self.table[0]["constants"])

    @property
    def candidate(self):
        """The name of the best candidate."""
        return self.table[0]["candidate"]

    def __getitem__(self, candidate):
        """A candidate with its best constants, fitted to all records at the first use."""
        if candidate not in self._rows:
            known = ", ".join(self._rows)
            raise OptionError(f"{candidate!r} is none of the candidates that could be fitted: {known}.")
        if candidate not in self._models:
            self._models[candidate] = self._fitted(self._rows[candidate])
        return self._models[candidate]

    def cells(self):
        """Rows of values, one a candidate."""
        names = {"s.e.": "se", "difference s.e.": "difference_se"}
        keys = [names.get(column, column) for column in self.columns]
        return [[{**row, **row["constants"]}.get(key) for key in keys] for row in self.table]

    def __str__(self):
        about = (
            f"mean ± standard error over {self.records} held-out records of {self.folds} folds, differences record by "
            f"record; {self.seconds:.1f} s"
        )
        return "\n".join([*self.printed(SHOWN), about, *(f"note  {note}" for note in self.notes)])
