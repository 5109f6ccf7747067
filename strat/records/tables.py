"""Tables of results: aligned text, Markdown, a DataFrame."""

import math


class Table:
    """A subclass has ``columns`` (names), ``cells()`` (rows of values or None) and ``texts()`` (head and rows)."""

    def to_frame(self):
        """The table with full precision.

        Returns
        -------
        pandas.DataFrame
            One row for each row of the table.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError(
                "to_frame() needs pandas; install it, or read the rows as they are (print, to_markdown, .table)."
            ) from error
        return pd.DataFrame(self.cells(), columns=list(self.columns))

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


def aligned(lines):
    """Rows of texts, the head first, as lines of equal columns: words to the left, numbers to the right."""
    widths = [max(len(line[c]) for line in lines) for c in range(len(lines[0]))]
    right = [c > 0 and _is_number(lines, c) for c in range(len(widths))]
    return "\n".join(
        "  ".join(
            cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def number(value, digits=4):
    """A number as text with `digits` significant digits."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return str(value)
    return f"{value:#.{digits}g}".rstrip(".") if 1e-3 <= abs(value) < 10**digits else f"{value:.{digits}g}"


def _is_number(lines, c):
    cells = [line[c] for line in lines[1:] if line[c]]
    return bool(cells) and all(cell.lstrip("+-")[:1].isdigit() or cell in ("inf", "nan") for cell in cells)
