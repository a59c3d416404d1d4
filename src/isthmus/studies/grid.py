"""A study from a file: a grid of settings, of which every place is a row, and what is compared in it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from isthmus.core.errors import IsthmusError, unknown
from isthmus.report.compared_run import SAW
from isthmus.report.score_table import SCORE
from isthmus.runs.recipe import merge_into
from isthmus.runs.text import metric_label
from isthmus.studies.grid_kinds import check_grid
from isthmus.studies.study import (
    Study,
    StudyColumn,
    StudyRow,
    Tuning,
    score_column,
    scoring_megabytes,
    training_megabytes,
)
from isthmus.train.metrics import METRICS, OF_TASK

_Leave = tuple[Mapping[str, Sequence[str]], str]  # values by axis, and why their places are left out
_LeftOut = Sequence[_Leave]


def read_study(path: Path) -> Study:
    """The study that a TOML file describes; raises for a key or value that means nothing."""
    try:
        said = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise IsthmusError(f"'{path}' cannot be read: {error}.") from None
    except tomllib.TOMLDecodeError as error:
        raise IsthmusError(f"'{path}' is no TOML: {error}.") from None
    return grid_study(path.stem, said)


def grid_study(name: str, said: Mapping[str, Any]) -> Study:
    """The study of a grid, from the tables of its file."""
    check_grid(said)
    if "axes" not in said:
        raise IsthmusError("A study needs [axes]: each has names, and for each name the settings that it stands for.")
    axes: Mapping[str, Mapping[str, Any]] = said["axes"]
    if SCORE in axes:
        raise IsthmusError(
            f"[axes.{SCORE}]: the tables have a key '{SCORE}' for what was measured; choose another name."
        )
    if "tune" not in said:
        _refuse_tuned(axes)
    base = dict(said.get("base", {}))
    metric, compared, against = _metric(said.get("metric", "accuracy")), list(axes)[-1], said.get("against", "")
    if against and against not in axes[compared]:
        raise unknown(f"value of axis {compared}", against, axes[compared])
    left_out = _left_out(said.get("leave_out", ()), axes)
    study = Study(
        name=name,
        title=said.get("title", name),
        summary=said.get("summary", "a grid of your own"),
        source="No paper has this table",
        measure=f"test {metric_label(metric) or 'score'}, %",
        columns=_columns(metric, _ways(base)),
        rows=_distinct(_rows(axes, left_out)),
        base=base,
        seeds=said.get("seeds", 1),
        notes=tuple(said.get("notes", ())),
        tuning=_tuning(said.get("tune")),
        axes=tuple(axes),
        against=against,
        vary_data=said.get("vary_data", False),
        pivot=said.get("pivot", ""),
        chosen=_chosen_axes(said.get("choose", ()), axes),
    )
    small = said.get("quick")
    return replace(study, quick=_small(study, small, axes, left_out)) if small is not None else study


def _refuse_tuned(axes: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise where a grid that is not tuned has values to choose from, which nothing would read."""
    for axis, names in axes.items():
        for name, settings in names.items():
            if "tune" in settings:
                raise IsthmusError(f"axes.{axis}.{name}.tune has values to choose from, but there is no table [tune].")


def _metric(name: str) -> str:
    """The metric of a grid's scores (empty: the one that each run is known by); raises where no run has it."""
    if name and name not in METRICS and not name.startswith(f"{OF_TASK}/"):
        raise unknown("metric", name, (*METRICS, f"{OF_TASK}/TASK"))
    return name


def _chosen_axes(said: str | Sequence[str], axes: Mapping[str, Any]) -> tuple[str, ...]:
    """The axes of ``choose``, whose values validation chooses at every place of the others."""
    names = tuple(dict.fromkeys(_names(said)))
    for name in names:
        if name not in axes:
            raise unknown("axis in choose", name, axes)
    if len(names) == len(axes):
        raise IsthmusError("choose names every axis; leave one, like the method, for which values are chosen.")
    return names


def _names(said: str | Sequence[str]) -> list[str]:
    """A single name or several as a list."""
    return [said] if isinstance(said, str) else list(said)


def _distinct(rows: tuple[StudyRow, ...]) -> tuple[StudyRow, ...]:
    """The rows themselves; raises where two of them would share a folder."""
    folders: dict[str, str] = {}
    for row in rows:
        if not row.slug or (other := folders.setdefault(row.slug, row.label)) != row.label:
            raise IsthmusError(
                f"'{row.label}' {f'and {other!r} have the folder {row.slug!r}' if row.slug else 'names no folder'}; "
                "choose names that differ in letters and digits."
            )
    return rows


def _ways(base: Mapping[str, Any]) -> list[str]:
    """The ways in which every run of the grid is scored."""
    ways = [way.strip() for way in base.get("score", "trained").split(",")]
    for way in ways:
        if way not in SAW:
            raise unknown("score", way, SAW)
        if ways.count(way) > 1:
            raise IsthmusError(f"base.score is '{base['score']}', which has '{way}' twice; name every score once.")
    return ways


def _columns(metric: str, ways: Sequence[str]) -> tuple[StudyColumn, ...]:
    """Columns of a grid: bytes of training and of one scoring, then a test score for each way; the last one decides."""
    sizes = [StudyColumn("MB to train", training_megabytes)]
    sizes += [StudyColumn(f"MB to score {SAW[way]}", scoring_megabytes(way)) for way in ways if way != "own"]
    return (*sizes, *(score_column(SAW[way], metric, way=way) for way in ways))


def _rows(axes: Mapping[str, Mapping[str, Any]], left_out: _LeftOut) -> tuple[StudyRow, ...]:
    """A row for each place of the grid; the settings of later axes are written over those of earlier ones."""
    rows = []
    for names in product(*axes.values()):
        at = dict(zip(axes, names, strict=True))
        overrides: dict[str, Any] = {}
        for axis, name in at.items():
            merge_into(overrides, deepcopy(dict(axes[axis][name])))
        why = next((why for where, why in left_out if all(at[axis] in where[axis] for axis in where)), "")
        tune = overrides.pop("tune", {})  # values of its own to choose from, as many as all others have
        rows.append(StudyRow(" / ".join(names), overrides, at=at, left_out=why, tune=tune))
    return tuple(rows)


def _left_out(said: Sequence[Mapping[str, Any]], axes: Mapping[str, Mapping[str, Any]]) -> list[_Leave]:
    """The places of ``[[leave_out]]``, which are not run: values by axis, and the reason."""
    found: list[_Leave] = []
    for entry in said:
        where = {axis: _names(names) for axis, names in entry.items() if axis != "because"}
        for axis, names in where.items():
            if axis not in axes:
                raise unknown("axis in [[leave_out]]", axis, axes)
            for name in names:
                if name not in axes[axis]:
                    raise unknown(f"value of axis {axis} in [[leave_out]]", name, axes[axis])
        if "because" not in entry:
            raise IsthmusError('Every [[leave_out]] says why: because = "...".')
        found.append((where, entry["because"]))
    return found


def _tuning(said: Mapping[str, Any] | None) -> Tuning | None:
    """The stage in which every row chooses settings by validation, if there is one."""
    if said is None:
        return None
    if not said.get("grid"):
        raise IsthmusError("[tune] needs a list of values for each key of its grid: grid.'train.lr' = [0.01, 0.03].")
    return Tuning(said["grid"], said.get("seeds", 1), said.get("changes", {}))


def _small(study: Study, said: Mapping[str, Any], axes: Mapping[str, Mapping[str, Any]], left_out: _LeftOut) -> Study:
    """The small form of a grid: changed settings of all rows, one seed, nothing tuned.

    Of an axis it has a list of names, or a table with names and settings of its own.
    """
    changes = {key: value for key, value in said.items() if key != "axes"}
    kept = said.get("axes", {})
    for axis in kept:
        if axis not in axes:
            raise unknown("axis in [quick.axes]", axis, axes)
    chosen = {axis: _chosen(axis, names, kept.get(axis)) for axis, names in axes.items()}
    base = merge_into(deepcopy(dict(study.base)), deepcopy(changes))
    rows = tuple(replace(row, tune={}) for row in _rows(chosen, left_out))
    note = "Quick: fewer places of the grid, and small runs. Look at what is there, not at the values."
    return replace(study, base=base, rows=rows, seeds=1, notes=(note,), tuning=None)


def _chosen(axis: str, names: Mapping[str, Any], kept: Sequence[str] | Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The names of an axis in the small form, with their settings."""
    if kept is None or isinstance(kept, Mapping):
        return names if kept is None else kept
    for name in kept:
        if name not in names:
            raise unknown(f"value of axis {axis} in [quick]", name, names)
    return {name: names[name] for name in kept}
