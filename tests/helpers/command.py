"""The command line inside this process: what it printed, and how it ended."""

import io
import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq

from isthmus import cli

Argument = str | Path | int | float
SMALL: tuple[Argument, ...] = (
    "run", "--data", "blocks", "--silos", 3, "--epochs", 4,
    "--set", "data.nodes=64", "--set", "data.degree=3", "--set", "data.features=4", "--set", "data.classes=3",
    "--set", "model.hidden=8",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """Exit code, standard output and standard error of one command."""

    code: int
    out: str
    err: str


def isthmus(*arguments: Argument) -> Outcome:
    """``isthmus ARGUMENTS``, without the seconds that a new process needs to start."""
    out, err = io.StringIO(), io.StringIO()
    with patch.object(sys, "argv", ["isthmus", *map(str, arguments)]), redirect_stdout(out), redirect_stderr(err):
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    return Outcome(code, out.getvalue(), err.getvalue())


def succeed(*arguments: Argument) -> Outcome:
    """A command that must work."""
    outcome = isthmus(*arguments)
    assert outcome.code == 0, outcome.err
    return outcome


def refuse(*arguments: Argument, says: Sequence[str] = ()) -> str:
    """A command that must be refused: exit code 2 and one line on stderr, which says all of ``says``."""
    outcome = isthmus(*arguments)
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    message = outcome.err.strip()
    assert message.startswith("isthmus: ") and "\n" not in message, message
    for word in says:
        assert word in message, message
    return message


def history(folder: Path) -> list[dict[str, Any]]:
    """Every line of ``metrics.jsonl``."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def losses(folder: Path) -> list[float]:
    """The loss of every step."""
    return [line["loss"] for line in history(folder) if "valid" not in line]


def metrics(folder: Path) -> dict[str, Any]:
    """``metrics.json``, without what differs from time to time, or by how hosts were started (``wire``)."""
    found: dict[str, Any] = json.loads((folder / "metrics.json").read_text())
    found["link"] = {key: value for key, value in found["link"].items() if key not in ("compute_seconds", "seconds")}
    return {
        key: value
        for key, value in found.items()
        if not key.startswith("seconds") and key not in ("environment", "wire")
    }


def same_run(a: Path, b: Path, also: Sequence[str] = ()) -> None:
    """Two runs that left the same behind, bit for bit."""
    for name in ("metrics.jsonl", "model.safetensors", *also):
        assert (a / name).read_bytes() == (b / name).read_bytes(), name
    for name in ("ledger.parquet", "steps.parquet", "legs.parquet"):
        assert pq.read_table(a / name).equals(pq.read_table(b / name)), name
    assert metrics(a) == metrics(b)


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder and its content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
