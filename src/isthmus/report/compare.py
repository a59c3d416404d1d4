"""Several runs compared, as a table, a page and JSON: what each scored, sent and disclosed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from html import escape
from pathlib import Path

from isthmus.audit.findings import ATTACK_NOTE, attack_text
from isthmus.core.files import write_atomic, writing
from isthmus.report import compare_plots
from isthmus.report.compared_run import SAW, ComparedRun, cautions, comparison
from isthmus.report.fitting import FittingTable
from isthmus.report.network import price
from isthmus.report.page import box, figure, page, table
from isthmus.runs.folder import RunFolder
from isthmus.runs.network_time import link_of
from isthmus.runs.summary import curves, final_score, silo_names
from isthmus.runs.text import bytes_text, duration, epsilon_text, metric_label, score_text, spread_text

ShownColumn = tuple[str, Callable[["ComparedRun"], str]]  # title, and the text of a run's cell
_WORDS = ("Run", "Data", "Metric")  # titles of columns that hold words


def _columns(rows: Sequence[ComparedRun]) -> list[ShownColumn]:
    """The columns of the table; data, metric and silos are columns only where runs differ in them.

    Scores that saw different things are in different columns.
    """
    one_metric, one_data = (len({getattr(row, key) for row in rows}) == 1 for key in ("metric", "data"))
    data: list[ShownColumn] = [] if one_data else [("Data", lambda row: row.data)]
    silos: list[ShownColumn] = [("Silos", lambda row: "merged" if row.merged else str(row.silos))]
    attack: list[ShownColumn] = [("Attack error", lambda row: attack_text(row.attack))]
    metric: list[ShownColumn] = [] if one_metric else [("Metric", lambda row: metric_label(row.metric))]
    return [
        ("Run", lambda row: row.name),
        *data,
        *metric,
        *([] if _same_silos(rows) else silos),
        *_score_columns(rows),
        ("Training", lambda row: _bytes_cell(row.training_bytes)),
        ("Per step", lambda row: _bytes_cell(row.bytes_per_step)),
        *_scoring_columns(rows),
        ("Time", lambda row: duration(row.seconds)),
        ("Worst ε", lambda row: epsilon_text(row.epsilon)),
        *(attack if any(row.attack is not None for row in rows) else []),
    ]


def _same_silos(rows: Sequence[ComparedRun]) -> bool:
    """Whether all runs that are not merged have as many silos."""
    return len({row.silos for row in rows if not row.merged}) <= 1


def _score_columns(rows: Sequence[ComparedRun]) -> list[ShownColumn]:
    """A column of test scores for everything that some score saw, and one of pooled scores where these can differ."""
    seen = [saw for saw in SAW if any(saw in row.tests for row in rows)]
    if not seen:
        return [("Test", lambda row: spread_text(row.metric, row.test, row.deviation))]
    ranked = any(row.metric != "accuracy" or row.average == "silos" for row in rows)
    columns: list[ShownColumn] = []
    for saw in seen:
        columns.append((SAW[saw].capitalize(), partial(_score_cell, saw=saw)))
        columns += [(f"{SAW[saw].capitalize()}, pooled", partial(_pooled_cell, saw=saw))] if ranked else []
    return columns


def _scoring_columns(rows: Sequence[ComparedRun]) -> list[ShownColumn]:
    """Columns of what crosses when the test split is scored once, for ways of scoring that send rows."""
    return [
        (f"Scoring {SAW[saw]}", partial(_scoring_cell, saw=saw))
        for saw in ("trained", "across")
        if any(saw in row.tests for row in rows)
    ]


def _scoring_cell(row: ComparedRun, saw: str) -> str:
    """The text of what crosses in one scoring."""
    return _bytes_cell(row.tests[saw].bytes if saw in row.tests and not row.merged else None)


def _bytes_cell(size: float | None) -> str:
    """A number of bytes as text; a dash where nothing is counted."""
    return "–" if size is None else bytes_text(size)


def _score_cell(row: ComparedRun, saw: str) -> str:
    """The text of a run's test score, as far as it has one that saw this."""
    found = row.tests.get(saw)
    return "–" if found is None else spread_text(row.metric, found.test, found.deviation)


def _pooled_cell(row: ComparedRun, saw: str) -> str:
    """The text of a run's pooled test score, as far as it has one that saw this."""
    found = row.tests.get(saw)
    return "–" if found is None else score_text(row.metric, found.pooled)


def _title(rows: Sequence[ComparedRun]) -> str:
    """The heading: how many runs, on which data, between how many silos, and what their scores are."""
    count = f"{len(rows)} runs" if len(rows) > 1 else "1 run"
    metrics, silos = {row.metric for row in rows}, {row.silos for row in rows if not row.merged}
    between = f", {silos.pop()} silos" if len(silos) == 1 else ""
    scored = f": test {metric_label(metrics.pop())}" if len(metrics) == 1 else ""
    return f"{count} on {', '.join(dict.fromkeys(row.data for row in rows))}{between}{scored}"


def comparison_table(rows: Sequence[ComparedRun]) -> FittingTable:
    """The comparison for the terminal, in as many tables as its width needs."""
    columns = _columns(rows)
    lines = [[text(row) for _, text in columns] for row in rows]
    return FittingTable(_title(rows), [title for title, _ in columns], lines, _WORDS, " ".join(cautions(rows)))


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
    note = (
        "Own edges: each silo scores without what lies beyond its boundary. Across: with rows that their owners "
        "compute when scores are made. As trained: with rows that the method keeps. Training and scoring: bytes that "
        "cross, counted once for each receiving party; of scoring, those of the test split. ε = ∞: something left "
        "unprotected."
    )
    if any(row.seeds > 1 for row in rows):
        note += " Bytes and time are means over seeds; ± is the deviation over seeds."
    if any(row.merged for row in rows):
        note += " Merged: all data in one place, as an upper bound; nothing left that place."
    if any(row.attack is not None for row in rows):
        note += f" {ATTACK_NOTE}"
    left = sum(title in _WORDS for title, _ in columns)
    lines = [[text(row) for _, text in columns] for row in rows]
    return box(cautions(rows)) + table([title for title, _ in columns], lines, note, left)


def _figures(folders: Sequence[RunFolder], rows: Sequence[ComparedRun]) -> str:
    """The figures as markup: score against bytes, validation curves, and scores against their price."""
    metric = rows[0].metric
    saw, points = _points(rows)
    found = {row.name: curves(folder) for row, folder in zip(rows, folders, strict=True)}
    lines = {name: (curve.epochs, curve.valid) for name, curve in found.items()}
    unlike = " " + " ".join(cautions(rows)) if cautions(rows) else ""
    across = " Dashed: merged, without a price in bytes." if any(row.merged for row in rows) else ""
    drawn = compare_plots.score_against_bytes(points, metric)
    cost = figure(drawn, f"Test score{f' ({SAW[saw]})' if saw else ''} against bytes per step.{across}{unlike}")
    known_by = (
        " Each run is validated in the way that it is known by." if any(len(row.tests) > 1 for row in rows) else ""
    )
    training = figure(compare_plots.overlaid(lines, metric), f"Validation score by epoch.{known_by}{unlike}")
    return f"<h2>Score and price</h2>{cost}<h2>Training</h2>{training}{_prices(folders, rows)}"


def _points(rows: Sequence[ComparedRun]) -> tuple[str, dict[str, tuple[float | None, float | None, float | None]]]:
    """Test score, deviation and bytes per step of each run, for what the scores of all of them saw; and what that was.

    Of several such ways it is the one that saw most; empty where they have none in common. A merged run has its own.
    """
    alike = [saw for saw in SAW if all(saw in row.tests for row in rows if not row.merged)]
    saw = alike[-1] if alike and not all(row.merged for row in rows) else ""
    each = {row.name: (row.tests[saw].test, row.tests[saw].deviation) if saw in row.tests else (row.test, row.deviation)
            for row in rows}  # fmt: skip
    return saw, {row.name: (*each[row.name], row.bytes_per_step) for row in rows}


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
    """The section with the test scores of each silo in each run; empty where no run has scores by silo.

    Scores are of the way of scoring that all runs have in common; without one, names of runs say what theirs saw.
    """
    saw, _ = _points(rows)
    here = [(row, folder) for row, folder in zip(rows, folders, strict=True) if not row.merged]
    tests = {_head(row.name, folder, saw): _silo_tests(folder, row.metric, saw) for row, folder in here}
    silos = list(dict.fromkeys(silo for scores in tests.values() for silo in scores))
    if not silos:
        return ""
    lines = [["Silo", *tests]]
    metrics = [row.metric for row, _ in here]
    for silo in silos:
        each = (scores.get(silo) for scores in tests.values())
        lines.append([silo, *(score_text(metric, score) for metric, score in zip(metrics, each, strict=True))])
    if len(here) > max(len(silos), 6):  # the longer side runs down the page
        lines = [list(line) for line in zip(*lines, strict=True)]
    note = f"Test scores{f' ({SAW[saw]})' if saw else ''}."
    note += " A merged run has one silo and is left out." if len(here) < len(rows) else ""
    drawn = figure(compare_plots.silo_dots(tests, rows[0].metric), "Test scores silo by silo.")
    return f"<h2>Silo by silo</h2>{table(lines[0], lines[1:], note)}{drawn}"


def _head(name: str, folder: RunFolder, saw: str) -> str:
    """The name of a run; where no way of scoring is common to all (``saw`` is empty), with what its scores saw."""
    ways = list((folder.metrics.get("scored") or {}).values())
    return name if saw or not ways else f"{name} ({SAW[ways[0]['sees']]})"


def _silo_tests(folder: RunFolder, metric: str, saw: str) -> dict[str, float | None]:
    """The test score of each silo, of the way that ``saw`` this; else of the way that the run is known by."""
    ways = (folder.metrics.get("scored") or {}).values()
    alike = next((way for way in ways if way["sees"] == saw), None)
    if alike is None:
        return {silo: final_score(folder, "test", metric, silo) for silo in silo_names(folder)}
    return {silo: scores.get(metric) for silo, scores in (alike["test"].get("silos") or {}).items()}
