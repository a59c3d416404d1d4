"""The disclosure sheet as a page of HTML that prints on two sheets of A4; every text is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path

from isthmus.core.files import write_atomic, writing
from isthmus.report.page import CellRow, page, table
from isthmus.report.sheet import DisclosureSheet, KindOnSheet
from isthmus.report.sheet_facts import Line
from isthmus.runs.text import bytes_text, count_text

_MANY = 12  # parties up to which each has a line of its own
_DATA_HEAD = ["What", "Computed from", "From → to", "How much", "How it left", "ε of a node", "What an attack got"]


def write_sheet(sheet: DisclosureSheet, path: Path) -> Path:
    """Write the sheet's page and return its path."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    style = resources.files("isthmus.report").joinpath("sheet.css").read_text(encoding="utf-8")
    write_atomic(path, page(f"Disclosure: {sheet.title}", _body(sheet), style).encode())
    return path


def _body(sheet: DisclosureSheet) -> str:
    """All sections, in order."""
    state = "Before the run: what it would disclose, estimated" if sheet.planned else "After the run: what it disclosed"
    whose = f" Sheet of {sheet.party}: what it sent and received, and no more." if sheet.party else ""
    parts = [
        f'<p class="state">{state}.{escape(whose)}</p><h1>Disclosure: {escape(sheet.title)}</h1>',
        f'<p class="lead">{escape(sheet.verdict)}</p>',
        _section("What it is for, and with what", _lines([*sheet.about, *sheet.columns])),
        _section("Parties", _parties(sheet) + _lines(sheet.server)),
        _section("What leaves, and to whom", _leaving(sheet)),
        _section("What bounds what it tells", _promises(sheet)),
        _section("What attackers get", _attacks(sheet)),
        _section("What is not known before the run", _points(sheet.unknown)) if sheet.unknown else "",
        _section("Notes of the run", _points(sheet.notes)) if sheet.notes else "",
        _section("How long it is kept", _lines(sheet.retention)),
        _section("Which files this is about", _hashes(sheet)),
        _section("Signatures", _signatures(sheet)),
    ]
    return "\n".join(parts)


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def _lines(lines: Sequence[Line]) -> str:
    """Facts under their names; what nobody has said gets a line to write on."""
    each = (
        f"<dt>{escape(line.term)}</dt><dd>{escape(line.text)}{_blank() if line.blank else ''}</dd>" for line in lines
    )
    return f'<dl class="facts">{"".join(each)}</dl>'


def _blank() -> str:
    return '<span class="blank"></span>'


def _parties(sheet: DisclosureSheet) -> str:
    """The parties with their sizes: a line each, or of many as a block of columns."""
    texts = []
    for party in sheet.parties:
        size = "" if party.nodes is None else f" {party.nodes:,} nodes"
        learns = "" if party.training is None else f", {party.training:,} to learn from"
        known = f"; certificate {party.certificate}" if party.certificate else ""
        known += f"; policy {party.policy}" if party.policy else ""
        texts.append(f"<li><b>{escape(party.name)}</b>{escape(size + learns + known)}</li>")
    shape = " many" if len(texts) > _MANY else " long" if any(party.certificate for party in sheet.parties) else ""
    return f'<ul class="parties{shape}">{"".join(texts)}</ul>'


def _leaving(sheet: DisclosureSheet) -> str:
    """The table of what carries nodes' data, and the shorter one of names, ids, counts and scores."""
    if not sheet.leaving and not sheet.beside:
        return "<p>Nothing leaves a silo.</p>"
    rows = [_row(each) for each in sheet.leaving]
    data = table(_DATA_HEAD, rows, left=len(_DATA_HEAD)) if rows else ""
    points = (
        f"<li><b>{escape(_capital(each.name))}</b> ({escape(_legs(each))}; {_amount(each)})</li>"
        for each in sheet.beside
    )
    beside = f'<p>Beside that, covered by no ε:</p><ul class="flat">{"".join(points)}</ul>' if sheet.beside else ""
    return f"{data}{beside}"


def _row(each: KindOnSheet) -> CellRow:
    """The cells of one kind of message that carries nodes' data."""
    how = "; ".join(each.protection)
    return [
        _capital(each.name), each.source, _legs(each), _amount(each), how, each.epsilon, each.recovered
    ]  # fmt: skip


def _legs(each: KindOnSheet) -> str:
    """From whom to whom, one leg after the other; a line does not end within one."""
    return "; ".join(leg.replace(" → ", "\u00a0→\u00a0") for leg in each.legs)


def _amount(each: KindOnSheet) -> str:
    """Messages and bytes in words."""
    about = "~ " if each.estimated else ""
    return f"{about}{count_text(each.messages, 'message')}, {bytes_text(each.bytes)}"


def _promises(sheet: DisclosureSheet) -> str:
    """The table of guarantees."""
    if not sheet.promises:
        return "<p>Nothing leaves a silo, so that there is nothing to bound.</p>"
    rows: list[CellRow] = [[_capital(each.name), each.text, each.about] for each in sheet.promises]
    return table(["Of", "ε", "For whose data, and in which sense"], rows, left=3)


def _attacks(sheet: DisclosureSheet) -> str:
    """The attacks that were tried, and those that were not."""
    if sheet.planned:
        return "<p>None was tried: there is nothing to attack before the run.</p>"
    if not sheet.audited:
        return "<p>None was tried on this run. <code>isthmus audit</code> replays it and attacks what left.</p>"
    rows: list[CellRow] = [[each.got, each.read] for each in sheet.attacks]
    tried = table(["What was inferred", "From"], rows, left=2) if rows else "<p>None was tried on what left.</p>"
    rest = f"<p>Not tried: {escape('; '.join(sheet.not_tried))}.</p>" if sheet.not_tried else ""
    return tried + rest


def _points(texts: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>"


def _hashes(sheet: DisclosureSheet) -> str:
    """The hashes of the run's files."""
    rows: list[CellRow] = [[name, value] for name, value in sheet.hashes.items()]
    return f'<div class="hashes">{table(["File", "SHA-256"], rows, left=2)}</div>'


def _signatures(sheet: DisclosureSheet) -> str:
    """A field for each party to sign in."""
    many = len(sheet.signatures) > _MANY
    fields = ("Name, date, signature",) if many else ("Name and office", "Place and date", "Signature")
    lines = "".join(f"<span>{field}</span>" for field in fields)
    each = (f'<div class="sign"><b>{escape(name)}</b>{lines}</div>' for name in sheet.signatures)
    return f'<div class="signs{" many" if many else ""}">{"".join(each)}</div>'


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
