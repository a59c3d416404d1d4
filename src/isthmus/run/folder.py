"""A run folder: what a run leaves behind, and how other commands read it."""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.errors import IsthmusError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class RunFolder:
    """``config.toml``, ``metrics.jsonl``, ``metrics.json``, ``ledger.parquet``, ``model.safetensors``, ..."""

    path: Path

    @staticmethod
    def create(path: Path, resume: bool, overwrite: bool) -> RunFolder:
        """Make the folder, or take an existing one when asked to; a run is never overwritten by accident."""
        if path.exists() and not path.is_dir():
            raise IsthmusError(f"'{path}' is a file; choose another --out.")
        if path.exists() and any(path.iterdir()):
            if overwrite:
                _refuse_foreign(path)
                shutil.rmtree(path)
            elif not resume:
                raise IsthmusError(
                    f"'{path}' already holds a run; use --resume to continue it, --overwrite to replace it."
                )
        path.mkdir(parents=True, exist_ok=True)
        return RunFolder(path)

    @staticmethod
    def open(path: str | Path) -> RunFolder:
        """A finished run."""
        folder = RunFolder(Path(path))
        for name in ("config.toml", "metrics.json"):
            if not (folder.path / name).is_file():
                what = (
                    "has not finished (no metrics.json)" if (folder.path / "config.toml").is_file() else "is not a run"
                )
                raise IsthmusError(f"'{path}' {what}; give the folder of a finished run, like runs/demo/fedavg.")
        return folder

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved configuration."""
        return tomllib.loads((self.path / "config.toml").read_text())

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """The final metrics."""
        try:
            loaded: dict[str, Any] = json.loads((self.path / "metrics.json").read_text())
        except json.JSONDecodeError as error:
            raise IsthmusError(
                f"'{self.path / 'metrics.json'}' is damaged ({error}); run again with --resume."
            ) from error
        return loaded

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """Every line of ``metrics.jsonl``."""
        return [json.loads(line) for line in (self.path / "metrics.jsonl").read_text().splitlines() if line]

    @cached_property
    def ledger(self) -> pa.Table:
        """Who sent what to whom."""
        import pyarrow.parquet as pq

        return pq.read_table(self.path / "ledger.parquet")

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file in one move, so that nobody ever sees half of it."""
        write_atomic(self.path / name, (json.dumps(value, indent=2) + "\n").encode())


def _refuse_foreign(path: Path) -> None:
    """Only a run folder (or a folder of runs) may be overwritten; never somebody's home."""
    marks = ("config.toml", "checkpoint", "comparison.json", "runs.json")
    if not any((path / mark).exists() for mark in marks):
        raise IsthmusError(f"'{path}' holds files but is not a run folder; --overwrite will not delete it.")


def write_atomic(path: Path, content: bytes) -> None:
    """Write beside, then rename over: a killed process never leaves half a file.

    Not flushed to the disk, which would cost more than an epoch; after a power cut checksums tell what is damaged.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    os.replace(temporary, path)
