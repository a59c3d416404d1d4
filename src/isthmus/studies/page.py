"""The page of a study: the paper's table beside ours, in one self-contained HTML file."""

from __future__ import annotations

from html import escape

from isthmus.report import page
from isthmus.runs.text import count_text, duration
from isthmus.studies.plots import beside
from isthmus.studies.results import ComparedValue, Findings, RowResult
from isthmus.studies.text import difference_text, mean_text, tone, tuning_lines, value_text
from isthmus.studies.tuning import as_records, settings_text

_NAMED = 12  # rows that are not finished and are named


def study_page(findings: Findings) -> str:
    """The whole HTML page."""
    study = findings.study
    lead = f"{study.source}, run again with {count_text(findings.facts['seeds'], 'seed')}."
    body = [
        f"<h1>{escape(study.title)}</h1><p class='lead'>{escape(lead)}</p>",
        page.box(study_cautions(findings)),
        _tiles(findings),
        _headline(findings),
        page.figure(
            beside(findings),
            "The paper's value and ours; small panels have the same rows. Bars are deviations over seeds.",
        ),
        study.figure(findings) if study.figure else "",
        _columns(findings),
        tuning_section(findings),
        ways_to_repeat(findings),
    ]
    return page.page(study.title, "\n".join(body))


def study_cautions(findings: Findings) -> list[str]:
    """Sentences that the reader must know before the numbers: notes, shorter training, missing and failed rows."""
    said = [*findings.unlike, *findings.study.notes]
    for length in ("epoch", "step"):
        usual, ours = findings.study.base.get("train", {}).get(f"{length}s"), findings.facts.get(f"{length}s")
        if usual and ours and usual != ours:
            said.append(f"Trained for {count_text(ours, length)}, where the study has {usual}.")
    kept = [line for line in findings.lines if not line.row.left_out]
    missing = [line.row.label for line in kept if len(line.seeds) < findings.facts["seeds"]]
    if missing:
        named = ", ".join(missing[:_NAMED]) + (f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else "")
        said.append(f"Not finished yet: {named}. The same command goes on where it stopped.")
    said += [f"{line.row.label} failed: {line.error.splitlines()[-1]}" for line in findings.lines if line.error]
    return said


def _tiles(findings: Findings) -> str:
    """The tiles of key figures: distances to the paper's values, and pairs of rows in its order."""
    cells = [findings.headline(line) for line in findings.lines]
    apart = [abs(cell.difference) for cell in cells if cell.difference is not None]
    pairs, swapped = findings.order()
    facts = [(f"{sum(cell.ours is not None for cell in cells)} of {len(cells)}", "rows with a result")]
    if apart:
        facts.append((f"{sum(apart) / len(apart):.2f}", f"mean distance to the paper, {findings.study.headline.label}"))
        facts.append((f"{max(apart):.2f}", "largest distance"))
    if pairs:
        facts.append((f"{pairs - len(swapped)} of {pairs}", "pairs of rows in the paper's order"))
    return page.tiles(facts)


def _headline(findings: Findings) -> str:
    """The section with the paper's value and ours for the headline column."""
    study = findings.study
    head = ["Row", "Paper", "Ours", "Difference", "Ours, pooled", "Seeds", "Time a run"]
    rows: list[page.CellRow] = []
    for line in findings.lines:
        cell = findings.headline(line)
        pooled = "–" if cell.pooled is None else f"{cell.pooled:.2f}"
        values = (value_text(cell.paper), value_text(cell.ours), _difference(cell), pooled)
        rows.append([line.row.label, *values, str(len(line.seeds)), duration(line.seconds)])
    note = (
        f"{study.headline.label}: {study.measure}. ± is the deviation over seeds. Rows without a value "
        "of the paper are ours. Pooled: over the predictions of all silos together, not the mean over silos."
    )
    return f"<h2>Paper and ours</h2>{page.table(head, rows, note)}"


def _difference(cell: ComparedValue) -> page.Cell:
    """The table cell of ours minus the paper's value."""
    return page.Cell(difference_text(cell.difference), tone=tone(cell.difference))


def _columns(findings: Findings) -> str:
    """The section with a table of our values for every column, and below it one of differences to the paper."""
    names = [column.label for column in findings.study.columns]
    ours: list[page.CellRow] = [
        [line.row.label, *(_ours(line.cells[name]) for name in names)] for line in findings.lines
    ]
    judged = [line for line in findings.lines if line.row.paper]
    apart: list[page.CellRow] = [
        [line.row.label, *(_difference(line.cells[name]) for name in names)] for line in judged
    ]
    note = "Mean over seeds; (2/3): of two of three, where others have no value. The paper's value shows on hover."
    tables = page.table(["Ours", *names], ours, note)
    tables += page.table(["Ours − paper", *names], apart) if apart else ""
    return f"<h2>Column by column</h2>{tables}"


def _ours(cell: ComparedValue) -> page.Cell:
    """The table cell of our value; the paper's shows on hover."""
    return page.Cell(mean_text(cell), hint=f"ours {value_text(cell.ours)}, paper {value_text(cell.paper)}")


def tuning_section(findings: Findings) -> str:
    """The section on tuning: the setting that each row chose, and all that it tried; empty without tuning."""
    tuned = findings.tuned
    if tuned is None:
        return ""
    head = ["Row", "Chosen", "Validation score, %", "Of settings tried"]
    note = (
        "Every row tried as many settings as any other, with seeds that no reported run has. The mean validation score "
        "chose; test scores of these runs were not read."
    )
    rows: list[page.CellRow] = [list(line) for line in tuning_lines(tuned)]
    tried: list[page.CellRow] = [
        [
            one["row"],
            settings_text(one["settings"]),
            "–" if one["valid"] is None else f"{100 * one['valid']:.2f}",
            "chosen" if one["chosen"] else "",
        ]
        for one in as_records(tuned)
    ]
    every = page.table(["Row", "Setting", "Validation score, %", ""], tried, left=2)
    return (
        f"<h2>Tuning</h2>{page.table(head, rows, note, left=2)}<details><summary>All trials</summary>{every}</details>"
    )


def ways_to_repeat(findings: Findings) -> str:
    """The last section: the command that repeats the study, where it ran, and errors of failed rows."""
    facts = findings.facts
    named = {"torch": "PyTorch ", "python": "Python "}
    where = [" · ".join(f"{named.get(k, '')}{v}" for k, v in one.items() if v) for one in facts["hardware"]]
    rows = [[name, str(facts[name])] for name in ("epochs", "steps", "nodes", "isthmus", "commit") if facts.get(name)]
    rows += [["hardware", place] for place in where]
    errors = "".join(_error(line) for line in findings.lines if line.error)
    command = f"<pre>{escape(facts['command'])}</pre>"
    return f"<h2>Repeat it</h2>{command}{page.table(['', ''], rows, left=2)}{errors}"


def _error(line: RowResult) -> str:
    """The error of a failed row, as markup."""
    return f"<h3>{escape(line.row.label)} failed</h3><pre>{escape(line.error)}</pre>"
