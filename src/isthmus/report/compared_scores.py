"""The scores of several runs as one table: by footing, seed by seed, with marks where runs can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from isthmus.core.errors import IsthmusError
from isthmus.report.compared_run import SAW, ComparedRun, bytes_to_train
from isthmus.report.pivot import TableLayout, read_layout, usual_layout
from isthmus.report.run_scores import scores_by_footing
from isthmus.report.score_table import SCORE, ScoreEntry, ScoreTable
from isthmus.runs.folder import RunFolder
from isthmus.runs.summary import data_name, members, run_label
from isthmus.runs.text import is_share, metric_label

_RUN, _MEGABYTES = "run", "MB to train"


def compared_scores(folders: Sequence[RunFolder], rows: Sequence[ComparedRun], pivot: str = "") -> ScoreTable:
    """The table of all runs; with a ``pivot``, whose keys are of configurations, runs of one place are seeds of it."""
    keys = tuple(key for key in _keys(pivot) if key != SCORE) if pivot else (_RUN,)
    entries: dict[tuple[str, ...], tuple[ScoreEntry, str]] = {}
    for folder, row in zip(folders, rows, strict=True):
        for entry in _entries(folder, row, {key: _value(folder, row, key) for key in keys}):
            _add(entries, entry, row.name)
    metrics = {row.metric for row in rows}
    measure = f"test {metric_label(metrics.pop()) if len(metrics) == 1 else 'score'}"
    measure += ", %" if all(is_share(row.metric) for row in rows) else ""
    found = [entry for entry, _ in entries.values()]
    compared = "method" if "method" in keys else keys[-1]
    return ScoreTable(f"Comparison on {_data(rows)}", measure, keys, compared, tuple(found))


def layout_for(table: ScoreTable, pivot: str) -> TableLayout:
    """The layout that was asked for, else runs in rows and scores in columns."""
    return read_layout(pivot, table.keys) if pivot else usual_layout(table)


def _keys(pivot: str) -> list[str]:
    """The keys that a pivot names, in their order."""
    return [key.strip() for side in pivot.split(":") for key in side.split(",") if key.strip()]


def _data(rows: Sequence[ComparedRun]) -> str:
    """The data of all runs, in words."""
    return ", ".join(dict.fromkeys(row.data for row in rows))


def _value(folder: RunFolder, row: ComparedRun, key: str) -> str:
    """The value of a key of a run: its name, its method with what was swapped, or a setting of its configuration."""
    if key == _RUN:
        return row.name
    if key == "method":
        return run_label(folder)
    if key in ("data", "data.name"):
        return data_name(folder)
    value: Any = folder.config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if value is None or isinstance(value, Mapping):
        raise IsthmusError(
            f"--pivot has the key '{key}', which the configuration of '{folder.path}' does not; give {SCORE}, {_RUN}, "
            "method, data or a key of config.toml, like data.split."
        )
    return str(value)


def _entries(folder: RunFolder, row: ComparedRun, place: Mapping[str, str]) -> list[ScoreEntry]:
    """The entries of one run: its scores by footing and seed, and what crossed in training."""
    scale = 100.0 if is_share(row.metric) else 1.0
    found: dict[str, dict[int, float]] = {}
    sizes: dict[int, float] = {}
    for number, part in enumerate(members(folder)):
        seed = int(part.metrics.get("seed", number))
        sizes[seed] = bytes_to_train(part) / 1e6
        for footing, value in scores_by_footing(part.metrics, row.metric).items():
            found.setdefault(footing, {})[seed] = scale * value
    entries = [
        ScoreEntry(place, footing, values, rival=not row.merged, ground=_ground(folder, row, footing))
        for footing, values in found.items()
    ]
    return entries if row.merged else [*entries, ScoreEntry(place, _MEGABYTES, sizes, score=False)]


def _ground(folder: RunFolder, row: ComparedRun, footing: str) -> str:
    """What two runs must have alike for their scores to be compared: data, split, metric, and what was scored."""
    count = next((each.count for saw, each in row.tests.items() if footing.startswith(SAW[saw])), None)
    seed = folder.config.get("data", {}).get("seed")
    return repr((row.data, row.split, row.silos, row.metric, row.average, seed, count))


def _add(entries: dict[tuple[str, ...], tuple[ScoreEntry, str]], entry: ScoreEntry, run: str) -> None:
    """Take up an entry; runs of one place are its seeds, and must differ in them."""
    at = (entry.measure, *entry.place.values())
    if at not in entries:
        entries[at] = entry, run
        return
    there, other = entries[at]
    if set(there.values) & set(entry.values) or there.ground != entry.ground:
        raise IsthmusError(
            f"--pivot puts '{other}' and '{run}' into one cell, and they are no seeds of one setting; add a key in "
            "which they differ."
        )
    merged = {**there.values, **entry.values}
    entries[at] = replace(there, values=merged), other
