"""The report's sections on traffic: bytes by kind and by party, and what each party saw, as markup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from isthmus.core.kinds import SERVER_NAME, Kind, owner_of_devices
from isthmus.report import plots
from isthmus.report.disclosure import Paragraph, Seen
from isthmus.report.page import Cell, figure, table
from isthmus.runs.folder import RunFolder
from isthmus.runs.plain_words import WORDS
from isthmus.runs.summary import Flow, carried_bytes, is_merged, members, pair_bytes, steps_of
from isthmus.runs.text import bytes_text, party_order

_NAMED = 40  # parties that the drawing of who sent to whom has by name


def traffic(folder: RunFolder, flows: Sequence[Flow]) -> str:
    """The section as markup: bytes by kind, per step, and from whom to whom; with several hosts also bytes moved."""
    if not flows:
        return "<h2>What crossed</h2><p>Nothing: the ledger is empty.</p>"
    steps, carried = steps_of(folder), carried_bytes(folder)
    by_kind: dict[str, list[Flow]] = {}
    for f in flows:
        by_kind.setdefault(f.kind, []).append(f)
    sizes = {kind: sum(f.bytes for f in each) for kind, each in by_kind.items()}
    sizes = dict(sorted(sizes.items(), key=lambda item: -item[1]))
    head = ["Kind", "Messages", "Rows", "Before training", "Per step", "Bytes"] + ["Carried"] * bool(carried)
    rows = [_amounts(kind, by_kind[kind], steps, carried) for kind in sizes]
    shown = table(head, rows, _traffic_note(folder), total=_amounts("all", flows, steps, carried))
    kinds = figure(
        plots.kind_bars({WORDS[Kind(kind)].name: size for kind, size in sizes.items()}), "Bytes by kind of message."
    )
    parties = figure(
        plots.heat_map(by_party(pair_bytes(folder))), "Bytes from each party (row) to each party (column)."
    )
    return f"<h2>What crossed</h2>{shown}{kinds}{parties}"


def by_party(sizes: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """Bytes by sender and receiver; of many silos the busiest by name, and all others as one."""
    busy: dict[str, int] = {}
    for pair, size in sizes.items():
        for name in pair:
            busy[name] = busy.get(name, 0) + size
    first = sorted(busy, key=lambda name: (name != SERVER_NAME, -busy[name], party_order(name)))
    name_of = {name: name for name in first}
    if len(first) > _NAMED + 1:
        kind = "parties" if any(owner_of_devices(name) for name in first) else "silos"
        name_of |= dict.fromkeys(first[_NAMED:], f"{len(first) - _NAMED:,} other {kind}")
    pairs: dict[tuple[str, str], int] = {}
    for (sender, receiver), size in sizes.items():
        pair = name_of[sender], name_of[receiver]
        pairs[pair] = pairs.get(pair, 0) + size
    return pairs


def _traffic_note(folder: RunFolder) -> str:
    """The note below the table of bytes: how they are counted."""
    seeds = len(members(folder))
    note = f"Bytes count once for each receiving party; per step: all bytes over {steps_of(folder):,} steps."
    note += f" Sums over {seeds} seeds." if seeds > 1 else ""
    note += " Carried: what really moved between hosts." if carried_bytes(folder) else ""
    merged = " Here the only silo and the server were one place, so none of this left it."
    return note + merged * is_merged(folder)


def _amounts(kind: str, flows: Sequence[Flow], steps: int, carried: Mapping[str, int]) -> list[str | Cell]:
    """One row of the table of bytes: the sums over ``flows``; ``kind`` is ``all`` for the totals."""
    total, setup = sum(f.bytes for f in flows), sum(f.setup for f in flows)
    counts = [f"{sum(f.messages for f in flows):,}", f"{sum(f.rows for f in flows):,}"]
    moved = sum(carried.values()) if kind == "all" else carried.get(kind, 0)
    name = "all" if kind == "all" else Cell(WORDS[Kind(kind)].name, kind)
    line: list[str | Cell] = [name, *counts, _size(setup), bytes_text(total / steps), _size(total)]
    return [*line, _size(moved)] if carried else line


def _size(size: int) -> Cell:
    return Cell(bytes_text(size), f"{size:,} bytes")


def sheet(paragraphs: Sequence[Paragraph], seeds: int, place: str = "") -> str:
    """What each party saw, as markup; ``place`` is the sentence on where the server ran, if any."""
    many = f" Amounts are sums over {seeds} seeds." if seeds > 1 else ""
    where = f" {escape(place)}" if place else ""
    parts = [f"<h2>What each party saw</h2><p>Disclosure, from the ledger alone.{many}{where}</p>"]
    for part in paragraphs:
        parts.append(f"<h3>{escape(part.title)}</h3><p>{escape(part.lead)}</p>")
        parts += ["<dl>", *map(_seen, part.seen), "</dl>"] if part.seen else []
    return "\n".join(parts)


def _seen(seen: Seen) -> str:
    """One kind of message that a party received, as markup."""
    amounts = f"From {seen.sender}: {seen.amounts}. {seen.protection}"
    text = f'<dd>{escape(seen.meaning)}</dd><dd class="small">{escape(amounts)}</dd>'
    return f'<div class="seen"><dt>{escape(_title(seen.kind))}</dt>{text}</div>'


def _title(kind: str) -> str:
    """The name of a kind of message in plain words, as a title."""
    name = WORDS[Kind(kind)].name
    return name[:1].upper() + name[1:]
