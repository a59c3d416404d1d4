"""The data classes of a study: rows of a paper's table, their settings, and columns read from finished runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from statistics import fmean
from typing import Any

from isthmus.core.errors import IsthmusError
from isthmus.runs.config import RunConfig, flat

Metrics = Mapping[str, Any]  # the content of a run's metrics.json
Reader = Callable[[Metrics], float | None]
Settings = Mapping[str, Any]  # dotted keys and values, such as {"train.lr": 0.01}
Grid = Mapping[str, Sequence[Any]]  # the values that a dotted key may take
_SILOS = "data.silos"


@dataclass(frozen=True)
class Value:
    """A measured number and, where several seeds were run, its deviation over them."""

    mean: float
    std: float | None = None


def _nothing(_: Metrics) -> None:
    """A reader that finds no number."""
    return None


@dataclass(frozen=True)
class StudyColumn:
    """A column of a study's table.

    ``read`` takes its number from the metrics of a finished run, ``pooled`` that of all silos' predictions together. A
    column that ``scores`` holds test scores: ``metric`` (empty: that which a run is known by) times ``scale``.
    """

    label: str
    read: Reader
    pooled: Reader = _nothing
    scores: bool = False
    metric: str = ""
    scale: float = 1.0


def score_column(label: str, metric: str, scale: float = 100.0, way: str = "") -> StudyColumn:
    """The column of a test score, in per cent: the mean over silos, and pooled over all silos' predictions.

    ``way`` is the way of scoring (``own``, ``across``, ...); empty: the run's first.
    """

    def reader(split: str) -> Reader:
        def read(metrics: Metrics) -> float | None:
            scored = (metrics["scored"].get(way) or {}) if way else metrics
            value = (scored.get(split) or {}).get(metric or str(metrics["metric"]))
            return None if value is None else scale * float(value)

        return read

    return StudyColumn(label, reader("test"), reader("test_pooled"), scores=True, metric=metric, scale=scale)


def training_megabytes(metrics: Metrics) -> float | None:
    """Megabytes that crossed until training ended, validations left out; None for a merged run."""
    parts = metrics["link"]["parts"]
    return None if metrics["merged"] else sum(parts[part]["bytes"] for part in ("setup", "training")) / 1e6


def scoring_megabytes(way: str) -> Reader:
    """A reader of the megabytes that cross when the test split is scored once, in one way."""

    def read(metrics: Metrics) -> float | None:
        return None if metrics["merged"] or way not in metrics["scored"] else metrics["scored"][way]["bytes"] / 1e6

    return read


BOTH_WAYS = "trained,own,across"  # the score of studies whose rows are compared on one footing
FOOTING = (
    "Every row is scored in three ways, with parameters that each selects for itself by validation: as it was trained, "
    "along own edges, and across the boundary with fresh rows. Rows differ by training alone within one of the last "
    "two columns; the first one mixes training with what a method is scored with."
)


def footing_columns(label: str, metric: str) -> tuple[StudyColumn, ...]:
    """The columns in which all rows are scored alike, along own edges and across, after what training and that sent."""
    return (
        StudyColumn("MB to train", training_megabytes),
        StudyColumn("MB to score across", scoring_megabytes("across")),
        score_column(f"{label}, own edges", metric, way="own"),
        score_column(f"{label}, across", metric, way="across"),
    )


def mean_column(label: str, columns: Sequence[StudyColumn]) -> StudyColumn:
    """The column of the plain mean of other columns; None where one of them has no number."""

    def reader(readers: Sequence[Reader]) -> Reader:
        def read(metrics: Metrics) -> float | None:
            values = [each(metrics) for each in readers]
            known = [value for value in values if value is not None]
            return fmean(known) if len(known) == len(values) else None

        return read

    return StudyColumn(label, reader([c.read for c in columns]), reader([c.pooled for c in columns]))


@dataclass(frozen=True)
class StudyRow:
    """A row of a study's table: its label in the paper, its changes to the study's recipe, and the paper's values.

    A row that the paper does not have has no values. ``compute`` returns metrics where nothing needs to be trained.
    ``tune`` holds settings that this row may choose from, in addition to those that all rows may choose from. ``at`` is
    its place in a grid, by axis. ``left_out`` says why a place of a grid is not run; empty where it is.
    """

    label: str
    overrides: Mapping[str, Any]
    paper: Mapping[str, Value] = field(default_factory=dict)
    compute: Callable[[RunConfig], dict[str, Any]] | None = None
    tune: Grid = field(default_factory=dict)
    at: Mapping[str, str] = field(default_factory=dict)
    left_out: str = ""

    @property
    def slug(self) -> str:
        """The label as the name of a folder: ``FedAvg + Fwd-LE`` is ``fedavg-fwd-le``."""
        return re.sub(r"[^a-z0-9]+", "-", self.label.lower()).strip("-")

    @property
    def trains(self) -> bool:
        """Whether runs of this row are trained: it is neither computed without training nor left out."""
        return self.compute is None and not self.left_out

    @property
    def crossing(self) -> int:
        """The number of silos that cross at a step, if the row's schedule sets one, else 0."""
        return int(self.overrides.get("schedule", {}).get("silos", 0))


@dataclass(frozen=True)
class Tuning:
    """The settings that every row chooses from by its validation score: those of ``grid``, times the row's own.

    Every row has as many settings to choose from as any other, and tries each with ``seeds`` seeds. ``changes`` to the
    recipe hold for these trials only, which may all be shorter than the reported runs.
    """

    grid: Grid
    seeds: int = 1
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """A table to reproduce; the last column is the one that rows are judged by.

    ``measure`` says what the numbers are. ``base`` is the recipe that all rows share. ``silos`` is the number of silos
    that the paper's values hold for; None where each row has its own. ``close``: rows of the paper whose values differ
    by less count as ties. ``tuning`` is the stage in which rows choose settings, if any. ``figure`` draws one more
    figure for the page; ``beside`` are columns that the terminal shows too. ``quick`` is a small form of the study.

    A grid has ``axes``, of which the last is compared: each of its values with the value ``against``, seed by seed.
    ``gain_from``: the value whose score counts as a gain of 0 %, where that of ``against`` is one of 100 %.
    ``vary_data``: every seed has a split of its own, too; else only initial values and draws depend on the seed.
    ``chosen`` are axes of which validation chooses a value at every place of the others.
    ``pivot`` lays out the written tables, like ``method:split``; empty: the last axis by the one before it.
    """

    name: str
    title: str
    summary: str
    source: str
    measure: str
    columns: tuple[StudyColumn, ...]
    rows: tuple[StudyRow, ...]
    base: Mapping[str, Any]
    silos: int | None = None
    seeds: int = 2
    close: float = 0.5
    notes: tuple[str, ...] = ()
    tuning: Tuning | None = None
    figure: Callable[[Any], str] | None = None
    beside: tuple[str, ...] = ()
    quick: Study | None = None
    axes: tuple[str, ...] = ()
    against: str = ""
    gain_from: str = ""
    vary_data: bool = False
    pivot: str = ""
    chosen: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for what in ([row.slug for row in self.rows], [column.label for column in self.columns]):
            assert what and len(set(what)) == len(what), f"{self.name}: {what}"
        budgets = {row.label: len(self.candidates(row)) for row in self.rows if row.trains}
        if len(set(budgets.values())) > 1:
            told = ", ".join(f"{label} {count}" for label, count in budgets.items())
            raise IsthmusError(f"{self.name}: every row must have as many settings to choose from, but of {told}.")

    def candidates(self, row: StudyRow) -> list[dict[str, Any]]:
        """The settings that a row chooses from; none where the study is not tuned, or nothing is trained."""
        if self.tuning is None or not row.trains:
            return []
        grid = {**self.tuning.grid, **row.tune}
        return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]

    @property
    def scores(self) -> list[str]:
        """The labels of columns that hold test scores."""
        return [column.label for column in self.columns if column.scores]

    @property
    def headline(self) -> StudyColumn:
        """The column that rows are judged by."""
        return self.columns[-1]

    @property
    def silos_are_free(self) -> bool:
        """Whether the number of silos is a setting like any other: no row has its own, or values of a paper."""
        return self.silos is None and not any(row.paper or _SILOS in flat(row.overrides) for row in self.rows)

    def _why_not(self, silos: int) -> str:
        """Why a study that is not for one number of silos is not for another one, and what to do."""
        if self.silos_are_free:
            return f"'{self.name}' has no number of silos of a paper; instead of --silos, use --set {_SILOS}={silos}."
        who = "rows" if any(_SILOS in flat(row.overrides) for row in self.rows) else "paper's values"
        return f"The {who} of '{self.name}' have their own numbers of silos; leave out --silos and --set {_SILOS}."

    def with_silos(self, silos: int) -> Study:
        """The study for another number of silos, for which the paper has no values."""
        if self.silos is None:
            raise IsthmusError(self._why_not(silos))
        base = {**self.base, "data": {**self.base["data"], "silos": silos}}
        if silos == self.silos:
            return replace(self, base=base)
        note = f"The paper has this table for {self.silos} silos only: there is nothing to compare {silos} silos with."
        notes = (note,) if any(row.paper for row in self.rows) else ()
        rows = tuple(replace(row, paper={}) for row in self.rows if row.crossing <= silos)
        left = [row.label for row in self.rows if row.crossing > silos]
        out = (f"Left out, since more silos would cross than there are: {'; '.join(left)}.",) if left else ()
        return replace(self, base=base, rows=rows, silos=silos, notes=(*self.notes, *notes, *out))
