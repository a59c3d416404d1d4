"""Reports of many silos: what a page has no room for is summed and counted, and sums stay the same."""

from pathlib import Path

import pytest

from isthmus.report.disclosure import disclosure
from isthmus.report.results import results
from isthmus.report.traffic import by_party
from isthmus.runs.folder import RunFolder
from isthmus.runs.summary import OTHERS, pair_bytes, read_flows
from tests.helpers.reports import ledger_of, make_run

NAMES = [f"bank-{letter}" for letter in "abcdefgh"]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    scores = {name: place / 10 for place, name in enumerate(NAMES)}
    return make_run(tmp_path / "run", scores, lines=ledger_of(NAMES, ["parameters", "embeddings", "adjoints"]))


def test_all_bytes_are_drawn_although_few_parties_have_a_name(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = by_party(pair_bytes(folder))
    monkeypatch.setattr("isthmus.report.traffic._NAMED", 3)
    drawn = by_party(pair_bytes(folder))
    assert whole == pair_bytes(folder) and sum(drawn.values()) == sum(whole.values())
    parties = {name for pair in drawn for name in pair}
    assert len(parties) == 4 and {"server", "6 other silos"} < parties


def test_of_many_pairs_the_receiver_is_told_and_nothing_is_lost(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    detailed = read_flows(folder)
    sheet = [str(part) for part in disclosure(folder)]
    monkeypatch.setattr("isthmus.runs.summary._PAIRS", 5)
    rough = read_flows(again := RunFolder.open(folder.path))
    assert {flow.sender for flow in rough} == {"server", OTHERS, *NAMES}  # to the server each by its name
    for name in ("messages", "rows", "bytes", "setup"):
        assert sum(getattr(f, name) for f in rough) == sum(getattr(f, name) for f in detailed)
    assert [str(part) for part in disclosure(again)] == sheet


def test_long_lists_of_names_are_cut_and_counted(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.report.disclosure._NAMED", 2)
    titles = [part.title for part in disclosure(folder)]
    assert "Each of bank-a, bank-b and 6 more saw" in titles
    monkeypatch.setattr("isthmus.report.results._DRAWN", 4)
    assert "of the 2 worst and the 2 best silos" in results(folder, None)
