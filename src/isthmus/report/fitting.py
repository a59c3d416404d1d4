"""Tables that fit a terminal: where one would be too wide, its columns go into several below each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.table import Table
from rich.text import Text

_EDGES = 3  # columns of the terminal that a table's column takes beside its text: two blanks and a line


@dataclass(frozen=True)
class FittingTable:
    """Lines of cells under heads, drawn as one table or as several that each begin with the first column.

    Cells and the words of heads stay whole, as far as a table of two columns fits. ``left`` are heads of columns of
    words, which begin at the left.
    """

    title: str
    heads: Sequence[str]
    lines: Sequence[Sequence[str]]
    left: Sequence[str] = ()
    caption: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        """The tables, for a terminal of this width."""
        groups = self._groups(options.max_width)
        for group in groups:
            title = Text(self.title) if group is groups[0] and self.title else None
            caption = Text(self.caption) if group is groups[-1] and self.caption else None
            yield self._table(group, title, caption)

    def _groups(self, width: int) -> list[list[int]]:
        """The columns of each table, by number; the first one is in all of them."""
        room = width - 1 - self._width(0) - _EDGES
        groups: list[list[int]] = [[0]]
        left = room
        for column in range(1, len(self.heads)):
            need = self._width(column) + _EDGES
            if need > left and len(groups[-1]) > 1:
                groups.append([0])
                left = room
            groups[-1].append(column)
            left -= need
        return groups

    def _width(self, column: int) -> int:
        """The width of the longest cell of a column, or of the longest word in its head."""
        cells = (line[column] for line in self.lines)
        return max(map(cell_len, (*self.heads[column].split(), *cells)), default=1)

    def _table(self, group: Sequence[int], title: Text | None, caption: Text | None) -> Table:
        """The table of some columns."""
        out = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
        for column in group:
            head = self.heads[column]
            out.add_column(
                head, justify="left" if head in self.left else "right", overflow="fold", width=self._width(column)
            )
        for line in self.lines:
            out.add_row(*(Text(line[column]) for column in group))
        return out
