"""What the page of one run shows: how it stands, its curves, what has crossed, and the federation as a drawing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from isthmus.core.errors import IsthmusError
from isthmus.page.books import Books, book_signs
from isthmus.page.charts import COLOURS, DrawnCurve, bar, chart
from isthmus.page.crossed import Crossed, by_epoch, crossed, so_far, words_of
from isthmus.page.curves import live_curves
from isthmus.page.federation_drawing import MOST, edges, federation
from isthmus.page.sections import Section, section
from isthmus.page.shelf import bounded, stamp
from isthmus.page.shown_runs import ShownRun, has_checkpoint, seed_folders
from isthmus.runs.status import HostStatus, status_of
from isthmus.runs.text import bytes_text, count_text, duration, epsilon_text, metric_label, score_text

_MOST_METRICS = 64_000_000
_MOST_ROWS = 40  # parties and edges in a table


@dataclass(frozen=True)
class Picture:
    """A drawing with its legend: names and numbers of colours."""

    svg: Markup
    legend: list[tuple[str, int]]
    note: str = ""


@dataclass(frozen=True)
class RunView:
    """All parts of a run's page."""

    run: ShownRun
    tiles: list[tuple[str, str]]
    hosts: list[HostStatus]
    notes: list[str]
    loss: Section
    valid: Section
    sent: Section
    traffic: Section
    drawing: Section
    parties: list[str]
    resumable: bool


def view_of(path: Path, run: ShownRun, books: Books) -> RunView:
    """Everything that the page of a run shows."""
    metrics = section(lambda: _metrics(path)).value or {}
    book = section(lambda: books.of(path))
    sums = section(lambda: _sums(book))
    live = section(lambda: _live(path, run, metrics, sums.value)).value
    return RunView(
        run,
        section(lambda: _tiles(run, metrics, live[0] if live else sums.value, _newest_host(path))).value or [],
        section(lambda: _hosts(path)).value or [],
        [str(note) for note in metrics.get("notes") or []][:_MOST_ROWS],
        section(lambda: _loss(path)),
        section(lambda: _valid(path, run, metrics)),
        section(lambda: _sent(book)),
        section(lambda: _traffic(sums, book, live)),
        section(lambda: _drawing(sums, metrics)),
        sorted(each.parent.name for each in path.glob("parties/*/config.toml")),
        has_checkpoint(path),
    )


def signature(path: Path, run: ShownRun) -> str:
    """What changes when anything on the page of a run does."""
    parts = [path, *seed_folders(path)]
    files = [stamp(each) for part in parts for each in sorted(part.glob("status-host-*.json"))]
    files += [stamp(part / name) for part in parts for name in ("metrics.jsonl", "metrics.json")]
    return f"{hash((run.state, run.problem, *files, book_signs(path))):x}"


def _metrics(path: Path) -> dict[str, Any]:
    """The final metrics; empty before a run has ended."""
    file = path / "metrics.json"
    table = json.loads(bounded(file, _MOST_METRICS).read_bytes()) if file.is_file() else {}
    return table if isinstance(table, dict) else {}


def _hosts(path: Path) -> list[HostStatus]:
    """What hosts tell; of several seeds, those of the seed that told last."""
    return status_of(path).hosts


def _newest_host(path: Path) -> HostStatus | None:
    return max(section(lambda: _hosts(path)).value or [], key=lambda host: host.epoch, default=None)


def _tiles(
    run: ShownRun, metrics: dict[str, Any], sums: Crossed | None, host: HostStatus | None
) -> list[tuple[str, str]]:
    """Figures to begin with: value, and what it is."""
    total = sums.total if sums else run.bytes  # which metrics tell where the ledger is damaged
    size = "–" if total is None else bytes_text(total)
    if not metrics or run.going:
        epoch = f"{run.epoch:,} of {run.epochs:,}" if run.epochs else f"{run.epoch:,}"
        loss = "–" if run.loss is None else f"{run.loss:.4g}"
        rate = f"{host.steps_per_second:.3g}" if host else "–"
        return [(epoch, "epochs"), (loss, "training loss"), (rate, "steps per second"), (size, "crossed so far")]
    seeds = metrics.get("seeds") or []
    deviation = (metrics.get("test_std") or {}).get(run.metric)
    spread = f", ± {score_text(run.metric, deviation)} over {len(seeds)} seeds" if deviation is not None else ""
    tiles = [(score_text(run.metric, run.score), f"test {metric_label(run.metric)}{spread}")]
    if run.bytes is None:
        tiles.append(("all data", "in one place"))
    else:
        tiles.append((size, f"crossed{f' in {len(seeds)} seeds' if len(seeds) > 1 else ''}"))
        tiles.append(
            (f"ε = {'–' if run.epsilon is None else epsilon_text(run.epsilon)}", "privacy loss of one node, at worst")
        )
    tiles.append((f"{run.epoch:,}", "epochs"))
    return [*tiles, (duration(metrics.get("seconds")), "of training")]


def _loss(path: Path) -> Picture:
    found = live_curves(path)
    svg = chart("loss", [DrawnCurve("training loss", found.steps, found.loss)], "step", lambda value: f"{value:.4g}")
    if not svg:
        raise IsthmusError("No step is written down yet; losses come with the end of every epoch.")
    return Picture(svg, [], found.note)


def _valid(path: Path, run: ShownRun, metrics: dict[str, Any]) -> Picture:
    """Validation scores of all silos together, and of single silos as thin lines where they are few."""
    found = live_curves(path, run.metric)
    names = [*(metrics.get("silo_nodes") or {})]
    few = found.silos if 1 < len(found.silos) < COLOURS else []
    silos = [
        DrawnCurve(names[i] if i < len(names) else f"silo-{i}", found.epochs, each, i + 1, thin=True)
        for i, each in enumerate(few)
    ]
    lines = [*silos, DrawnCurve("all silos", found.epochs, found.valid)]
    svg = chart("validation", lines, "epoch", lambda value: score_text(found.metric, value, digits=0))
    if not svg:
        raise IsthmusError("No validation is written down yet.")
    legend = [(line.name, line.colour) for line in lines] if few else []
    return Picture(svg, legend, f"Validation {metric_label(found.metric)}. {found.note}".strip())


def _sums(book: Section) -> Crossed:
    if book.why_not:
        raise IsthmusError(book.why_not)
    if book.value.table is None:
        raise IsthmusError(" ".join(book.value.notes))
    return crossed(book.value.table)


def _sent(book: Section) -> Picture:
    """Bytes of each kind that had crossed by the end of every epoch."""
    if book.value is None or book.value.table is None:
        raise IsthmusError(book.why_not or " ".join(book.value.notes))
    epochs, curves = by_epoch(book.value.table)
    shown = list(curves.items())[:COLOURS]
    lines = [DrawnCurve(words_of(kind), epochs, sizes, number) for number, (kind, sizes) in enumerate(shown)]
    svg = chart("crossed", lines, "epoch", bytes_text, zero=True)
    if not svg:
        raise IsthmusError("Nothing has crossed: the ledger is empty.")
    rest = f"The {len(curves) - COLOURS} kinds with fewer bytes are left out." if len(curves) > COLOURS else ""
    return Picture(svg, [(line.name, line.colour) for line in lines], rest)


def _live(path: Path, run: ShownRun, metrics: dict[str, Any], sums: Crossed | None) -> tuple[Crossed, int] | None:
    """What the hosts of a run that has not finished tell that has crossed, and up to which step.

    None where ``sums`` of the last checkpoint have more. Of several seeds each host tells of its own alone, so that
    checkpoints serve.
    """
    if (metrics and not run.going) or len(seed_folders(path)) > 1:
        return None
    found = so_far(_hosts(path))
    return None if found and sums and sums.total > found[0].total else found


def _traffic(sums: Section, book: Section, live: tuple[Crossed, int] | None) -> dict[str, Any]:
    """Tables of kinds and of parties with their bars, and sentences on what the sums cover."""
    found, notes = (_known(sums), [*book.value.notes]) if live is None else (live[0], [_counted(live[1], sums, book)])
    parties = found.parties or (sums.value.parties if sums.value else [])
    most = max((each.bytes for each in found.kinds), default=1)
    busy = sorted(parties, key=lambda each: -(each.sent + each.received))
    top = max((max(each.sent, each.received) for each in busy), default=1)
    return {
        "kinds": [(each, bar(each.bytes / most)) for each in found.kinds],
        "total": found.total,
        "parties": [(each, bar(each.sent / top), bar(each.received / top)) for each in busy[:_MOST_ROWS]],
        "notes": [*notes, *_left_out(busy, "party", "parties")],
    }


def _counted(step: int, sums: Section, book: Section) -> str:
    """Sentences on when tables that follow a run were counted, and what is as old as the last checkpoint."""
    older = f" {' '.join(book.value.notes)}" if sums.value else ""
    return f"Counted at step {step:,}; the curve, the drawing and the ledger with every checkpoint.{older}"


def _drawing(sums: Section, metrics: dict[str, Any]) -> dict[str, Any]:
    """The federation as a drawing, and its edges as a table."""
    found = _known(sums)
    if not found.parties:
        raise IsthmusError("Nothing has crossed: the ledger is empty.")
    every = edges(found)
    note = "" if len(found.parties) <= MOST else f"The {MOST} busiest of {len(found.parties):,} parties are drawn."
    return {
        "svg": federation(found, metrics.get("silo_nodes") or {}),
        "edges": every[:_MOST_ROWS],
        "notes": [each for each in (note, *_left_out(every, "edge", "edges")) if each],
        "sized": bool(metrics.get("silo_nodes")),
    }


def _known(sums: Section) -> Crossed:
    if sums.why_not:
        raise IsthmusError(sums.why_not)
    found: Crossed = sums.value
    return found


def _left_out(rows: Sequence[Any], one: str, many: str) -> list[str]:
    more = len(rows) - _MOST_ROWS
    return [f"{count_text(more, one, many)} with fewer bytes are in the ledger."] if more > 0 else []
