"""Books of the ledger: they agree with each other, and grow with what is sent rather than with pairs times steps."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from isthmus.core.kinds import KINDS, Kind, Purpose
from isthmus.core.parcel import Traffic
from isthmus.wire.ledger import Ledger
from isthmus.wire.local import LocalWire
from isthmus.wire.tally import Tally
from tests.helpers.command import SMALL, same_run, succeed
from tests.helpers.small import owners, run_method, small_graph

METHODS: dict[str, dict[str, Any]] = {
    "sync-sgd+fwd-bwd-le": {"batch": 4, "fanout": (2,)},
    "fedgnn-g": {},
    "ce-fedgnn": {"options": {"sync": {"local_steps": 2}}},
}
PAIRS = ["purpose", "sender", "receiver", "kind", "event"]


def ledger_of(name: str) -> Ledger:
    wire = LocalWire(3)
    run_method(name, small_graph(30, 140), owners(3), 3, wire=wire, epochs=4, **METHODS[name])
    return wire.ledger


def by_pair(table: pa.Table) -> list[dict[str, Any]]:
    sums = table.group_by(PAIRS).aggregate([(name, "sum") for name in ("messages", "rows", "bytes")])
    return sums.sort_by([(name, "ascending") for name in PAIRS]).to_pylist()


def rough(monkeypatch: pytest.MonkeyPatch, lines: int = 60) -> None:
    """Let ledgers sum over steps soon, and count in the middle of steps."""
    monkeypatch.setattr("isthmus.wire.books.DETAILED", lines)
    monkeypatch.setattr("isthmus.wire.ledger._PENDING", 7)


@pytest.mark.parametrize("name", METHODS)
def test_sums_over_steps_are_those_of_the_detailed_lines(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    detailed = ledger_of(name)
    assert detailed.summed_since is None
    rough(monkeypatch)
    summed = ledger_of(name)
    assert summed.summed_since in (0, 1)
    assert summed.step_table().equals(detailed.step_table()) and summed.leg_table().equals(detailed.leg_table())
    assert by_pair(summed.table()) == by_pair(detailed.table()) and summed.by_kind() == detailed.by_kind()
    assert summed.table().num_rows < detailed.table().num_rows


@pytest.mark.parametrize("name", METHODS)
def test_the_busiest_party_of_a_step_is_that_of_the_lines(name: str) -> None:
    ledger = ledger_of(name)
    lines, when = ledger.table(), ["epoch", "step", "purpose"]
    ends = [lines.group_by([*when, end]).aggregate([("bytes", "sum")]) for end in ("sender", "receiver")]
    most: dict[tuple[Any, ...], int] = {}
    for line in (line for table in ends for line in table.to_pylist()):
        key = tuple(line[name] for name in when)
        most[key] = max(most.get(key, 0), line["bytes_sum"])
    found = {tuple(line[name] for name in when): line["busiest"] for line in ledger.leg_table().to_pylist()}
    assert {key: size for key, size in found.items() if size} == most


@pytest.mark.parametrize("lines", [0, 60, 100_000])
def test_a_resumed_run_has_the_ledger_of_one_that_was_not_stopped(
    lines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_report: None
) -> None:
    rough(monkeypatch, lines)
    command = (*SMALL, "--method", "sync-sgd+fwd-bwd-le", "--set", "train.batch=16")
    succeed(*command, "--epochs", 6, "--out", tmp_path / "whole")
    succeed(*command, "--epochs", 2, "--out", tmp_path / "run")
    succeed("run", "--epochs", 6, "--out", tmp_path / "run", "--resume")
    same_run(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize("often", [7, 1_000_000])
@pytest.mark.parametrize("name", METHODS)
def test_what_has_crossed_so_far_is_what_the_books_hold(name: str, often: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.wire.ledger._PENDING", often)
    plain, seen = ledger_of(name), list[int]()
    wire, record = LocalWire(3), Ledger.record

    def looked_at(ledger: Ledger, *given: Any) -> None:
        record(ledger, *given)
        seen.append(sum(int(counts[2]) for counts in ledger.so_far().kinds.values()))

    monkeypatch.setattr(Ledger, "record", looked_at)
    run_method(name, small_graph(30, 140), owners(3), 3, wire=wire, epochs=4, **METHODS[name])
    assert wire.ledger.table().equals(plain.table()) and seen == sorted(seen)  # to look changes nothing
    found, lines = wire.ledger.so_far(), wire.ledger.lines()
    again = Tally.of(lines[:, [3, 4, 5, 8, 9, 10]])
    assert {kind: counts.tolist() for kind, counts in found.kinds.items()} == {
        kind: counts.tolist() for kind, counts in again.kinds.items()
    }
    assert {KINDS[kind].value: counts[2] for kind, counts in found.kinds.items()} == wire.ledger.by_kind()
    assert sorted(found.parties.tolist()) == sorted(again.parties.tolist())
    sent = {number: int(lines[lines[:, 3] == number, 10].sum()) for number, _, _ in found.parties.tolist()}
    assert {number: size for number, size, _ in found.parties.tolist()} == sent


def size_after(steps: int, silos: int = 60) -> int:
    """Bytes of all books of a federation in which everybody sends to everybody at every step, ever another amount."""
    ledger = Ledger(alone=True)
    ends = np.divmod(np.arange(silos * silos), silos)
    for step in range(steps):
        ledger.epoch = ledger.step = step
        with ledger.during(Purpose.STEP):
            for kind in (Kind.EMBEDDINGS, Kind.ADJOINTS):
                ledger.leg()
                ledger.record(kind, (), Traffic(*ends, 1 + (ends[0] * ends[1] + step) % 7), 256)
        ledger.turn_page()
    pages = [page for book in ledger.books.pages.values() for page in book]
    return sum(lines.numel() * lines.element_size() for lines in [*pages, *ledger.growing().values()])


def test_books_do_not_grow_with_pairs_times_steps() -> None:
    early, late = size_after(40), size_after(80)
    assert late - early < 40 * 400  # some lines a step, where there are 7,200 messages


def test_each_silo_answers_for_its_own_messages() -> None:
    """What one silo did to its messages says nothing of another's."""
    ledger, none = Ledger(), torch.zeros(0, dtype=torch.int64)
    for silo in (0, 1, 1):
        ledger.record(Kind.PARAMETERS, (), Traffic.up(torch.tensor([silo])), 8)
    ledger.record(Kind.PARAMETERS, (), Traffic.down(torch.tensor([2])), 8)
    ledger.record(Kind.GRADIENTS, (), Traffic.up(none), 8)
    assert ledger.treatments(Kind.PARAMETERS) == {0: {(): 1}, 1: {(): 2}}
    assert ledger.treatments(Kind.GRADIENTS) == {}


def test_messages_are_counted_by_the_model_that_they_are_about() -> None:
    """Lines tell it, by_model adds it up; what is about no model is in none of its sums."""
    ledger = Ledger()
    ledger.models = ("", "classifier", "generator")
    up = Traffic.up(torch.tensor([0, 1]))
    ledger.record(Kind.METRICS, (), up, 8)
    for model, size in (("classifier", 100), ("generator", 10), ("classifier", 100)):
        with ledger.about(model):
            ledger.record(Kind.PARAMETERS, (), up, size)
    assert ledger.by_model() == {"classifier": 400, "generator": 20}
    found = {(line["kind"], line["model"], line["bytes"]) for line in ledger.table().to_pylist()}
    assert found == {("metrics", "", 8), ("parameters", "classifier", 200), ("parameters", "generator", 10)}
    assert ledger.by_kind() == {"parameters": 420, "metrics": 16}
    steps = ledger.step_table().to_pylist()
    assert {line["kind"]: line["bytes"] for line in steps} == ledger.by_kind()


@pytest.mark.parametrize("name", METHODS)
def test_parameters_and_gradients_are_the_classifier_s_where_it_is_alone(name: str) -> None:
    ledger = ledger_of(name)
    sizes = ledger.by_kind()
    assert ledger.by_model() == {"classifier": sizes.get("parameters", 0) + sizes.get("gradients", 0)}
    assert {line["kind"] for line in ledger.table().to_pylist() if line["model"]} <= {"parameters", "gradients"}
