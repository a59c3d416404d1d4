"""The disclosure sheet says what the ledger and metrics.json say, and nothing of what did not happen."""

import hashlib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from isthmus.core.kinds import KINDS, Kind
from isthmus.protect.accounting.guarantee import DP, EVERYTHING, METRIC, NODE, ROW, Guarantee
from isthmus.report.disclosed import disclosed_of_run
from isthmus.report.report import write_report
from isthmus.report.sheet import DisclosureSheet, Statement, sheet_of
from isthmus.report.sheet_page import write_sheet
from isthmus.runs.circumstances import WITHOUT_DEGREES, circumstances
from isthmus.runs.folder import RunFolder
from isthmus.runs.plain_words import WORDS
from tests.helpers.reports import THREE, ledger_of, make_run, make_seeds, read

EVIL = "<script>alert(1)</script>"
SCHEMA = {
    "features": 2, "labels": ["no", "yes"], "task": "classes", "target": "edge", "edge_features": 4, "timed": True,
    "feature_names": ["age", "income"], "edge_feature_names": ["amount", "paid=Euro", "paid=Yen", "a:b"],
}  # fmt: skip


def sheet(folder: RunFolder) -> DisclosureSheet:
    return sheet_of(disclosed_of_run(folder))


def test_amounts_and_recipients_are_those_of_the_ledger(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", THREE, lines=ledger_of(list(THREE), [kind.value for kind in KINDS]))
    made = sheet(folder)
    lines = pq.read_table(folder.path / "ledger.parquet").to_pylist()
    for each in (*made.leaving, *made.beside):
        mine = [line for line in lines if line["kind"] == each.kind]
        for what in ("messages", "rows", "bytes"):
            assert getattr(each, what) == sum(line[what] for line in mine)
        assert set(each.recipients) == {line["receiver"] for line in mine}
        assert not each.estimated and each.protection == ("unprotected",)
    assert {each.kind for each in (*made.leaving, *made.beside)} == {kind.value for kind in KINDS}
    assert [party.nodes for party in made.parties] == [1200, 1201, 1202]


def test_guarantees_are_those_of_the_metrics_the_worst_case_first(tmp_path: Path) -> None:
    figures = {"k": 50, "spread": 6.0, "rho": {"90": 1.5}, "epsilon": {"90": 4.0}}
    told = [
        Guarantee(EVERYTHING, NODE, DP, 9.5, 1e-4, 7, apart=("schema",)),
        Guarantee("embeddings", ROW, DP, 2.5, 1e-4, 3),
        Guarantee("embeddings", NODE, DP, 9.0, 1e-4, 7),
        Guarantee("embeddings", ROW, METRIC, 5.0, 1e-4, silos={"silo-0": figures}),
    ]
    lines = ledger_of(list(THREE), ["embeddings"], "Gaussian noise (clip 5, sigma 1)/node")
    made = sheet(make_run(tmp_path / "run", THREE, lines=lines, privacy=[each.as_dict() for each in told]))
    assert [(each.of, each.unit, each.notion, each.epsilon) for each in made.promises] == [
        (EVERYTHING, NODE, DP, 9.5), ("embeddings", NODE, DP, 9.0), ("embeddings", ROW, METRIC, 5.0),
        ("embeddings", ROW, DP, 2.5),
    ]  # fmt: skip
    metric = made.promises[2]
    assert metric.text == "4 at ρ, k" and "ρ = 1.5" in metric.about and "k = 50" in metric.about
    assert made.leaving[0].epsilon == "9" and "ε = 9.5 for one node, over everything." in made.verdict
    assert "promises next to nothing" not in made.verdict


def test_what_was_left_bare_is_named_and_what_no_epsilon_covers_stands_apart(tmp_path: Path) -> None:
    lines = ledger_of(list(THREE), ["schema", "ids", "metrics", "embeddings"])
    made = sheet(make_run(tmp_path / "run", THREE, lines=lines))
    assert [each.kind for each in made.leaving] == ["embeddings"] and made.leaving[0].epsilon == "∞"
    assert [each.kind for each in made.beside] == ["metrics", "ids", "schema"]
    assert {each.epsilon for each in made.beside} == {"not covered"}
    assert "no noise was added to embeddings of single nodes" in made.verdict
    none = sheet(make_run(tmp_path / "none", THREE, lines=ledger_of(list(THREE), ["schema", "ids"])))
    assert none.leaving == () and none.verdict.startswith("Beside names, ids, counts and scores nothing leaves")
    assert sheet(make_run(tmp_path / "empty", THREE, "local", lines=[])).verdict == "Nothing leaves a silo."


def test_hashes_are_those_of_the_files(tmp_path: Path) -> None:
    folder = make_seeds(tmp_path / "run")
    made = sheet(folder)
    assert list(made.hashes) == ["config.toml", "seed-0/ledger.parquet", "seed-1/ledger.parquet"]
    for name, digest in made.hashes.items():
        assert digest == hashlib.sha256((folder.path / name).read_bytes()).hexdigest()


def test_columns_are_named_and_values_of_one_column_counted(tmp_path: Path) -> None:
    columns = {"edges": [{"name": "iban", "kind": "unused", "why": "4,000 different words"}, {"name": "x"}]}
    made = sheet(make_run(tmp_path / "run", THREE, schema=SCHEMA, columns=columns))
    told = {line.term: line.text for line in made.columns}
    assert told["Features of nodes"] == "age, income"
    assert told["Features of edges"] == "amount, paid (2 values), a:b"
    assert told["Not used"] == "iban (4,000 different words)"
    assert told["Edges"] == "which nodes are linked, and when" and told["Labels"].startswith("of edges")
    trained = next(line.text for line in made.about if line.term == "What is trained")
    assert trained == "a model (sage) that predicts which of 2 classes every edge is of: no, yes"
    nameless = sheet(make_run(tmp_path / "other", THREE, schema=SCHEMA | {"feature_names": []}))
    assert nameless.columns[0].text == "2 columns without names"


def test_parties_certificates_policies_and_the_wire(tmp_path: Path) -> None:
    about = {"silo-0": {"certificate": "SHA256:ab", "permits": "open"}, "server": {"certificate": "SHA256:cd"}}
    changes: dict[str, Any] = {"hosts": 4, "server": {"host": 3, "beside": []}, "wire": "encrypted", "parties": about}
    made = sheet(make_run(tmp_path / "run", THREE, **changes))
    assert [party.name for party in made.parties] == [*THREE, "server"]
    assert (made.parties[0].certificate, made.parties[0].policy) == ("SHA256:ab", "open")
    assert made.server[0].text.startswith("The server ran in a process of its own") and made.server[0].blank
    assert made.server[1].text == "encrypted"
    assert made.signatures == (*THREE, "who runs the server")


def test_names_are_escaped_and_nothing_is_fetched(tmp_path: Path) -> None:
    silos = {EVIL: 0.5, 'x" onload="y': 0.6}
    lines = [(1, 1, "step", EVIL, "server", "embeddings", "unprotected", "", 1, 1, 8)]
    schema = SCHEMA | {"labels": [EVIL], "feature_names": [EVIL], "edge_feature_names": [EVIL]}
    told: dict[str, Any] = {"data": EVIL, "model": EVIL, "label": EVIL, "notes": [EVIL], "schema": schema}
    told |= {"parties": {EVIL: {"certificate": EVIL, "permits": EVIL}}, "wire": EVIL, "hosts": 2}
    folder = make_run(tmp_path / "run", silos, lines=lines, **told)
    made = sheet_of(disclosed_of_run(folder), Statement(EVIL, EVIL))
    page = read(write_sheet(made, tmp_path / "sheet.html"))
    assert page.text.count(EVIL) > 10 and "script" not in page.tags
    assert "@media print" in (tmp_path / "sheet.html").read_text()


def test_nothing_is_said_of_what_did_not_happen(tmp_path: Path) -> None:
    """The plainest run: no server that merges or corrects, no samples, no noise, no masks, no shares, no two hops."""
    names = ("schema", "ids", "ports", "metrics", "statistics", "gradients", "embeddings", "aggregates", "edges")
    folder = make_run(tmp_path / "run", THREE, lines=ledger_of(list(THREE), names))
    pages = [read(write_report(folder)).text, read(write_sheet(sheet(folder), tmp_path / "sheet.html")).text]
    for text in pages:
        for word in ("not cross", "masked", "shares", "corrects", "resumed", "are sampled", "two hops",
                     "where the server", "where edges carry", "where noise", "server computes on",
                     "split of each cross edge"):  # fmt: skip
            assert word not in text, word


def test_what_happened_is_said(tmp_path: Path) -> None:
    lines = [
        (1, 1, purpose, "silo-0", receiver, kind, "unprotected", "", 1, 1, 8)
        for receiver in ("silo-1", "server")
        for kind, purpose in (("ids", "step"), ("ids", "round"), ("ids", "correction"), ("partials", "step"))
    ]
    folder = make_run(tmp_path / "run", {"silo-0": 0.5, "silo-1": 0.6}, lines=lines)
    text = read(write_report(folder)).text
    for said in ("which of them a step needs", "its training has touched in a round", "keys of all nodes that the "
                 "server computes on", "a silo's part of an aggregate is"):  # fmt: skip
        assert said in text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("event", ["unprotected", "shares, 2 of which open", "masked, read as sums over groups of 8"])
def test_words_are_whole_sentences_in_every_circumstance(kind: Kind, event: str) -> None:
    every = [(each.value, purpose) for each in KINDS for purpose in ("step", "round", "correction")]
    for crossed in ([], every):
        happened = circumstances(crossed, [event, "noise/row"], {"exchange": {"hops": 2}}, "edge")
        for direction in ("up", "down", "peer", "handed_in", "handed_down", "between_devices"):
            said = WORDS[kind].meaning(direction, in_a_run=happened)
            assert (
                said[0].isupper() and said.endswith(".") and ".." not in said and " ," not in said and "  " not in said
            )
        assert WORDS[kind].source and not WORDS[kind].source.endswith(".")


def test_models_that_read_degrees_are_those_of_which_it_is_told() -> None:
    from isthmus.nn.model import LAYERS, MODELS

    for name, layer in LAYERS.items():
        assert layer.uses_degrees == (name not in WITHOUT_DEGREES)
    assert {name for name, model in MODELS.items() if not LAYERS[model.name].uses_degrees} <= set(WITHOUT_DEGREES)
