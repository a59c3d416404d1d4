"""Several runs compared, as a table, a page and JSON: what each scored, sent and disclosed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path

from rich.table import Table
from rich.text import Text

from isthmus.audit.findings import ATTACK_NOTE, attack_error, attack_text
from isthmus.core.errors import IsthmusError
from isthmus.core.files import write_atomic, writing
from isthmus.report import compare_plots
from isthmus.report.network import price
from isthmus.report.page import box, figure, page, table
from isthmus.runs.config import link_of
from isthmus.runs.folder import RunFolder
from isthmus.runs.summary import (
    curves,
    data_name,
    epsilons,
    final_score,
    is_merged,
    members,
    primary,
    read_flows,
    silo_names,
    steps_of,
)
from isthmus.runs.text import bytes_text, duration, epsilon_text, metric_label, score_text, spread_text

ShownColumn = tuple[str, Callable[["ComparedRun"], str]]  # title, and the text of a run's cell


@dataclass(frozen=True)
class ComparedRun:
    """The figures of one run; with several seeds bytes and seconds are means over them.

    A ``merged`` run held all data in one place and sent nothing to other parties, so that its bytes are None.
    """

    name: str
    method: str
    data: str
    split: str
    silos: int
    merged: bool
    metric: str
    test: float | None
    deviation: float | None
    seeds: int
    bytes: int | None
    bytes_per_step: float | None
    seconds: float | None
    epsilon: float
    attack: (
        float | str | None
    )  # the attack's error as a share of a guess's error; words where no row left; None: not audited
    path: str


def comparison(folders: Sequence[RunFolder]) -> list[ComparedRun]:
    """The figures of each run, in the order given; runs of one method are named by their folders too."""
    if not folders:
        raise IsthmusError("There is nothing to compare; give the folders of two or more finished runs.")
    used = [str(folder.metrics.get("method", "run")) for folder in folders]
    names = [f"{m} ({f.path.name})" if used.count(m) > 1 else m for m, f in zip(used, folders, strict=True)]
    names = [f"{n} #{i + 1}" if names.count(n) > 1 else n for i, n in enumerate(names)]
    return [_row(name, folder) for name, folder in zip(names, folders, strict=True)]


def _row(name: str, folder: RunFolder) -> ComparedRun:
    """The figures of the run in a folder."""
    metric, data, merged = primary(folder), folder.config.get("data", {}), is_merged(folder)
    total, seconds = sum(flow.bytes for flow in read_flows(folder)), folder.metrics.get("seconds")
    return ComparedRun(
        name=name,
        method=str(folder.metrics.get("method", "run")),
        data=data_name(folder),
        split=str(data.get("split", "–")),
        silos=int(data.get("silos") or folder.metrics.get("silos") or 0),
        merged=merged,
        metric=metric,
        test=final_score(folder, "test", metric),
        deviation=final_score(folder, "test_std", metric),
        seeds=len(folder.metrics.get("seeds") or [0]),
        bytes=None if merged else round(total / len(members(folder))),
        bytes_per_step=None if merged else total / steps_of(folder),
        seconds=None if seconds is None else float(seconds),
        epsilon=float("inf") if merged else max(epsilons(folder).values(), default=0.0),
        attack=attack_error(folder),
        path=str(folder.path),
    )


def cautions(rows: Sequence[ComparedRun]) -> list[str]:
    """Sentences about differences (data, split, silos, metric) that make the runs' scores incomparable."""
    said = []
    named = {"data": "data", "split": "splits", "silos": "numbers of silos", "metric": "metrics"}
    for key, what in named.items():
        values = list(dict.fromkeys(str(getattr(row, key)) for row in rows))
        if len(values) > 1:
            said.append(f"The runs have different {what} ({', '.join(values)}): their scores do not compare.")
    return said


def _columns(rows: Sequence[ComparedRun]) -> list[ShownColumn]:
    """The columns of the table; data and metric are columns only where runs differ in them."""
    one_metric, one_data = (len({getattr(row, key) for row in rows}) == 1 for key in ("metric", "data"))
    title = f"Test {metric_label(rows[0].metric)}" if one_metric else "Test"
    data: list[ShownColumn] = [] if one_data else [("Data", lambda row: row.data)]
    attack: list[ShownColumn] = [("Attack error", lambda row: attack_text(row.attack))]
    metric: list[ShownColumn] = [] if one_metric else [("Metric", lambda row: metric_label(row.metric))]
    return [
        ("Run", lambda row: row.name),
        *data,
        *metric,
        ("Silos", lambda row: "merged" if row.merged else str(row.silos)),
        (title, lambda row: spread_text(row.metric, row.test, row.deviation)),
        ("Bytes", lambda row: "–" if row.bytes is None else bytes_text(row.bytes)),
        ("Per step", lambda row: "–" if row.bytes_per_step is None else bytes_text(row.bytes_per_step)),
        ("Time", lambda row: duration(row.seconds)),
        ("Worst ε", lambda row: epsilon_text(row.epsilon)),
        *(attack if any(row.attack is not None for row in rows) else []),
    ]


def _title(rows: Sequence[ComparedRun]) -> str:
    """The heading: how many runs, on which data."""
    count = f"{len(rows)} runs" if len(rows) > 1 else "1 run"
    return f"{count} on {', '.join(dict.fromkeys(row.data for row in rows))}"


def comparison_table(rows: Sequence[ComparedRun]) -> Table:
    """The comparison as a table for the terminal."""
    out = Table(title=Text(_title(rows)), title_justify="left", caption=Text(" ".join(cautions(rows))))
    columns, words = _columns(rows), ("Run", "Data", "Metric")
    for title, _ in columns:
        out.add_column(title, justify="left" if title in words else "right", overflow="fold")
    for row in rows:
        out.add_row(*(Text(text(row)) for _, text in columns))
    return out


def write_comparison(folders: Sequence[RunFolder], out: Path) -> Path:
    """Write ``comparison.html`` and ``comparison.json`` into the folder ``out``; returns the page's path."""
    rows = comparison(folders)
    plain = [asdict(row) | {"epsilon": "inf" if row.epsilon == float("inf") else row.epsilon} for row in rows]
    text = json.dumps({"runs": plain, "cautions": cautions(rows)}, indent=2)
    title = _title(rows)
    body = [f"<h1>{escape(title)}</h1>", _overview(rows), _figures(folders, rows), _silos(folders, rows)]
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(out / "comparison.json", (text + "\n").encode())
        write_atomic(out / "comparison.html", page(title, "\n".join(body)).encode())
    return out / "comparison.html"


def _overview(rows: Sequence[ComparedRun]) -> str:
    """The cautions and the table, as markup."""
    columns = _columns(rows)
    note = "Bytes count once for each receiving party. ε = ∞: something left unprotected."
    if any(row.seeds > 1 for row in rows):
        note += " Bytes and time are means over seeds; ± is the deviation over seeds."
    if any(row.merged for row in rows):
        note += " Merged: all data in one place, as an upper bound; nothing left that place."
    if any(row.attack is not None for row in rows):
        note += f" {ATTACK_NOTE}"
    left = sum(title in ("Run", "Data", "Metric") for title, _ in columns)
    lines = [[text(row) for _, text in columns] for row in rows]
    return box(cautions(rows)) + table([title for title, _ in columns], lines, note, left)


def _figures(folders: Sequence[RunFolder], rows: Sequence[ComparedRun]) -> str:
    """The figures as markup: score against bytes, validation curves, and scores against their price."""
    metric = rows[0].metric
    points = {row.name: (row.test, row.deviation, row.bytes_per_step) for row in rows}
    found = {row.name: curves(folder) for row, folder in zip(rows, folders, strict=True)}
    lines = {name: (curve.epochs, curve.valid) for name, curve in found.items()}
    unlike = " " + " ".join(cautions(rows)) if cautions(rows) else ""
    across = " Dashed: merged, without a price in bytes." if any(row.merged for row in rows) else ""
    drawn = compare_plots.score_against_bytes(points, metric)
    cost = figure(drawn, f"Test score against bytes per step.{across}{unlike}")
    training = figure(compare_plots.overlaid(lines, metric), f"Validation score by epoch.{unlike}")
    return f"<h2>Score and price</h2>{cost}<h2>Training</h2>{training}{_prices(folders, rows)}"


def _prices(folders: Sequence[RunFolder], rows: Sequence[ComparedRun]) -> str:
    """The figure of validation scores against emulated seconds and bytes; empty if no run has counted its trips."""
    links = {row.name: link_of(folder.config) for row, folder in zip(rows, folders, strict=True)}
    found = {row.name: price(folder, links[row.name]) for row, folder in zip(rows, folders, strict=True)}
    runs = {name: (each.seconds, each.bytes, each.valid) for name, each in found.items() if each is not None}
    if not runs:
        return ""
    kinds = list(dict.fromkeys(str(links[name]) for name in runs))
    caption = f"Validation score against emulated seconds (every party has a link of {kinds[0]}) and against bytes."
    if len(kinds) > 1:
        each = "; ".join(f"{name}: {links[name]}" for name in runs)
        caption = f"Validation score against emulated seconds and bytes. The runs have different links: {each}."
    old = [name for name in found if name not in runs]
    caption += f" Without validations, or of an older version: {', '.join(old)}." if old else ""
    merged = " Merged runs have no price in bytes." if any(row.merged for row in rows) else ""
    return figure(compare_plots.price_curves(runs, rows[0].metric), caption + merged)


def _silos(folders: Sequence[RunFolder], rows: Sequence[ComparedRun]) -> str:
    """The section with the test scores of each silo in each run; empty where no run has scores by silo."""
    tests = {
        row.name: {silo: final_score(folder, "test", row.metric, silo) for silo in silo_names(folder)}
        for row, folder in zip(rows, folders, strict=True)
        if not row.merged
    }
    silos = list(dict.fromkeys(silo for scores in tests.values() for silo in scores))
    if not silos:
        return ""
    shown = [row for row in rows if row.name in tests]
    lines = [["Silo", *tests]]
    lines += [[silo, *(score_text(row.metric, tests[row.name].get(silo)) for row in shown)] for silo in silos]
    if len(shown) > max(len(silos), 6):  # the longer side runs down the page
        lines = [list(line) for line in zip(*lines, strict=True)]
    note = "Test scores." + (" A merged run has one silo and is left out." if len(shown) < len(rows) else "")
    drawn = figure(compare_plots.silo_dots(tests, rows[0].metric), "Test scores silo by silo.")
    return f"<h2>Silo by silo</h2>{table(lines[0], lines[1:], note)}{drawn}"
