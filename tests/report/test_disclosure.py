"""What the disclosure sheet must tell: every kind, every party, and the epsilon that the ledger allows."""

from pathlib import Path
from typing import Any

from isthmus.core.kinds import KINDS
from isthmus.report.compare import comparison, write_comparison
from isthmus.report.disclosure import disclosure, in_short
from isthmus.report.report import write_report
from isthmus.runs.plain_words import WORDS
from isthmus.runs.summary import epsilons, read_flows
from tests.helpers.reports import THREE, ledger_of, make_run, read


def test_every_kind_of_message_has_its_words() -> None:
    assert list(WORDS) == list(KINDS), "a new kind needs words in run/words.py, in the ledger's order"
    for words in WORDS.values():
        assert words.name and words.risk.endswith(".")
        assert all(words.meaning(direction).endswith(".") for direction in ("up", "down", "peer"))


def test_disclosure_tells_what_each_party_saw(tmp_path: Path) -> None:
    lines = ledger_of(["silo-0", "silo-1", "silo-2"], ["parameters", "embeddings"])
    server, silos, absent = disclosure(make_run(tmp_path / "run", THREE, lines=lines))
    assert server.title == "The server saw" and [s.kind for s in server.seen] == ["parameters"]
    assert server.seen[0].sender == "silo-0 to silo-2"
    assert server.seen[0].amounts == "12 messages, 24 rows, 12.0 kB"
    assert "inversion" in server.seen[0].meaning and "epsilon is infinite" in server.seen[0].protection
    assert silos.title == "Each of silo-0 to silo-2 saw"
    assert [seen.kind for seen in silos.seen] == ["parameters", "embeddings"]
    assert [seen.sender for seen in silos.seen] == ["the server", "other silos"]
    assert silos.seen[1].amounts == "8 messages, 20 to 28 rows, 6.4 kB to 9.0 kB each"
    assert any(point.startswith("Gradients") for point in absent.points)
    assert not any(point.startswith(("Model weights", "Embeddings")) for point in absent.points)
    assert "but embeddings are computed from them" in absent.points[0]


def test_disclosure_splits_parties_that_saw_different_things(tmp_path: Path) -> None:
    asked = (1, 1, "step", "silo-0", "silo-1", "ids", "unprotected", 1, 3, 24)
    lines = [*ledger_of(["silo-0", "silo-1"], ["metrics"]), asked]
    folder = make_run(tmp_path / "run", {"silo-0": 1, "silo-1": 0}, lines=lines)
    titles = [part.title for part in disclosure(folder)]
    assert titles == ["The server saw", "silo-0 saw", "silo-1 saw", "What did not cross"]


def test_node_features_stay_at_home_unless_sums_of_them_crossed(tmp_path: Path) -> None:
    for kind, stay in (("embeddings", True), ("aggregates", False)):
        folder = make_run(tmp_path / kind, THREE, lines=ledger_of(list(THREE), [kind]))
        crossed, not_crossed = in_short(read_flows(folder))
        assert ("sums of raw node features" in crossed) != stay
        assert not_crossed[0].startswith("node features" if stay else "edge features")
        *seen, absent = disclosure(folder)
        assert any(point.startswith("Node features") for point in absent.points) == stay
        text = read(write_report(folder)).text
        assert ("A sum over one neighbour is that neighbour's features, as they are" in text) != stay
        assert ("did not cross: node features" in text.lower()) == stay


def test_all_kinds_of_the_ledger_are_in_the_sheet(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", THREE, lines=ledger_of(list(THREE), [k.value for k in KINDS]))
    assert {seen.kind for part in disclosure(folder) for seen in part.seen} == {k.value for k in KINDS}
    crossed, not_crossed = in_short(read_flows(folder))
    assert len(crossed) == len(KINDS) and not not_crossed
    text = read(write_report(folder)).text
    assert all(words.meaning("peer") in text or words.meaning("up") in text for words in WORDS.values())


def test_protected_messages_have_the_epsilon_of_the_accountant(tmp_path: Path) -> None:
    lines = ledger_of(list(THREE), ["embeddings"], "gaussian/node") + ledger_of(list(THREE), ["metrics"])
    folder = make_run(tmp_path / "run", THREE, lines=lines, epsilon={"embeddings": 2.5, "metrics": 1.0})
    assert epsilons(folder) == {"embeddings": 2.5, "metrics": float("inf")}  # what left bare has no bound
    rows = read(write_report(folder)).table("Kind", "Protection")
    assert [row[-1] for row in rows] == ["2.5", "∞"] and "gaussian" in rows[0][1]


def test_merged_runs_say_that_one_party_held_everything(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", {"silo-0": 0.9}, "centralised")
    (part,) = disclosure(folder)
    assert part.title == "One party held everything" and "Nothing crossed between silos" in part.lead
    assert "simulation" in part.lead
    assert "Did not cross" not in read(write_report(folder)).text
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
