"""Tables of results: aligned text, HTML, Markdown, a DataFrame."""

import math
from html import escape
from itertools import islice

import numpy as np

from strat.errors import optional


class Shown:
    """An object that prints as aligned text; notebooks show this text without breaking its lines."""

    def __repr__(self):
        return str(self)

    def _repr_html_(self):
        return f'<pre style="white-space: pre; overflow-x: auto; line-height: 1.25">{escape(str(self))}</pre>'


class Table(Shown):
    """A subclass has ``cells()``, rows of values or None, and ``layout``, the head and the digits of each printed column.

    If a column shows a mean and its standard error, their names follow. A last column "error" is printed below the table.
    """

    @property
    def columns(self):
        """The names of the values in a row."""
        return [name for head, _, *names in self.layout for name in names or [head]]

    def texts(self, errors=False):
        """Head and rows as texts; with `errors`, including the column of errors if there are any."""
        lines = [[head for head, *_ in self.layout]]
        for row in self.cells():
            row = iter(row)
            lines.append([text_of(*islice(row, len(names) or 1), digits=n) for _, n, *names in self.layout])
        without = lines[0][-1] == "error" and not (errors and any(line[-1] for line in lines[1:]))
        return [line[:-1] for line in lines] if without else lines

    def printed(self, most=None):
        """Texts: the table of the first rows, how many more there are, and errors by the name in the first column."""
        lines, rows = self.texts(), self.cells()
        more = [f"… and {len(rows) - most} more (to_frame() has all)"] if most and len(rows) > most else []
        errors = [f"failed  {name}: {error}" for name, *_, error in rows if error]
        return [aligned(lines[: most and most + 1]), *more, *(errors if self.columns[-1] == "error" else [])]

    def _repr_html_(self):
        before, table, after = str(self).partition(aligned(self.texts()))
        if not table:  # only some of the rows are printed
            return super()._repr_html_()

        def line(row, tag="td"):
            return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) + "</tr>"

        head, *rows = self.texts()
        before, after = (f"<pre>{escape(t.strip())}</pre>" if t.strip() else "" for t in (before, after))
        return f"{before}<table>{line(head, 'th')}{''.join(map(line, rows))}</table>{after}"

    def to_frame(self):
        """The table with full precision.

        Returns
        -------
        pandas.DataFrame
            One row for each row of the table.
        """
        return optional("pandas", "to_frame()", "pandas").DataFrame(self.cells(), columns=self.columns)

    def to_markdown(self):
        """The table as Markdown.

        Returns
        -------
        str
            Lines with ``|`` between cells.
        """
        head, *rows = self.texts(errors=True)
        rows = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)


def aligned(lines, numbers=True):
    """Rows of texts, the head first, as lines of aligned columns: words to the left and, with `numbers`, numbers to the right."""
    columns = []
    for column in zip(*lines, strict=True):
        width, cells = max(map(len, column)), [cell for cell in column[1:] if cell]
        are_numbers = cells and all(c.lstrip("+-")[:1].isdigit() or c in ("inf", "nan") for c in cells)
        right = numbers and columns and are_numbers
        columns.append([cell.rjust(width) if right else cell.ljust(width) for cell in column])
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns, strict=True))


def mean_and_error(values, weight=None):
    """Weighted mean of n values, and its standard error; None where one does not exist (n = 0, n = 1, infinite values)."""
    n = len(values)
    if n == 0:
        return None, None
    values = np.asarray(values, dtype=float)
    share = np.full(n, 1 / n) if weight is None else weight / weight.sum()
    mean = float(np.average(values, weights=weight))
    if n == 1 or not np.isfinite(values).all():
        return mean, None
    return mean, float(np.sqrt(n / (n - 1) * np.sum((share * (values - mean)) ** 2)))


def text_of(value, error=None, digits=4):
    """A value as text, a float with significant digits and perhaps a standard error; `digits` may be a function for this."""
    if callable(digits):
        return digits(value)
    if not isinstance(value, float) or not math.isfinite(value):
        return "" if value is None else str(value)
    text = f"{value:#.{digits}g}".rstrip(".") if 1e-3 <= abs(value) < 10**digits else f"{value:.{digits}g}"
    return text if error is None else f"{text} ± {text_of(error, digits=2)}"
