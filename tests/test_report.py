"""What a report must not get wrong: every silo and kind is there, bytes add up, user text stays text."""

import io
import json
import re
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from isthmus.errors import IsthmusError
from isthmus.run.compare import cautions, comparison, comparison_table, write_comparison
from isthmus.run.disclosure import WORDS, disclosure, in_short, read_flows
from isthmus.run.folder import RunFolder
from isthmus.run.plots import bytes_text, gain_text, list_names, metric_label, score_text
from isthmus.run.report import curves, epsilons, score, silo_names, write_report
from isthmus.wire.ledger import COLUMNS, KINDS

ODD = "<b>&bank"
Line = tuple[int, int, str, str, str, str, int, int, int]


def ledger_of(silos: Sequence[str], kinds: Sequence[str], event: str = "unprotected", epochs: int = 3) -> list[Line]:
    """Every silo sends each kind to the server and gets it back; embeddings and adjoints go to a peer."""
    lines: list[Line] = []
    for epoch in range(epochs + 1):
        for i, silo in enumerate(silos):
            for kind in kinds:
                if kind in ("embeddings", "adjoints"):
                    peer = silos[(i + 1) % len(silos)]
                    lines.append((epoch, epoch, silo, peer, kind, event, 2, 5 + i, 320 * (5 + i)))
                else:
                    lines.append((epoch, epoch, silo, "server", kind, event, 1, 1 + i, 1000 + i))
                    lines.append((epoch, epoch, "server", silo, kind, event, 1, 1, 700))
    return lines


Tests = Mapping[str, float | None]


def make_run(path: Path, tests: Tests, method: str = "fedavg", **changes: Any) -> RunFolder:
    """A finished run whose silos scored ``tests``; other ``changes`` than the three go into its metrics."""
    lines = changes.pop("lines", None)
    data = changes.pop("data", "blocks")
    history = changes.pop("history", True)
    silos, numbered = list(tests), [f"silo-{i}" for i in range(len(tests))]
    lines = ledger_of(numbered, ["schema", "parameters"]) if lines is None else lines
    path.mkdir(parents=True)
    quoted = json.dumps(data)
    (path / "config.toml").write_text(
        f'method = "{method}"\nseed = 0\n[data]\nname = {quoted}\nsilos = {len(silos)}\nsplit = "louvain"\n'
        '[model]\nname = "sage"\nlayers = 2\nhidden = 16\n[train]\nepochs = 3\n'
    )
    types = {"sender", "receiver", "kind", "event"}
    columns = {
        name: pa.array([line[i] for line in lines], pa.string() if name in types else pa.int64())
        for i, name in enumerate(COLUMNS)
    }
    pq.write_table(pa.table(columns), path / "ledger.parquet")
    values = list(tests.values())
    steps = [{"step": s, "epoch": s, "loss": 1 / s} for s in (1, 2, 3)]
    scored = [{**line, "valid": {"accuracy": 0.1 * line["step"]}, "silo_valid": values} for line in steps]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in steps + scored) * history)
    known = [value for value in values if value is not None]
    mean = sum(known) / len(known) if known else None
    each = {silo: {"accuracy": value, "macro_f1": None} for silo, value in tests.items()}
    split = {"accuracy": mean, "macro_f1": None, "silos": each}
    metrics = {
        "method": method,
        "data": data,
        "model": "sage",
        "silos": len(silos),
        "seed": 0,
        "epochs": 3,
        "steps": 3,
        "metric": "accuracy",
        "valid": split,
        "test": split,
        "best_epoch": [2],
        "seconds": 75.0,
        "epsilon": {},
        "notes": [],
        "hosts": 1,
        "silo_nodes": {s: {"nodes": 1200 + i, "train": 40, "halo": 7} for i, s in enumerate(silos)},
        "environment": {"python": "3.11", "device": "cpu"},
    }
    (path / "metrics.json").write_text(json.dumps({**metrics, **changes}))
    return RunFolder.open(path)


class Page(HTMLParser):
    """Reads a page: tables as rows of text, everything balanced, nothing that points elsewhere."""

    VOID = ("meta", "br", "hr", "img", "input", "link")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.hints: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self.hints.append(dict(attrs).get("title") or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "xlink:href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data

    def table(self, *head: str) -> list[list[str]]:
        """The rows of the table whose head starts so."""
        return next(rows[1:] for rows in self.tables if rows[0][: len(head)] == list(head))


def read(path: Path) -> Page:
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert "http" not in text
    assert all(link.startswith("#") for link in page.links)
    assert not page.tags & {"script", "link", "iframe", "object"}
    assert not re.search(r"url\((?!#)|@import", text)
    ids = re.findall(r' id="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    return page


THREE = {"silo-0": 0.812, "silo-1": 0.75, "silo-2": None}


def test_every_silo_and_its_numbers_are_in_the_report(tmp_path: Path) -> None:
    page = read(write_report(make_run(tmp_path / "run", THREE)))
    rows = page.table("Silo", "Nodes")
    assert [row[0] for row in rows] == list(THREE)
    assert rows[0] == ["silo-0", "1,200", "40", "7", "81.2 %", "81.2 %"]
    assert rows[2][-1] == "–"
    assert page.table("Metric")[1] == ["macro F1", "–", "–"]


def test_gain_is_the_difference_to_training_alone(tmp_path: Path) -> None:
    alone = make_run(tmp_path / "alone", {"silo-0": 0.7, "silo-1": 0.8, "silo-2": 0.5}, "local")
    page = read(write_report(make_run(tmp_path / "run", THREE), alone))
    gains = [row[-2:] for row in page.table("Silo", "Nodes")]
    assert gains == [["70.0 %", "+11.2"], ["80.0 %", "−5.0"], ["50.0 %", "–"]]
    mean = (0.812 + 0.75) / 2 - (0.7 + 0.8 + 0.5) / 3
    assert page.table("Metric")[0][-1] == f"{100 * mean:+.1f}"


@pytest.mark.parametrize("other", [{"data": "patterns"}, {"metric": "macro_f1"}])
def test_no_gain_over_a_run_that_cannot_be_compared(tmp_path: Path, other: dict[str, Any]) -> None:
    alone = make_run(tmp_path / "alone", THREE, "local", **other)
    page = read(write_report(make_run(tmp_path / "run", THREE), alone))
    assert page.table("Silo")[0][-1] == "81.2 %"
    assert "No gain over training alone is shown" in page.text


def test_bytes_in_the_table_add_up_to_the_ledger(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", THREE, lines=ledger_of(list(THREE), [k.value for k in KINDS]))
    page = read(write_report(folder))
    total = sum(folder.ledger["bytes"].to_pylist())
    sizes = [int(hint.split()[0].replace(",", "")) for hint in page.hints if hint.endswith("bytes")]
    setup, everything = sizes[0::2], sizes[1::2]  # each row: before training, in all
    assert everything[-1] == sum(everything[:-1]) == total
    assert setup[-1] == sum(setup[:-1]) == total // 4  # epoch 0 of 0..3
    assert page.table("Kind", "Messages")[-1][-1] == bytes_text(total)
    assert page.table("Kind", "Messages")[-1][4] == bytes_text(total / 3)


def test_transport_is_shown_for_several_hosts(tmp_path: Path) -> None:
    one = read(write_report(make_run(tmp_path / "one", THREE)))
    two = read(write_report(make_run(tmp_path / "two", THREE, hosts=2, transport={"parameters": 5000})))
    assert "Carried" not in one.text and "one process" in one.text
    assert two.table("Kind", "Messages")[-1][-1] == "5 kB" and "one process" not in two.text


def test_user_text_is_escaped_everywhere(tmp_path: Path) -> None:
    silos = {ODD: 0.5, 'x" onload="y$z$': 0.6}
    lines = [(1, 1, ODD, "server", "metrics", ODD, 1, 1, 8)]
    folder = make_run(tmp_path / "run", silos, lines=lines, notes=[ODD], environment={ODD: ODD}, data=ODD, model=ODD)
    other = make_run(tmp_path / ODD, silos, data=ODD)
    for path in (write_report(folder, folder), write_comparison([folder, other], tmp_path / "out")):
        page, markup = read(path), re.sub(r">[^<]*<", "><", path.read_text())
        assert page.text.count(ODD) > 3 and 'x" onload="y$z$' in page.text
        assert "bank" not in markup and "onload" not in markup


def test_every_kind_of_message_has_its_words() -> None:
    assert list(WORDS) == list(KINDS), "a new kind needs words in run/disclosure.py, in the ledger's order"
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
    asked = (1, 1, "silo-0", "silo-1", "ids", "unprotected", 1, 3, 24)
    lines = [*ledger_of(["silo-0", "silo-1"], ["metrics"]), asked]
    folder = make_run(tmp_path / "run", {"silo-0": 1, "silo-1": 0}, lines=lines)
    titles = [part.title for part in disclosure(folder)]
    assert titles == ["The server saw", "silo-0 saw", "silo-1 saw", "What did not cross"]


def test_all_kinds_of_the_ledger_are_in_the_sheet(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", THREE, lines=ledger_of(list(THREE), [k.value for k in KINDS]))
    assert {seen.kind for part in disclosure(folder) for seen in part.seen} == {k.value for k in KINDS}
    crossed, not_crossed = in_short(read_flows(folder))
    assert len(crossed) == len(KINDS) and len(not_crossed) == 1  # features have no kind at all
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


def test_bare_metrics_are_enough(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", THREE)
    (folder.path / "metrics.json").write_text('{"method": "mine", "test": {"accuracy": 0.5}}')
    assert "50.0 %" in read(write_report(RunFolder.open(folder.path))).text


def make_seeds(path: Path) -> RunFolder:
    """Two seeds; the folder itself holds means, deviations, and copies of the first seed's files."""
    spread = {"accuracy": 0.01, "silos": {s: {"accuracy": 0.02} for s in THREE}}
    folder = make_run(path, THREE, seeds=[0, 1], test_std=spread, valid_std=spread)
    make_run(path / "seed-0", THREE)
    make_run(path / "seed-1", {**THREE, "silo-0": 0.612})
    return folder


def test_several_seeds_show_deviations_and_sum_their_ledgers(tmp_path: Path) -> None:
    folder = make_seeds(tmp_path / "run")
    page = read(write_report(folder))
    assert page.table("Silo")[0][-1] == "81.2 ± 2.0 %"
    once = sum(folder.ledger["bytes"].to_pylist())
    assert page.table("Kind", "Messages")[-1][-1] == bytes_text(2 * once)
    assert curves(folder).silos[0] == pytest.approx([0.712] * 3)
    (row,) = comparison([folder])
    assert (row.bytes, row.bytes_per_step, row.seeds, row.deviation) == (once, once / 3, 2, 0.01)
    assert sum(flow.bytes for flow in read_flows(folder)) == 2 * once


def test_comparison_has_every_run_and_adds_nothing(tmp_path: Path) -> None:
    folders = [
        make_run(tmp_path / "alone", THREE, "local", lines=[]),
        make_run(tmp_path / "a", THREE),
        make_run(tmp_path / "b", {**THREE, "silo-2": 0.9}),
        make_seeds(tmp_path / "c"),
        make_run(tmp_path / "all", {"silo-0": 0.95}, "centralised"),
    ]
    rows = comparison(folders)
    assert [row.name for row in rows] == ["local", "fedavg (a)", "fedavg (b)", "fedavg (c)", "centralised"]
    page = read(write_comparison(folders, tmp_path / "out"))
    assert [row[0] for row in page.table("Run")] == [row.name for row in rows]
    assert [row[1:] for row in page.table("Silo")][2] == ["–", "–", "90.0 %", "–"]
    saved = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert [run["test"] for run in saved["runs"]] == [score(folder, "test", "accuracy") for folder in folders]
    assert [run["epsilon"] for run in saved["runs"]] == [0.0, "inf", "inf", "inf", "inf"]


def test_comparison_says_what_does_not_compare(tmp_path: Path) -> None:
    here = make_run(tmp_path / "a", THREE)
    there = make_run(tmp_path / "b", THREE, "fedprox", data="patterns", metric="macro_f1")
    assert cautions(comparison([here])) == []
    said = " ".join(cautions(comparison([here, there])))
    assert "blocks, patterns" in said and "accuracy, macro_f1" in said
    assert said in " ".join(read(write_comparison([here, there], tmp_path / "out")).text.split("\n"))


def test_comparison_table_keeps_names_as_they_are(tmp_path: Path) -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    folders = [make_run(tmp_path / "a", THREE, "[bold]mine"), make_seeds(tmp_path / "b")]
    console.print(comparison_table(comparison(folders)))
    text = console.export_text()
    assert "[bold]mine" in text and "78.1 ± 1.0 %" in text and "1 min" in text


def test_errors_tell_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(IsthmusError, match="nothing to compare; give the folders"):
        comparison([])
    gossip = (0, 0, "silo-0", "server", "gossip", "unprotected", 1, 1, 1)
    unknown = make_run(tmp_path / "a", THREE, lines=[gossip])
    with pytest.raises(IsthmusError, match="unknown kind gossip; update"):
        disclosure(unknown)
    (unknown.path / "ledger.parquet").unlink()
    with pytest.raises(IsthmusError, match=r"no ledger.parquet.*run again"):
        write_report(RunFolder.open(unknown.path))


@pytest.mark.filterwarnings("error")
def test_many_runs_fit(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / str(i), {"silo-0": i / 20}, f"method {i}") for i in range(20)]
    page = read(write_comparison(folders, tmp_path / "out"))
    assert len(page.table("Run")) == 20


@pytest.mark.filterwarnings("error")
def test_many_silos_fit(tmp_path: Path) -> None:
    silos = {f"silo-{i}": i / 40 for i in range(40)}
    folder = make_run(tmp_path / "run", silos, lines=ledger_of(list(silos), ["embeddings"], epochs=0))
    assert silo_names(folder) == list(silos)
    path = write_report(folder)
    read(path)
    assert path.stat().st_size < 500_000


def test_numbers_for_humans() -> None:
    sizes = {0: "0 B", 999: "999 B", 1000: "1 kB", 1340: "1.3 kB", 46_200_000: "46.2 MB", 999_700: "1.0 MB"}
    assert {size: bytes_text(size) for size in sizes} == sizes
    assert score_text("accuracy", 0.812) == "81.2 %" and score_text("mae", 1.23456) == "1.235"
    assert score_text("accuracy", None) == score_text("accuracy", float("nan")) == "–"
    assert gain_text("accuracy", 0.5, 0.6) == "−10.0" and gain_text("accuracy", None, 0.6) == "–"
    assert metric_label("pr_auc/C2") == "PR-AUC of C2" and metric_label("macro_f1") == "macro F1"
    assert list_names(["silo-0", "silo-2"]) == "silo-0 and silo-2" and list_names(["silo-3"]) == "silo-3"
