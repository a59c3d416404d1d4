"""The page that compares several runs: verdict, table with links to the runs, and figures."""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

from isthmus.audit.findings import ATTACK_NOTE
from isthmus.report import compare_plots
from isthmus.report.compare_columns import WORDS, shown_columns
from isthmus.report.compare_plots import coinciding, looks, merged_look, run_key, taking_turns
from isthmus.report.compare_verdict import verdict
from isthmus.report.compared_run import SAW, ComparedRun, cautions
from isthmus.report.network import price
from isthmus.report.page import box, figure, page, table, with_contents
from isthmus.report.score_table import ScoreTable
from isthmus.runs.folder import RunFolder
from isthmus.runs.network_time import link_of
from isthmus.runs.summary import curves, final_score, silo_names
from isthmus.runs.text import list_names, metric_label, score_text

_STYLE = """
.key { list-style: none; display: flex; flex-wrap: wrap; gap: .1rem 1.2rem; margin: .3rem 0 0; padding: 0; }
.key svg { width: 2.5rem; height: .5rem; display: inline-block; vertical-align: middle; }
td.best a { font-weight: 700; }
"""


def title_of(rows: Sequence[ComparedRun]) -> str:
    """The heading: how many runs, on which data, between how many silos, and what their scores are."""
    count = f"{len(rows)} runs" if len(rows) > 1 else "1 run"
    metrics, silos = {row.metric for row in rows}, {row.silos for row in rows if not row.merged}
    between = f", {silos.pop()} silos" if len(silos) == 1 else ""
    scored = f": test {metric_label(metrics.pop())}" if len(metrics) == 1 else ""
    return f"{count} on {', '.join(dict.fromkeys(row.data for row in rows))}{between}{scored}"


def comparison_page(folders: Sequence[RunFolder], rows: Sequence[ComparedRun], scores: ScoreTable, out: Path) -> str:
    """The whole HTML page, which lies in the folder ``out``."""
    title = title_of(rows)
    top = f"<h1>{escape(title)}</h1><p class='lead'>{escape(verdict(scores, rows))}</p>{box(cautions(rows))}"
    body = [_overview(rows, scores, _links(folders, rows, out)), _figures(folders, rows), _silos(folders, rows)]
    return page(title, with_contents(top, "\n".join([*body, _where(rows)])), _STYLE)


def _links(folders: Sequence[RunFolder], rows: Sequence[ComparedRun], out: Path) -> dict[str, str]:
    """The way from the page to each run's report, by name of the run; none for a run without one."""
    found = {}
    for folder, row in zip(folders, rows, strict=True):
        report = folder.path / "report.html"
        if report.is_file():
            found[row.name] = quote(Path(os.path.relpath(report.resolve(), out.resolve())).as_posix())
    return found


def _overview(rows: Sequence[ComparedRun], scores: ScoreTable, links: dict[str, str]) -> str:
    """The section with the table of all runs."""
    columns = shown_columns(rows, scores, links)
    note = (
        "Own edges: each silo scores without what lies beyond its boundary. Across: with rows that their owners "
        "compute when scores are made. As trained: with rows that the method keeps. Training and scoring: bytes that "
        "cross, counted once for each receiving party; of scoring, those of the test split. ε = ∞: something left "
        "unprotected."
    )
    if any(each.best for each in scores.judged):
        note += " Bold: the best of its column."
    if any(each.student is not None for each in scores.judged):
        note += " Underlined: cannot be told from it (Student's t, paired by seed, Holm's correction, at 5 %)."
    if any(row.seeds > 1 for row in rows):
        note += " Bytes and time are means over seeds; ± is the deviation over seeds."
    if any(row.merged for row in rows):
        note += " Merged: all data in one place, for orientation, not compared; nothing left that place."
    if any(row.attack is not None for row in rows):
        note += f" {ATTACK_NOTE}"
    left = sum(title in WORDS for title, _ in columns)
    lines = [[cell(row) for _, cell in columns] for row in rows]
    return f"<h2>All runs</h2>{table([title for title, _ in columns], lines, note, left)}"


def _where(rows: Sequence[ComparedRun]) -> str:
    """The section on where the runs lie, and which tables lie beside the page."""
    lines = [[row.name, str(Path(row.path))] for row in rows]
    said = "<p>As table.csv, table.tex (booktabs) and table.md beside this page.</p>"
    return f"<h2>Where the runs lie</h2>{table(['Run', 'Folder'], lines, left=2)}{said}"


def _figures(folders: Sequence[RunFolder], rows: Sequence[ComparedRun]) -> str:
    """The figures as markup: score against bytes, validation curves, and scores against their price."""
    metric = rows[0].metric
    saw, points = _points(rows)
    found = {row.name: curves(folder) for row, folder in zip(rows, folders, strict=True)}
    lines = {name: (curve.epochs, curve.valid) for name, curve in found.items()}
    unlike = " " + " ".join(cautions(rows)) if cautions(rows) else ""
    across = " Dashed: merged, without a price in bytes." if any(row.merged for row in rows) else ""
    shown = looks(row.name for row in rows)
    merged = [row.name for row in rows if row.merged]
    drawn = compare_plots.score_against_bytes(points, metric, shown)
    cost = figure(drawn, f"Test score{f' ({SAW[saw]})' if saw else ''} against bytes per step.{across}{unlike}")
    cost += run_key(merged_look(shown, merged), lined=merged)
    known_by = (
        " Each run is validated in the way that it is known by." if any(len(row.tests) > 1 for row in rows) else ""
    )
    groups = coinciding(lines)
    turns = taking_turns(shown, groups)
    alike = "".join(f" {list_names(group)} coincide: their dashes take turns." for group in groups)
    training = figure(
        compare_plots.overlaid(lines, metric, turns), f"Validation score by epoch.{alike}{known_by}{unlike}"
    )
    training += run_key(turns, lined=turns)
    return f"<h2>Score and price</h2>{cost}<h2>How they learnt</h2>{training}{_prices(folders, rows)}"


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
    shown = looks(row.name for row in rows)
    kinds = list(dict.fromkeys(str(links[name]) for name in runs))
    caption = f"Validation score against emulated seconds (every party has a link of {kinds[0]}) and against bytes."
    if len(kinds) > 1:
        each = "; ".join(f"{name}: {links[name]}" for name in runs)
        caption = f"Validation score against emulated seconds and bytes. The runs have different links: {each}."
    old = [name for name in found if name not in runs]
    caption += f" Without validations, or of an older version: {', '.join(old)}." if old else ""
    merged = " Merged runs have no price in bytes." if any(row.merged for row in rows) else ""
    drawn = figure(compare_plots.price_curves(runs, rows[0].metric, shown), caption + merged)
    return drawn + run_key({name: shown[name] for name in runs}, lined=runs)


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
    every = looks(row.name for row in rows)
    shown = {head: every[row.name] for head, (row, _) in zip(tests, here, strict=True)}
    drawn = figure(compare_plots.silo_dots(tests, rows[0].metric, shown), "Test scores silo by silo.")
    drawn += run_key(shown, lined=())
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
