"""Run folders made by hand, and a parser for the HTML pages of reports."""

import json
import re
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from isthmus.runs.folder import RunFolder
from isthmus.wire.books import COLUMNS

ODD = "<b>&bank"
THREE = {"silo-0": 0.812, "silo-1": 0.75, "silo-2": None}
LedgerLine = tuple[int, int, str, str, str, str, str, str, int, int, int]
Tests = Mapping[str, float | None]


def ledger_of(
    silos: Sequence[str], kinds: Sequence[str], event: str = "unprotected", epochs: int = 3
) -> list[LedgerLine]:
    """Ledger lines in which every silo sends each kind to the server and gets it back.

    Embeddings and adjoints go to the next silo instead.
    """
    lines: list[LedgerLine] = []
    for epoch in range(epochs + 1):
        when = (epoch, epoch, "step" if epoch else "setup")
        for i, silo in enumerate(silos):
            for kind in kinds:
                if kind in ("embeddings", "adjoints"):
                    peer = silos[(i + 1) % len(silos)]
                    lines.append((*when, silo, peer, kind, event, "", 2, 5 + i, 320 * (5 + i)))
                else:
                    lines.append((*when, silo, "server", kind, event, "", 1, 1 + i, 1000 + i))
                    lines.append((*when, "server", silo, kind, event, "", 1, 1, 700))
    return lines


def make_run(path: Path, tests: Tests, method: str = "fedavg", **changes: Any) -> RunFolder:
    """The folder of a finished run whose silos have the test scores ``tests``.

    Of ``changes``, ``lines`` are those of the ledger, ``history=False`` leaves the curves out, and all others replace
    values of ``metrics.json``.
    """
    numbered = [f"silo-{i}" for i in range(len(tests))]
    lines = changes.pop("lines", ledger_of(numbered, ["schema", "parameters"]))
    history = changes.pop("history", True)
    metrics = {**metrics_of(tests, method), **changes}
    path.mkdir(parents=True)
    (path / "config.toml").write_text(
        f'method = "{method}"\nseed = 0\n[data]\nname = {json.dumps(metrics["data"])}\nsilos = {len(tests)}\n'
        'split = "louvain"\n[model]\nname = "sage"\nlayers = 2\nhidden = 16\n[train]\nepochs = 3\n'
    )
    words = ("purpose", "sender", "receiver", "kind", "event", "model")
    types = [pa.string() if name in words else pa.int64() for name in COLUMNS]
    columns = [pa.array([line[i] for line in lines], kind) for i, kind in enumerate(types)]
    pq.write_table(pa.table(columns, names=list(COLUMNS)), path / "ledger.parquet")
    steps = [{"step": s, "epoch": s, "loss": 1 / s} for s in (1, 2, 3)]
    last = {"silo_valid": list(tests.values())}
    scored = [{**line, "valid": {"accuracy": 0.1 * line["step"]}, **last} for line in steps]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in steps + scored) * history)
    (path / "metrics.json").write_text(json.dumps(metrics))
    return RunFolder.open(path)


def metrics_of(tests: Tests, method: str) -> dict[str, Any]:
    """The final metrics of a run whose silos have the test scores ``tests``."""
    known = [value for value in tests.values() if value is not None]
    each = {silo: {"accuracy": value, "macro_f1": None} for silo, value in tests.items()}
    split = {"accuracy": sum(known) / len(known) if known else None, "macro_f1": None, "silos": each}
    sizes = {silo: {"nodes": 1200 + i, "train": 40, "halo": 7} for i, silo in enumerate(tests)}
    return {
        **{"method": method, "merged": method == "centralised", "data": "blocks", "model": "sage"},
        **{"silos": len(tests), "seed": 0},
        **{"epochs": 3, "steps": 3, "metric": "accuracy", "valid": split, "test": split, "best_epoch": [2]},
        **{"seconds": 75.0, "epsilon": {}, "notes": [], "hosts": 1, "silo_nodes": sizes},
        "environment": {"finished": "2031-02-03T04:05:06+00:00", "python": "3.11", "device": "cpu"},
    }


def make_seeds(path: Path) -> RunFolder:
    """The folder of a run with two seeds, which holds deviations, and copies of the first seed's files."""
    spread = {"accuracy": 0.01, "silos": {s: {"accuracy": 0.02} for s in THREE}}
    folder = make_run(path, THREE, seeds=[0, 1], test_std=spread, valid_std=spread)
    make_run(path / "seed-0", THREE)
    make_run(path / "seed-1", {**THREE, "silo-0": 0.612})
    return folder


class Page(HTMLParser):
    """A parsed page: its text, tables as rows of text, links and hover texts; raises where a tag is not closed."""

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
        """The rows of the first table whose head begins with the titles ``head``."""
        return next(rows[1:] for rows in self.tables if rows[0][: len(head)] == list(head))


def read(path: Path) -> Page:
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert "http" not in text
    for link in page.links:  # to a section, or to the report of a run that lies there
        assert link.startswith("#") or (path.parent / unquote(link)).is_file(), link
    assert not page.tags & {"script", "link", "iframe", "object"}
    assert not re.search(r"url\((?!#)|@import", text)
    ids = re.findall(r' id="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    return page
