"""Tables of scores as CSV, LaTeX (booktabs) and Markdown: of studies, sweeps and comparisons alike."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from isthmus.core.errors import unknown
from isthmus.report.pivot import Names, TableBlock, TableLayout, blocks
from isthmus.report.score_table import ALIKE, BEST, SCORE, JudgedEntry, ScoreTable

SUFFIX = {"csv": ".csv", "latex": ".tex", "markdown": ".md"}
_NUMBERS = (
    "mean", "deviation", "seeds", "mark", "best", "difference", "p_student", "p_student_holm", "p_wilcoxon",
    "p_wilcoxon_holm",
)  # fmt: skip
_TEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}", "−": "$-$"},
    **{"–": "--", "…": r"\dots{}", "[": "{[}", "]": "{]}"},  # a bracket after \\ would be read as its option
}


def table_text(table: ScoreTable, layout: TableLayout, how: str) -> str:
    """The table in a format: ``csv``, ``latex`` or ``markdown``."""
    if how not in SUFFIX:
        raise unknown("format", how, SUFFIX)
    return {"csv": _csv, "latex": _latex, "markdown": _markdown}[how](table, layout)


def format_of(path: Path) -> str:
    """The format that a file's suffix names; empty for another suffix."""
    return next((how for how, suffix in SUFFIX.items() if path.suffix == suffix), "")


def table_files(table: ScoreTable, layout: TableLayout, name: str = "table") -> dict[str, bytes]:
    """The contents of ``table.csv``, ``table.tex`` and ``table.md``, by name."""
    return {f"{name}{suffix}": table_text(table, layout, how).encode() for how, suffix in SUFFIX.items()}


def number_text(value: float | None) -> str:
    """A number with as many digits as tables show; a dash for None."""
    if value is None:
        return "–"
    return (
        f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.2f}" if abs(value) >= 0.1 or not value else f"{value:.2g}"
    )


def cell_text(each: JudgedEntry | None) -> str:
    """A cell as plain text: ``81.20 ± 0.40``."""
    if each is None:
        return "–"
    spread = each.entry.deviation
    return number_text(each.entry.mean) + ("" if spread is None else f" ± {number_text(spread)}")


def marked_text(each: JudgedEntry | None) -> str:
    """A cell for the terminal: ``*`` behind the best, ``=`` behind what cannot be told from it."""
    mark = {BEST: " *", ALIKE: " ="}.get(each.mark, "") if each else ""
    return cell_text(each) + mark


def _csv(table: ScoreTable, layout: TableLayout) -> str:
    """A line for each value, whatever the layout: its keys, mean, deviation, mark and tests."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow((*table.keys, SCORE, *_NUMBERS))
    for each in table.judged:
        entry, test = each.entry, each.test
        numbers = [entry.mean, entry.deviation, len(entry.values), each.mark, each.best]
        numbers += [test.mean, test.student, each.student, test.wilcoxon, each.wilcoxon] if test else [None] * 5
        names = [entry.at(key) for key in (*table.keys, SCORE)]
        writer.writerow([*names, *(f"{n:.6g}" if isinstance(n, float) else n for n in numbers)])
    return out.getvalue()


def tex(text: str) -> str:
    """Text for LaTeX, with everything escaped that means something there."""
    return "".join(_TEX.get(sign, sign) for sign in " ".join(text.split()))


def _latex(table: ScoreTable, layout: TableLayout) -> str:
    """A ``table`` environment for each block."""
    parts = ["% \\usepackage{booktabs}"]
    for number, block in enumerate(blocks(table, layout)):
        title = f"{table.title}{', ' if block.title else ''}{block.title}. {table.caption(block.judged)}"
        label = re.sub(r"[^a-z0-9]+", "-", f"{table.title} {block.title}".lower()).strip("-") or str(number)
        shape = "l" * len(block.heads) + "r" * len(block.columns)
        parts += [
            "\\begin{table}",
            "  \\centering",
            f"  \\caption{{{tex(title)}}}",
            f"  \\label{{tab:{label}}}",
            f"  \\begin{{tabular}}{{{shape}}}",
            "    \\toprule",
            *(f"    {line}" for line in _latex_heads(block)),
            "    \\midrule",
            *(f"    {' & '.join([*map(tex, names), *_cells(block, names, _latex_cell)])} \\\\" for names in block.rows),
            "    \\bottomrule",
            "  \\end{tabular}",
            "\\end{table}",
        ]
    return "\n".join(parts) + "\n"


def _latex_heads(block: TableBlock) -> list[str]:
    """The lines of a table's head; where columns have several keys, outer names span their columns."""
    lines, before = [], len(block.heads)
    for level in range(len(block.columns[0]) - 1):
        cells, rules, at = [""] * before, [], before + 1
        for outer, group in groupby(block.columns, key=lambda names: names[: level + 1]):
            wide = len(list(group))
            cells.append(f"\\multicolumn{{{wide}}}{{c}}{{{tex(outer[-1])}}}")
            rules.append(f"\\cmidrule(lr){{{at}-{at + wide - 1}}}")
            at += wide
        lines += [" & ".join(cells) + " \\\\", " ".join(rules)]
    return [*lines, " & ".join(map(tex, [*block.heads, *(names[-1] for names in block.columns)])) + " \\\\"]


def _latex_cell(each: JudgedEntry | None) -> str:
    """A cell: the best in bold, what cannot be told from it underlined."""
    text = tex(cell_text(each))
    if each is not None and each.mark == BEST:
        return f"\\textbf{{{text}}}"
    return f"\\underline{{{text}}}" if each is not None and each.mark == ALIKE else text


def _cells(block: TableBlock, names: Names, how: Callable[[JudgedEntry | None], str]) -> list[str]:
    """The cells of one row as text."""
    return [how(block.cells.get((names, column))) for column in block.columns]


def _markdown(table: ScoreTable, layout: TableLayout) -> str:
    """A heading, a table and its caption for each block."""
    parts = []
    for block in blocks(table, layout):
        sides = ["---"] * len(block.heads) + ["---:"] * len(block.columns)
        parts.append(f"**{_plain(', '.join(filter(None, (table.title, block.title))))}**\n")
        parts += [_line(list(map(_plain, block.column_titles))), _line(sides)]
        parts += [_line([*map(_plain, names), *_cells(block, names, _markdown_cell)]) for names in block.rows]
        parts.append(f"\n{_plain(table.caption(block.judged))}\n")
    return "\n".join(parts)


def _plain(text: str) -> str:
    """Text for Markdown, with everything escaped that means something there."""
    escaped = re.sub(r"([\\`*_|\[\]#~])", r"\\\1", " ".join(text.split()))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _line(cells: Sequence[str]) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def _markdown_cell(each: JudgedEntry | None) -> str:
    """A cell: the best in bold, what cannot be told from it underlined."""
    text = cell_text(each)
    if each is not None and each.mark == BEST:
        return f"**{text}**"
    return f"<u>{text}</u>" if each is not None and each.mark == ALIKE else text
