"""Reports of runs whose nodes are devices: the section on secret messages, and devices on the sheet and in drawings."""

from pathlib import Path
from typing import Any

import pytest

from isthmus.protect.events import MaskedSums, MaskedTotals, Shared, describe, silos_in_sum, veil
from isthmus.report.disclosure import disclosure, protection, treatment
from isthmus.report.report import write_report
from isthmus.report.traffic import by_party
from isthmus.runs.folder import RunFolder
from isthmus.runs.summary import Flow, read_flows
from isthmus.runs.text import list_names, party_order
from tests.helpers.command import succeed
from tests.helpers.reports import THREE, make_run, read

RUN = (
    "run",
    "--data",
    "blocks",
    "--silos",
    2,
    "--split",
    "random",
    "--method",
    "hifgl",
    "--model",
    "gcn",
    "--epochs",
    1,
)
SMALL = ("--set", "data.nodes=150", "--set", "data.classes=3", "--set", "data.degree=2", "--set", "model.hidden=8")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("devices") / "run"
    succeed(*RUN, *SMALL, "--out", folder)
    return RunFolder.open(folder)


def test_a_run_tells_of_shares_of_smallest_sums_and_of_lone_neighbours(run: RunFolder) -> None:
    page = read(run.path / "report.html")
    rows = page.table("Silo", "Devices", "Smallest sum", "One neighbour")
    assert [row[:3] for row in rows] == [["silo-0", "75", "75"], ["silo-1", "75", "75"]]  # too few for two groups of 64
    told = run.metrics["silo_figures"]
    assert [int(row[3]) for row in rows] == [each["devices with one neighbour"] for each in told.values()]
    assert "2 shares in the field of 2^61 - 1 (T = 1)" in page.text and "36 binary places" in page.text
    assert "next power of two of the degree" in page.text and "devices of a silo are one party here" in page.text


def test_every_party_of_the_sheet_reads_what_its_level_may(run: RunFolder) -> None:
    server, silos, devices = disclosure(run)
    assert server.title == "The server saw" and silos.title == "Each of silo-0 and silo-1 saw"
    assert (
        devices.title == "The devices of silo-0 and silo-1 saw" and "of all devices of a silo together" in devices.lead
    )
    assert {seen.kind for seen in server.seen} == {"schema", "statistics", "parameters", "metrics"}
    assert {seen.sender for seen in devices.seen} == {"their silo", "devices of neighbours"}
    assert {seen.kind: seen.sender for seen in silos.seen if "its" in seen.sender}.keys() == {
        "statistics", "gradients", "metrics", "share-sums",
    }  # fmt: skip
    shares = next(seen for seen in silos.seen if seen.kind == "embeddings")
    assert "second share" in shares.meaning and shares.sender == "devices of neighbours"
    assert "nobody reads one by itself" in silos.lead and "nobody" not in server.lead
    assert not any("other silos" in seen.sender for part in (server, silos, devices) for seen in part.seen)


def test_runs_without_devices_have_no_such_section(tmp_path: Path) -> None:
    page = read(write_report(make_run(tmp_path / "run", THREE, silo_figures={"silo-0": {"something": 1.0}})))
    assert "Secret messages" not in page.text and "The devices of a silo" not in page.text


@pytest.mark.parametrize(("sender", "receiver", "direction"), [
    ("devices of silo-1", "silo-0", "handed_in"), ("silo-0", "devices of silo-0", "handed_down"),
    ("devices of silo-0", "devices of silo-1", "between_devices"), ("silo-0", "silo-1", "peer"),
])  # fmt: skip
def test_directions_of_devices(sender: str, receiver: str, direction: str) -> None:
    amounts: dict[str, Any] = {"messages": 1, "rows": 1, "bytes": 1, "setup": 0}
    assert Flow(sender, receiver, "embeddings", "unprotected", **amounts).direction == direction


def test_devices_stand_after_silos_by_number() -> None:
    names = ["devices of silo-10", "devices of bank", "bank", "silo-2", "devices of silo-2", "server"]
    ordered = ["server", "silo-2", "bank", "devices of silo-2", "devices of silo-10", "devices of bank"]
    assert sorted(names, key=party_order) == ordered
    assert list_names(["devices of silo-1", "devices of silo-2", "devices of silo-3"]) == "devices of silo-1 to silo-3"
    assert list_names(["silo-1", "devices of silo-1"]) == "silo-1 and devices of silo-1"


def test_many_parties_with_devices_among_them_are_no_silos() -> None:
    many = {(f"devices of silo-{i}", f"silo-{i}"): 1 for i in range(40)}
    assert any(name.endswith("other parties") for pair in by_party(many) for name in pair)
    silos = {(f"silo-{i}", "server"): 1 for i in range(60)}
    assert any(name.endswith("other silos") for pair in by_party(silos) for name in pair)


def test_shares_and_masks_in_words() -> None:
    masked = describe((MaskedSums(64),)), describe((MaskedTotals(5),))
    assert [veil(each) for each in (describe((Shared(1),)), *masked)] == ["shares", "masked sums", "masked sums"]
    assert not veil("unprotected") and [silos_in_sum(each) for each in masked] == [0, 5]
    assert "a simulation" in protection(masked[1]) and "a simulation" not in protection(masked[0])
    said = protection("sent as fixed point of 36 binary places, shares, 2 of which open")
    assert said.startswith("Shares, 2 of which open: epsilon is infinite. Sent as fixed point of 36 binary places, ")
    assert "saves bytes" not in said and "saves bytes" in protection("sent as int8")


def test_the_first_screen_says_how_what_crossed_was_treated(run: RunFolder) -> None:
    """Rows crossed as shares, and gradients of devices masked, of silos plain; sums were opened, without a word."""
    rows = {row[0]: row[2] for row in read(run.path / "report.html").table("What left a silo")}
    assert rows["Embeddings of single nodes"] == "as shares, which nobody reads alone"
    assert rows["Sums of neighbours' rows"] == "as it is"
    assert rows["Gradients"] == "masked, so that sums alone are read"


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (["unprotected"], ""),
        (["shares, 2 of which open"], "as shares, which nobody reads alone"),
        (["shares, 2 of which open", "unprotected"], ""),
        (["Gaussian noise (clip 1, sigma 1)/row"], "with noise"),
        (["Gaussian noise (clip 1, sigma 1), shares, 2 of which open/row"],
         "with noise, as shares, which nobody reads alone"),
        (["masked, read as sums over groups of 64"], "masked, so that sums alone are read"),
    ],
)  # fmt: skip
def test_a_treatment_is_told_where_all_messages_of_a_kind_had_it(events: list[str], said: str, tmp_path: Path) -> None:
    lines = [(1, 1, "step", "silo-0", "silo-1", "embeddings", event, "", 1, 3, 24) for event in events]
    folder = make_run(tmp_path / "run", THREE, lines=lines)
    assert treatment("embeddings", read_flows(folder)) == said


def test_where_devices_alone_mask_it_is_told_of_them(tmp_path: Path) -> None:
    """What silos send on is plain; what the server tells everybody is no silo's."""
    masked = "masked, read as sums over groups of 64"
    lines = [(1, 1, "step", "devices of silo-0", "silo-0", "gradients", masked, "", 1, 3, 24),
             (1, 1, "step", "silo-0", "server", "gradients", "unprotected", "", 1, 3, 24)]  # fmt: skip
    said = treatment("gradients", read_flows(make_run(tmp_path / "run", THREE, lines=lines)))
    assert said == "masked, so that sums alone are read where devices sent them, else plain"


def test_flows_of_very_many_parties_keep_devices_apart(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.runs.summary._PAIRS", 1)
    flows = read_flows(RunFolder.open(run.path))
    assert {f.direction for f in flows if f.kind == "embeddings"} == {"handed_in", "between_devices"}
    assert {f.sender for f in flows if f.kind == "share-sums"} == {"devices of any silo"}
