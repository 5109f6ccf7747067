"""Tables of results: aligned text, HTML, Markdown, a DataFrame."""

import math
from html import escape

import numpy as np

from strat.errors import optional


class Shown:
    """What prints as aligned text: notebooks show it so, without breaking its lines."""

    def __repr__(self):
        return str(self)

    def _repr_html_(self):
        return f'<pre style="white-space: pre; overflow-x: auto; line-height: 1.25">{escape(str(self))}</pre>'


class Table(Shown):
    """A subclass has ``columns`` (names), ``cells()`` (rows of values or None) and ``texts()`` (head and rows)."""

    def _repr_html_(self):
        before, table, after = str(self).partition(aligned(self.texts()))
        if not table:  # the printed table is a part of the whole
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
        return optional("pandas", "to_frame()", "pandas").DataFrame(self.cells(), columns=list(self.columns))

    def to_markdown(self):
        """The table as Markdown.

        Returns
        -------
        str
            Lines with ``|`` between cells.
        """
        head, *rows = self.texts()
        rows = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)


def aligned(lines, numbers=True):
    """Rows of texts, the head first, as lines of equal columns: words to the left, `numbers` to the right."""
    columns = []
    for column in zip(*lines, strict=True):
        width, cells = max(map(len, column)), [cell for cell in column[1:] if cell]
        are_numbers = cells and all(c.lstrip("+-")[:1].isdigit() or c in ("inf", "nan") for c in cells)
        right = numbers and columns and are_numbers
        columns.append([cell.rjust(width) if right else cell.ljust(width) for cell in column])
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns, strict=True))


def number(value, digits=4):
    """A number as text with `digits` significant digits."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return str(value)
    return f"{value:#.{digits}g}".rstrip(".") if 1e-3 <= abs(value) < 10**digits else f"{value:.{digits}g}"


def mean_and_error(values, weight=None):
    """Weighted mean x̄ of n values, and its standard error; None where they do not exist (n = 0, n = 1, infinite values).

    s.e.² = n / (n - 1) Σ_i (w_i / Σ w)² (x_i - x̄)²
    """
    n = len(values)
    if n == 0:
        return None, None
    values = np.asarray(values, dtype=float)
    share = np.full(n, 1 / n) if weight is None else weight / weight.sum()
    mean = float(np.average(values, weights=weight))
    if n == 1 or not np.isfinite(values).all():
        return mean, None
    return mean, float(np.sqrt(n / (n - 1) * np.sum((share * (values - mean)) ** 2)))


def text_of(mean, error, digits):
    """A mean and its standard error as text."""
    return number(mean, digits) + ("" if error is None else f" ± {number(error, 2)}")
