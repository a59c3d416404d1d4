"""Pages and their parts as HTML: tables, boxes, figures, tiles. Text that is passed in is escaped here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from importlib import resources
from string import Template
from typing import NamedTuple


class Cell(NamedTuple):
    """A cell of an HTML table: its text; ``hint`` shows on hover.

    ``tone`` is ``good``, ``bad``, ``best``, ``alike`` or empty; ``link``, a path from the page, makes the text a link.
    """

    text: str
    hint: str = ""
    tone: str = ""
    link: str = ""


CellRow = Sequence[str | Cell]  # one row of an HTML table


def page(title: str, body: str, style: str = "") -> str:
    """A whole HTML page with the given body; ``style`` is CSS of its own, beside that of all pages."""
    template = resources.files("isthmus.report").joinpath("report.html").read_text(encoding="utf-8")
    return Template(template).substitute(title=escape(title), body=body, style=style)


def with_contents(top: str, body: str) -> str:
    """The ``top`` of a page, a list of links to the sections of its body, and the body, whose headings get anchors."""
    titles = re.findall(r"<h2>(.*?)</h2>", body)
    for number, title in enumerate(titles, 1):
        body = body.replace(f"<h2>{title}</h2>", f'<h2 id="section-{number}">{title}</h2>', 1)
    links = "".join(f'<li><a href="#section-{number}">{title}</a></li>' for number, title in enumerate(titles, 1))
    return f'{top}\n<nav aria-label="Contents"><ol>{links}</ol></nav>\n{body}'


def table(head: Sequence[str], rows: Sequence[CellRow], note: str = "", left: int = 1, total: CellRow = ()) -> str:
    """An HTML table; the first ``left`` columns hold text, the others numbers; ``total`` is a last row of sums."""

    def line(cells: CellRow, tag: str, kind: str = "") -> str:
        out = []
        for place, cell in enumerate(cells):
            text, hint, tone, link = cell if isinstance(cell, Cell) else Cell(cell)
            shown = f'<a href="{escape(link)}">{escape(text)}</a>' if link else escape(text)
            names = " ".join(filter(None, ["l" if place < left else "", tone]))
            extra = (f' class="{names}"' if names else "") + (f' title="{escape(hint)}"' if hint else "")
            out.append(f"<{tag}{extra}>{shown}</{tag}>")
        return f"<tr{kind}>{''.join(out)}</tr>"

    body = "".join(line(row, "td") for row in rows) + (line(total, "td", ' class="sum"') if total else "")
    caption = f"<caption>{escape(note)}</caption>" if note else ""
    top = f"<thead>{line(head, 'th')}</thead>" if any(head) else ""
    return f'<div class="scroll"><table>{caption}{top}<tbody>{body}</tbody></table></div>'


def box(notes: Sequence[str]) -> str:
    """A box of sentences that the reader must not miss; empty where there are none."""
    points = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<div class="box"><ul>{points}</ul></div>' if notes else ""


def figure(svg: str, caption: str) -> str:
    """A drawing with its caption."""
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def tiles(facts: Sequence[tuple[str, str]]) -> str:
    """Tiles of key figures: (value, what it is)."""
    each = (f"<b>{escape(value)}</b><span>{escape(what)}</span>" for value, what in facts)
    return '<div class="tiles">' + "".join(f'<div class="tile">{tile}</div>' for tile in each) + "</div>"
