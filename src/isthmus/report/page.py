"""A page and its parts as markup: tables, boxes, figures, tiles; the words given to them are escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib import resources
from string import Template
from typing import NamedTuple


class Cell(NamedTuple):
    """Text of a table cell; ``hint`` shows on hover, ``tone`` is ``good`` or ``bad``."""

    text: str
    hint: str = ""
    tone: str = ""


Line = Sequence[str | Cell]


def page(title: str, body: str) -> str:
    """A whole page around a body of markup."""
    template = resources.files("isthmus.report").joinpath("report.html").read_text(encoding="utf-8")
    return Template(template).substitute(title=escape(title), body=body)


def table(head: Sequence[str], rows: Sequence[Line], note: str = "", left: int = 1, total: Line = ()) -> str:
    """A table; the first ``left`` columns are text, the others numbers; all text is escaped."""

    def line(cells: Line, tag: str, kind: str = "") -> str:
        out = []
        for place, cell in enumerate(cells):
            text, hint, tone = cell if isinstance(cell, Cell) else Cell(cell)
            names = " ".join(filter(None, ["l" if place < left else "", tone]))
            extra = (f' class="{names}"' if names else "") + (f' title="{escape(hint)}"' if hint else "")
            out.append(f"<{tag}{extra}>{escape(text)}</{tag}>")
        return f"<tr{kind}>{''.join(out)}</tr>"

    body = "".join(line(row, "td") for row in rows) + (line(total, "td", ' class="sum"') if total else "")
    caption = f"<caption>{escape(note)}</caption>" if note else ""
    top = f"<thead>{line(head, 'th')}</thead>" if any(head) else ""
    return f'<div class="scroll"><table>{caption}{top}<tbody>{body}</tbody></table></div>'


def box(notes: Sequence[str]) -> str:
    """Sentences that the reader must not miss; nothing where there are none."""
    points = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<div class="box"><ul>{points}</ul></div>' if notes else ""


def figure(svg: str, caption: str) -> str:
    """A drawing with what it shows."""
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def tiles(facts: Sequence[tuple[str, str]]) -> str:
    """Key figures: (value, what it is)."""
    each = (f"<b>{escape(value)}</b><span>{escape(what)}</span>" for value, what in facts)
    return '<div class="tiles">' + "".join(f'<div class="tile">{tile}</div>' for tile in each) + "</div>"
