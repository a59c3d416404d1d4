"""The figures of several runs side by side, and what makes them incomparable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from isthmus.audit.findings import attack_error
from isthmus.core.errors import IsthmusError
from isthmus.report.score_table import SEEN
from isthmus.runs.folder import RunFolder
from isthmus.runs.summary import (
    data_name,
    epsilon_of,
    fact,
    final_score,
    is_merged,
    members,
    primary,
    read_flows,
    run_label,
    steps_of,
)

# What a score saw, in the order of columns. Two scores compare where they saw alike.
SAW = dict(zip(("own", "trained", "across", "global", "everywhere"), SEEN, strict=True))
_LEARNT = "learnt from (an edge counts in every silo that learns from it)"


@dataclass(frozen=True)
class Scored:
    """A test score: the mean over silos, its deviation over seeds, of all predictions pooled; how many were scored."""

    test: float | None
    deviation: float | None
    pooled: float | None
    count: int | None
    bytes: int | None  # of scoring the test split once
    silos: int  # that have a score, over which the mean is taken


@dataclass(frozen=True)
class ComparedRun:
    """The figures of one run; with several seeds bytes and seconds are means over them.

    ``tests`` has a score for each way in which the run was scored, by what that way saw (a key of ``SAW``).
    A ``merged`` run held all data in one place and sent nothing to other parties, so that its bytes are None.
    """

    name: str
    method: str
    data: str
    split: str
    silos: int
    merged: bool
    metric: str
    average: str
    learnt: int | None  # nodes or edges that it trained on; None where it is not recorded
    test: float | None
    deviation: float | None
    tests: dict[str, Scored]
    seeds: int
    bytes: int | None
    training_bytes: int | None  # without validations and final scores
    bytes_per_step: float | None  # of training
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
    used = [run_label(folder) for folder in folders]
    names = [f"{m} ({f.path.name})" if used.count(m) > 1 else m for m, f in zip(used, folders, strict=True)]
    names = [f"{n} #{i + 1}" if names.count(n) > 1 else n for i, n in enumerate(names)]
    return [_row(name, folder) for name, folder in zip(names, folders, strict=True)]


def _row(name: str, folder: RunFolder) -> ComparedRun:
    """The figures of the run in a folder."""
    metric, data, merged = primary(folder), folder.config.get("data", {}), is_merged(folder)
    total, seconds = sum(flow.bytes for flow in read_flows(folder)), folder.metrics.get("seconds")
    training = sum(bytes_to_train(part) for part in members(folder))
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
        average=str(folder.metrics.get("average", "seeds")),
        learnt=_learnt(folder),
        tests=_tests(folder, metric),
        seeds=len(folder.metrics.get("seeds") or [0]),
        bytes=None if merged else round(total / len(members(folder))),
        training_bytes=None if merged else round(training / len(members(folder))),
        bytes_per_step=None if merged else training / steps_of(folder),
        seconds=None if seconds is None else float(seconds),
        epsilon=epsilon_of(folder),
        attack=attack_error(folder),
        path=str(folder.path.absolute()),
    )


def _learnt(folder: RunFolder) -> int | None:
    """How many nodes or edges silos trained on, all together."""
    each = [silo.get("train") for silo in fact(folder, "silo_nodes", {}).values()]
    return sum(each) if each and None not in each else None


def bytes_to_train(folder: RunFolder) -> int:
    """Bytes that crossed in a run with one seed, but for those of its validations and final scores."""
    parts = (folder.metrics.get("link") or {}).get("parts", {})
    scoring = sum(int(parts[name]["bytes"]) for name in ("validation", "end") if name in parts)
    return sum(flow.bytes for flow in read_flows(folder)) - scoring


def _tests(folder: RunFolder, metric: str) -> dict[str, Scored]:
    """The test scores of a run by what they saw."""
    found = {}
    for way in (folder.metrics.get("scored") or {}).values():
        mean, deviation, pooled = ((way.get(split) or {}).get(metric) for split in ("test", "test_std", "test_pooled"))
        silos = sum(each.get(metric) is not None for each in ((way.get("test") or {}).get("silos") or {}).values())
        found[way["sees"]] = Scored(mean, deviation, pooled, sum(way["seeds_scored"]), way["bytes"], silos)
    return {saw: found[saw] for saw in SAW if saw in found}


def cautions(rows: Sequence[ComparedRun]) -> list[str]:
    """Sentences about differences that make the runs' scores incomparable: data, metric, what was scored and how."""
    said = []
    named = {"data": "data", "split": "splits", "silos": "numbers of silos", "metric": "metrics", "average": "means"}
    for key, what in named.items():
        values = list(dict.fromkeys(str(getattr(row, key)) for row in rows))
        if len(values) > 1:
            said.append(f"The runs have different {what} ({', '.join(values)}): their scores do not compare.")
    return [*said, *_unlike_scores(rows)]


def _unlike_scores(rows: Sequence[ComparedRun]) -> list[str]:
    """Sentences about runs that saw different things when they were scored, or scored different numbers of seeds."""
    said, here = [], [row for row in rows if row.tests and not row.merged]
    if here and not set.intersection(*(set(row.tests) for row in here)):
        ways = "; ".join(f"{row.name}: {', '.join(SAW[saw] for saw in row.tests)}" for row in here)
        said.append(
            f"No column has all runs, because they were scored in different ways ({ways}). To compare how they train, "
            "score them alike: --set score=own,across."
        )
    scored = {f"{row.name} ({SAW[saw]})": each.count for row in rows for saw, each in row.tests.items()}
    for what, counts in (("scored", scored), (_LEARNT, {row.name: row.learnt for row in rows})):
        if len(set(counts.values()) - {None}) > 1:
            said.append(f"Different numbers of nodes or edges were {what}: {by_count(counts)}.")
    silos = {f"{row.name} ({SAW[saw]})": each.silos for row in rows for saw, each in row.tests.items()}
    if len(set(silos.values())) > 1 and len({row.silos for row in rows}) == 1:
        said.append(
            f"Means are over different numbers of silos, since a score is not defined in all: {by_count(silos)}."
        )
    return said


def by_count(counts: Mapping[str, int | None]) -> str:
    """Names grouped by their numbers, the largest first; those without a number are left out."""
    every = sorted({count for count in counts.values() if count is not None}, reverse=True)
    names = {count: ", ".join(name for name, each in counts.items() if each == count) for count in every}
    return "; ".join(f"{count:,} by {names[count]}" for count in every)
