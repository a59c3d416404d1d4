"""Runs side by side: what each scored, what it sent, and what it disclosed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path

from rich.table import Table

from isthmus.errors import IsthmusError
from isthmus.run import plots
from isthmus.run.disclosure import members, read_flows
from isthmus.run.folder import RunFolder, write_atomic
from isthmus.run.plots import bytes_text, metric_label, score_text
from isthmus.run.report import (
    curves,
    duration,
    epsilon_text,
    epsilons,
    figure,
    page,
    primary,
    score,
    silo_names,
    steps_of,
    table,
)


@dataclass(frozen=True)
class Row:
    """One run; bytes and seconds are those of one seed (the mean, where there are several)."""

    name: str
    method: str
    data: str
    split: str
    silos: int
    metric: str
    test: float | None
    deviation: float | None
    seeds: int
    bytes: int
    bytes_per_step: float
    seconds: float | None
    epsilon: float
    path: str


def comparison(folders: Sequence[RunFolder]) -> list[Row]:
    """A row for each run, in the order given; runs of the same method are told apart by their folder's name."""
    if not folders:
        raise IsthmusError("There is nothing to compare; give the folders of two or more finished runs.")
    used = [str(folder.metrics.get("method", "run")) for folder in folders]
    names = [f"{m} ({f.path.name})" if used.count(m) > 1 else m for m, f in zip(used, folders, strict=True)]
    names = [f"{n} #{i + 1}" if names.count(n) > 1 else n for i, n in enumerate(names)]
    return [_row(name, folder) for name, folder in zip(names, folders, strict=True)]


def _row(name: str, folder: RunFolder) -> Row:
    metric, data, seeds = primary(folder), folder.config.get("data", {}), len(members(folder))
    total, seconds = sum(flow.bytes for flow in read_flows(folder)), folder.metrics.get("seconds")
    return Row(
        name,
        str(folder.metrics.get("method", "run")),
        str(folder.metrics.get("data") or data.get("name", "–")),
        str(data.get("split", "–")),
        int(folder.metrics.get("silos") or data.get("silos", 0)),
        metric,
        score(folder, "test", metric),
        score(folder, "test_std", metric),
        len(folder.metrics.get("seeds") or [0]),
        round(total / seeds),
        total / steps_of(folder),
        None if seconds is None else float(seconds),
        max(epsilons(folder).values(), default=0.0),
        str(folder.path),
    )


_COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("Run", lambda row: row.name),
    ("Data", lambda row: row.data),
    ("Silos", lambda row: str(row.silos)),
    ("Test", lambda row: _test(row)),
    ("Bytes", lambda row: bytes_text(row.bytes)),
    ("Per step", lambda row: bytes_text(row.bytes_per_step)),
    ("Time", lambda row: duration(row.seconds)),
    ("Worst ε", lambda row: epsilon_text(row.epsilon)),
)


def _test(row: Row) -> str:
    text = score_text(row.metric, row.test)
    return text if row.deviation is None else f"{text.removesuffix(' %')} ± {score_text(row.metric, row.deviation)}"


def cautions(rows: Sequence[Row]) -> list[str]:
    """What keeps the rows from being compared like with like, as sentences."""
    said = []
    for what, key in (("on different data", "data"), ("with different splits", "split"), ("judged by different metrics", "metric")):
        values = list(dict.fromkeys(str(getattr(row, key)) for row in rows))
        if len(values) > 1:
            said.append(f"These runs are {what} ({', '.join(values)}): do not compare their scores directly.")
    return said


def comparison_table(rows: Sequence[Row]) -> Table:
    """The rows for the terminal."""
    from rich.text import Text

    out = Table(caption=" ".join(cautions(rows)) or None, caption_justify="left")
    for place, (title, _) in enumerate(_columns(rows)):
        out.add_column(title, justify="left" if place < 2 else "right", no_wrap=place != 1)
    for row in rows:
        out.add_row(*(Text(text(row)) for _, text in _columns(rows)))
    return out


def _columns(rows: Sequence[Row]) -> list[tuple[str, Callable[[Row], str]]]:
    """The columns; the score's is named by the metric where all rows share it, else each row names its own."""
    metrics = {row.metric for row in rows}
    if len(metrics) == 1:
        title = f"Test {metric_label(rows[0].metric)}"
        return [(title if name == "Test" else name, text) for name, text in _COLUMNS]
    own: Callable[[Row], str] = lambda row: f"{_test(row)} {metric_label(row.metric)}"  # noqa: E731
    return [(name, own if name == "Test" else text) for name, text in _COLUMNS]


def write_comparison(folders: Sequence[RunFolder], out: Path) -> Path:
    """Write ``comparison.html`` and ``comparison.json`` into the folder ``out``; returns the page's path."""
    rows = comparison(folders)
    out.mkdir(parents=True, exist_ok=True)
    plain = [asdict(row) | {"epsilon": "inf" if row.epsilon == float("inf") else row.epsilon} for row in rows]
    text = json.dumps({"runs": plain, "cautions": cautions(rows)}, indent=2)
    write_atomic(out / "comparison.json", (text + "\n").encode())
    title = f"{len(rows)} runs on {', '.join(dict.fromkeys(row.data for row in rows))}"
    body = [f"<h1>{escape(title)}</h1>", _warnings(rows), _overview(rows), _figures(folders, rows), _silos(folders, rows)]
    write_atomic(out / "comparison.html", page(title, "\n".join(body)).encode())
    return out / "comparison.html"


def _warnings(rows: Sequence[Row]) -> str:
    points = "".join(f"<li>{escape(sentence)}</li>" for sentence in cautions(rows))
    return f'<div class="box"><ul>{points}</ul></div>' if points else ""


def _overview(rows: Sequence[Row]) -> str:
    columns = _columns(rows)
    many = " Bytes and time are means over seeds; ± is the deviation over seeds." if any(r.seeds > 1 for r in rows) else ""
    note = f"Bytes as the ledger counts them, once for each receiving party. ε = ∞: something left unprotected.{many}"
    return table([name for name, _ in columns], [[text(row) for _, text in columns] for row in rows], left=2, note=note)


def _figures(folders: Sequence[RunFolder], rows: Sequence[Row]) -> str:
    """Score against bytes, and validation curves."""
    metric = rows[0].metric
    points = {row.name: (row.test, row.deviation, row.bytes_per_step) for row in rows}
    found = {row.name: curves(folder) for row, folder in zip(rows, folders, strict=True)}
    lines = {name: (curve.epochs, curve.valid) for name, curve in found.items()}
    unlike = " The runs differ in data or metric." if cautions(rows) else ""
    return "\n".join(
        [
            "<h2>Score and price</h2>",
            figure(plots.score_against_bytes(points, metric), f"Test score against bytes sent per step.{unlike}"),
            "<h2>Training</h2>",
            figure(plots.overlaid(lines, metric), f"Validation score by epoch.{unlike}"),
        ]
    )


def _silos(folders: Sequence[RunFolder], rows: Sequence[Row]) -> str:
    """Test scores of each silo, run by run."""
    tests = {
        row.name: {silo: score(folder, "test", row.metric, silo) for silo in silo_names(folder)}
        for row, folder in zip(rows, folders, strict=True)
    }
    silos = sorted({silo for scores in tests.values() for silo in scores}, key=plots.party_order)
    if not silos:
        return ""
    lines = [[silo, *(score_text(row.metric, tests[row.name].get(silo)) for row in rows)] for silo in silos]
    note = "A dash: the run has no score for that silo (a merged run has only one)."
    drawn = figure(plots.silo_dots(tests, rows[0].metric), "Test scores silo by silo.")
    return "\n".join(["<h2>Silo by silo</h2>", table(["Silo", *tests], lines, note=note), drawn])
