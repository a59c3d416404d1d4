"""The disclosure sheet names every kind of message, every party, and the epsilon that the ledger allows."""

from pathlib import Path
from typing import Any

from isthmus.core.kinds import KINDS
from isthmus.protect.accounting.guarantee import DP, EVERYTHING, NODE, Guarantee
from isthmus.report.compare import write_comparison
from isthmus.report.compared_run import comparison
from isthmus.report.disclosure import disclosure, protection, server_place
from isthmus.report.identities import wire_and_parties
from isthmus.report.report import write_report
from isthmus.runs.passages import circumstances_of
from isthmus.runs.plain_words import WORDS
from isthmus.runs.summary import epsilon_of, guarantees
from tests.helpers.reports import ODD, THREE, ledger_of, make_run, read


def test_every_kind_of_message_has_its_words() -> None:
    assert list(WORDS) == list(KINDS), "a new kind needs words in runs/plain_words.py, in the ledger's order"
    for words in WORDS.values():
        assert words.name and words.risk.endswith(".")
        assert all(words.meaning(direction).endswith(".") for direction in ("up", "down", "peer"))


def test_disclosure_tells_what_each_party_saw(tmp_path: Path) -> None:
    lines = ledger_of(["silo-0", "silo-1", "silo-2"], ["parameters", "embeddings"])
    server, silos = disclosure(make_run(tmp_path / "run", THREE, lines=lines))
    assert server.title == "The server saw" and [s.kind for s in server.seen] == ["parameters"]
    assert server.seen[0].sender == "silo-0 to silo-2"
    assert server.seen[0].amounts == "12 messages, 24 rows, 12.0 kB"
    assert "inversion" in server.seen[0].meaning and "epsilon is infinite" in server.seen[0].protection
    assert silos.title == "Each of silo-0 to silo-2 saw"
    assert [seen.kind for seen in silos.seen] == ["parameters", "embeddings"]
    assert [seen.sender for seen in silos.seen] == ["the server", "other silos"]
    assert silos.seen[1].amounts == "8 messages, 20 to 28 rows, 6.4 kB to 9.0 kB each"


def test_disclosure_splits_parties_that_saw_different_things(tmp_path: Path) -> None:
    asked = (1, 1, "step", "silo-0", "silo-1", "ids", "unprotected", "", 1, 3, 24)
    lines = [*ledger_of(["silo-0", "silo-1"], ["metrics"]), asked]
    folder = make_run(tmp_path / "run", {"silo-0": 1, "silo-1": 0}, lines=lines)
    titles = [part.title for part in disclosure(folder)]
    assert titles == ["The server saw", "silo-0 saw", "silo-1 saw"]


def test_no_page_says_that_something_did_not_cross(tmp_path: Path) -> None:
    """A list of what did not cross reads as a promise; features can be worked out of embeddings."""
    for kind in KINDS:
        folder = make_run(tmp_path / kind, THREE, lines=ledger_of(list(THREE), [kind]))
        text = read(write_report(folder)).text.lower()
        assert "did not cross" not in text and "not cross" not in text
        assert len(disclosure(folder)) >= 1 and all(part.seen for part in disclosure(folder))


def test_all_kinds_of_the_ledger_are_in_the_sheet(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", THREE, lines=ledger_of(list(THREE), [k.value for k in KINDS]))
    assert {seen.kind for part in disclosure(folder) for seen in part.seen} == {k.value for k in KINDS}
    page, happened = read(write_report(folder)), circumstances_of(folder)
    names = [row[0].lower() for row in page.table("What left a silo")]
    beside = page.text.partition("covered by no ε: ")[2].partition(".")[0].split("; ")
    assert sorted([*names, *beside]) == sorted(words.name for words in WORDS.values())
    for words in WORDS.values():
        said = [words.meaning(direction, in_a_run=happened) for direction in ("peer", "up")]
        assert any(each in page.text for each in said), said


def test_protected_messages_have_the_epsilon_of_the_accountant(tmp_path: Path) -> None:
    lines = ledger_of(list(THREE), ["embeddings"], "gaussian/row") + ledger_of(list(THREE), ["metrics"])
    folder = make_run(tmp_path / "run", THREE, lines=lines, privacy=told_of(2.5, apart=("metrics",)))
    assert epsilon_of(folder) == 3.5 and [each.epsilon for each in guarantees(folder)] == [3.5, 2.5]
    page = read(write_report(folder))
    (row,) = page.table("Kind", "Protection")
    assert row[-1] == "2.5" and "gaussian" in row[1]
    assert "Epsilon = 3.5 (delta 0.0001), for the features and the label of one node, any two values" in page.text
    assert "not covered: losses, scores and sizes of silos" in page.text and "ε = 3.5" in page.text
    assert comparison([folder])[0].epsilon == 3.5


def told_of(epsilon: float, apart: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """What an accountant says of a run that released embeddings, and of everything a little more."""
    everything = Guarantee(EVERYTHING, NODE, DP, epsilon + 1, 1e-4, 7, apart=apart)
    return [everything.as_dict(), Guarantee("embeddings", NODE, DP, epsilon, 1e-4, 7).as_dict()]


def test_a_number_format_protects_nothing(tmp_path: Path) -> None:
    nothing = "a number format, which saves bytes and protects nothing."
    told = {
        "unprotected": "Unprotected: epsilon is infinite.",
        "sent as bfloat16": f"Unprotected: epsilon is infinite. Sent as bfloat16, {nothing}",
        "clipped at 5, no noise, sent as int8": f"Clipped at 5, no noise: epsilon is infinite. Sent as int8, {nothing}",
        "Gaussian noise (clip 5, sigma 1)/node": "Protected by Gaussian noise (clip 5, sigma 1), which hides any one "
        "node up to epsilon.",
        "Gaussian noise (clip 5, sigma 1), sent as int8/node": "Protected by Gaussian noise (clip 5, sigma 1), which "
        f"hides any one node up to epsilon. Sent as int8, {nothing}",
    }
    assert {event: protection(event) for event in told} == told
    for event, words in told.items():
        lines = ledger_of(list(THREE), ["embeddings"], event)
        folder = make_run(tmp_path / str(len(event)), THREE, lines=lines, privacy=told_of(2.5))
        found = (
            [3.5, 2.5] if "noise (" in event else [float("inf")] * 2
        )  # whatever was said, what left bare has no bound
        assert [each.epsilon for each in guarantees(folder)] == found and epsilon_of(folder) == found[0]
        page = read(write_report(folder))
        assert page.table("Kind", "Protection")[0][1] == words and f"kB each. {words}" in page.text


def test_ledgers_that_reach_the_server_have_plain_words(tmp_path: Path) -> None:
    letter = (3, 3, "end", "silo-0", "server", "ledger", "unprotected", "", 2, 40, 3200)
    folder = make_run(tmp_path / "run", THREE, lines=[*ledger_of(list(THREE), ["embeddings"]), letter], hosts=2)
    server = disclosure(folder)[0]
    assert server.title == "The server saw" and [seen.kind for seen in server.seen] == ["ledger"]
    assert "without their contents" in server.seen[0].meaning
    page = read(write_report(folder))
    assert [row[0] for row in page.table("What left a silo")] == ["Embeddings of single nodes"]
    assert "covered by no ε: counts of messages, from the silos' ledgers." in page.text


def test_the_sheet_says_whose_process_the_server_ran_in(tmp_path: Path) -> None:
    one, two = "owner also sees what the server sees", "their owners also see what the server sees"
    told: dict[str, tuple[dict[str, Any], str]] = {
        "beside": ({"hosts": 2, "server": {"host": 0, "beside": ["silo-0"]}}, f"process of silo-0, so that its {one}."),
        "both": (
            {"hosts": 2, "server": {"host": 0, "beside": ["silo-0", ODD]}},
            f"of silo-0 and {ODD}, so that {two}.",
        ),
        "apart": ({"hosts": 3, "server": {"host": 2, "beside": []}}, ""),
        "older": ({"hosts": 2}, ""),
        "here": ({"hosts": 1, "server": {"host": 0, "beside": list(THREE)}}, "ran in one process: a simulation"),
    }
    for name, (changes, words) in told.items():
        folder = make_run(tmp_path / name, THREE, **changes)
        assert words in server_place(folder) and bool(server_place(folder)) == bool(words)
        sheet = read(write_report(folder)).text.partition("Disclosure, from the ledger alone.")[2]
        assert sheet.count("what the server sees") == ("what the server sees" in words)
        assert sheet.count("one process") == (name == "here")


def test_the_sheet_says_by_which_certificates_and_under_whose_policies(tmp_path: Path) -> None:
    whole = "SHA256:" + ":".join(["AB"] * 32)
    parties = {"silo-0": {"permits": "open", "certificate": whole}, "silo-1": {"permits": "12" * 8}}
    folder = make_run(tmp_path / "run", THREE, wire="authenticated", parties=parties)
    said = wire_and_parties(folder)
    assert "wire between hosts was authenticated" in said and "silo-0 (SHA256:AB:AB:AB:AB:AB:AB:AB:AB…);" in said
    assert "silo-1 let leave what a policy of its own permits" in said and "12121212" not in said
    assert said in " ".join(read(write_report(folder)).text.split())
    assert wire_and_parties(make_run(tmp_path / "alone", THREE)) == ""


def test_merged_runs_say_that_one_party_held_everything(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", {"silo-0": 0.9}, "centralised")
    (part,) = disclosure(folder)
    assert part.title == "One party held everything" and "Nothing crossed between silos" in part.lead
    assert "simulation" in part.lead
    assert "What left a silo" not in read(write_report(folder)).text
    (row,) = comparison([folder])
    assert row.merged and row.bytes is None and row.epsilon == float("inf")


def test_one_silo_nothing_sent_nothing_scored(tmp_path: Path) -> None:
    none: dict[str, Any] = {"lines": [], "history": False, "notes": None, "steps": 0}
    folder = make_run(tmp_path / "run", {"silo-0": None}, "local", **none)
    page = read(write_report(folder))
    assert "Nothing: the ledger is empty" in page.text and "epsilon is 0" in page.text
    assert page.table("Silo")[0][-1] == "–"
    assert comparison([folder])[0].epsilon == 0
    read(write_comparison([folder, make_run(tmp_path / "other", THREE)], tmp_path / "out"))
