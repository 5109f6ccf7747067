"""The result of a search: its table of candidates."""

from strat.errors import OptionError
from strat.records.tables import Table, aligned, number, text_of

#: Most rows that are printed.
SHOWN = 40


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
        self.names = list(dict.fromkeys(name for row in table for name in row["constants"]))
        self.columns = ["candidate", "mean", "s.e.", "difference", "difference s.e."]
        self.columns += [*self.names, "trials", "seconds", "error"]

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

    def texts(self):
        """Head and rows as texts."""
        names = [name.removeprefix("graph_regularizer__").removeprefix("base__") for name in self.names]
        lines = [["candidate", "held-out loss", "above the best", *names, "trials", "seconds"]]
        for row in self.table:
            loss = "failed" if row["error"] else text_of(row["mean"], row["se"], 5)
            above = text_of(row["difference"], row["difference_se"], 2) if row["difference"] else ""
            given = [row["constants"].get(name, "") for name in self.names]
            given = [number(float(c), 3) if isinstance(c, (int, float)) else str(c) for c in given]
            work = [str(row["trials"]), number(row["seconds"], 2)]
            lines.append([row["candidate"], loss, above, *given, *work])
        return lines

    def __str__(self):
        lines = self.texts()
        text = [aligned(lines[: SHOWN + 1])]
        if len(lines) > SHOWN + 1:
            text.append(f"… and {len(lines) - SHOWN - 1} more (to_frame() has all)")
        text += [f"failed  {row['candidate']}: {row['error']}" for row in self.table if row["error"]]
        text.append(
            f"mean ± standard error over {self.records} held-out records of {self.folds} folds, differences record by "
            f"record; {self.seconds:.1f} s"
        )
        return "\n".join(text + [f"note  {note}" for note in self.notes])
