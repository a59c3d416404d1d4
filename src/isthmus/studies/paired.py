"""Differences of two rows of a study, seed by seed: both have the same splits and draws, so that these cancel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean, stdev

from isthmus.studies.results import Findings, RowResult
from isthmus.studies.study import StudyRow


@dataclass(frozen=True)
class Difference:
    """The mean of differences over common seeds, and half the width of its 95 % interval (None: a single seed)."""

    mean: float
    half: float | None
    seeds: int

    @property
    def decided(self) -> bool:
        """Whether the interval does not contain 0."""
        return self.half is not None and abs(self.mean) > self.half


def paired(line: RowResult, base: RowResult, column: str, base_column: str = "") -> Difference | None:
    """A row minus another in a column, over the seeds that both have; None where there are none."""
    ours = dict(zip(line.seeds, line.cells[column].runs, strict=True))
    theirs = dict(zip(base.seeds, base.cells[base_column or column].runs, strict=True))
    common = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]
    apart = [a - b for a, b in common if a is not None and b is not None]
    if not apart:
        return None
    return Difference(fmean(apart), _half(apart), len(apart))


def _half(values: list[float]) -> float | None:
    """Half the width of Student's 95 % interval of a mean; None where one value tells no spread."""
    from scipy.stats import t

    if len(values) < 2:
        return None
    width: float = t.ppf(0.975, len(values) - 1) * stdev(values)
    return float(width) / math.sqrt(len(values))


def base_of(findings: Findings, row: StudyRow) -> RowResult | None:
    """The row that a row of a grid is compared with: at the same place, but for the last axis."""
    axis = findings.study.axes[-1]
    place = {**row.at, axis: findings.study.against}
    return next((line for line in findings.lines if line.row.at == place), None)


def gain(findings: Findings, row: StudyRow) -> float | None:
    """How far a row has come from the row ``gain_from`` to the row ``against``, in per cent of that way, by its means.

    None where one of the three has no score yet, or where both ends score alike.
    """
    study, axis = findings.study, findings.study.axes[-1]
    found = {
        line.row.at[axis]: findings.headline(line).ours for line in findings.lines if _same_place(line.row, row, axis)
    }
    ours, start, end = (found.get(name) for name in (row.at[axis], study.gain_from, study.against))
    if ours is None or start is None or end is None or start.mean == end.mean:
        return None
    return 100.0 * (ours.mean - start.mean) / (end.mean - start.mean)


def _same_place(one: StudyRow, other: StudyRow, axis: str) -> bool:
    """Whether two rows of a grid differ on one axis at most."""
    return {**one.at, axis: ""} == {**other.at, axis: ""}


def groups(findings: Findings) -> dict[tuple[str, ...], list[RowResult]]:
    """The rows of a grid by their place on all axes but the last."""
    found: dict[tuple[str, ...], list[RowResult]] = {}
    for line in findings.lines:
        found.setdefault(tuple(line.row.at[axis] for axis in findings.study.axes[:-1]), []).append(line)
    return found
