"""Run folders: the files that a run leaves behind, and how other commands read them."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from isthmus.core.errors import HostLost, IsthmusError
from isthmus.core.files import write_atomic, writing
from isthmus.runs.tables import LEDGER, LEGS, STEPS, read_columns

if TYPE_CHECKING:
    import pyarrow as pa

_T = TypeVar("_T")
LOCK = ".lock"
FORGOTTEN = "forgotten.json"  # in a run whose rows were deleted


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run: config.toml, metrics.jsonl, metrics.json, ledger.parquet, model.safetensors, ...

    ``shared``: several hosts write into it, so that what is one party's own lies in ``parties/NAME`` below it.
    """

    path: Path
    shared: bool = False

    @property
    def parties(self) -> list[RunFolder]:
        """The folders of single parties below this one."""
        return [RunFolder(path.parent) for path in sorted(self.path.glob("parties/*/metrics.json"))]

    @staticmethod
    def create(path: Path, resume: bool, overwrite: bool) -> RunFolder:
        """Make the folder of a new run, or take an existing one to ``resume`` or ``overwrite``; else raise."""
        if path.exists() and not path.is_dir():
            raise IsthmusError(f"'{path}' is a file; choose another --out.")
        if path.exists() and _entries(path):
            if overwrite:
                _refuse_foreign(path)
                shutil.rmtree(path)
            elif not resume:
                raise IsthmusError(
                    f"'{path}' already holds a run; use --resume to continue it, --overwrite to replace it."
                )
            elif (path / FORGOTTEN).is_file():
                raise IsthmusError(
                    f"The checkpoints of '{path}' were deleted with its rows (isthmus forget); it cannot go on. Start "
                    "again with --overwrite, or choose another --out."
                )
            elif not (path / "config.toml").is_file():
                raise IsthmusError(f"'{path}' holds files but no run to resume; choose another --out.")
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        return RunFolder(path)

    @property
    def begun(self) -> bool:
        """Whether the folder holds checkpoints or final metrics."""
        signs = ("metrics.json", "checkpoint/epoch-*", "seed-*/metrics.json", "seed-*/checkpoint/epoch-*")
        return any(any(self.path.glob(sign)) for sign in signs)

    @staticmethod
    def open(path: str | Path) -> RunFolder:
        """The folder of a finished run; raises if it is none."""
        folder = RunFolder(Path(path))
        for name in ("config.toml", "metrics.json"):
            if not (folder.path / name).is_file():
                what = (
                    "has not finished (no metrics.json)"
                    if (folder.path / "config.toml").is_file()
                    else "is not a run (no config.toml)"
                )
                raise IsthmusError(f"'{path}' {what}; give the folder of a finished run, like runs/demo/fedavg.")
        return folder

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved configuration: the content of ``config.toml``."""
        return self._read("config.toml", _settings_in)

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """The final metrics: the content of ``metrics.json``."""
        return self._read("metrics.json", _table_in)

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """The lines of ``metrics.jsonl``: losses by step and validation scores by epoch."""
        return self._read(
            "metrics.jsonl", lambda path: [json.loads(line) for line in path.read_text().splitlines() if line]
        )

    @cached_property
    def ledger(self) -> pa.Table:
        """The ledger (``ledger.parquet``): who sent how much of what to whom, and when."""
        return self._read("ledger.parquet", partial(read_columns, LEDGER))

    @cached_property
    def steps(self) -> pa.Table:
        """The table ``steps.parquet``: how much of what was sent, by step and purpose."""
        return self._read("steps.parquet", partial(read_columns, STEPS))

    @cached_property
    def legs(self) -> pa.Table:
        """The table ``legs.parquet``: how many one-way trips followed each other, by step and purpose."""
        return self._read("legs.parquet", partial(read_columns, LEGS))

    def _read(self, name: str, how: Callable[[Path], _T]) -> _T:
        """The content of a file; raises a clear error if it is damaged or missing."""
        try:
            return how(self.path / name)
        except PermissionError as error:  # not damaged: another user's
            error.filename = error.filename or str(self.path / name)
            raise
        except (ValueError, OSError) as error:  # what TOML, JSON, Arrow and the disk raise
            reason = str(error).splitlines()[0]
            raise IsthmusError(
                f"'{self.path / name}' is damaged or missing ({reason}); repeat the run, or go on with --resume."
            ) from error

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file in one move, so that a half-written file is never read."""
        write_atomic(self.path / name, (json.dumps(value, indent=2) + "\n").encode())


def _settings_in(path: Path) -> dict[str, Any]:
    """The settings that ``config.toml`` holds; raises ``ValueError`` where it holds no configuration of a run."""
    found = tomllib.loads(path.read_text())
    if lacking := {"method", "data"} - found.keys():
        raise ValueError(f"it has no {' and no '.join(sorted(lacking))}")
    return found


def _table_in(path: Path) -> dict[str, Any]:
    """The table that a JSON file holds; raises ``ValueError`` where it holds something else."""
    found = json.loads(path.read_text())
    if not isinstance(found, dict):
        raise ValueError("it holds no table")
    return found


@contextmanager
def claimed(path: Path, resume: bool, overwrite: bool) -> Iterator[RunFolder]:
    """Yield the folder of a run while it runs.

    A run that is overwritten is moved to a hidden folder until the new run has a checkpoint or metrics. If the new run
    is refused before that (bad data, a configuration that cannot work), the old one is restored.
    """
    aside = path.absolute().with_name(f".{path.absolute().name}.replaced")
    with ExitStack() as locks:
        held = locks.enter_context(locked(path)) if path.is_dir() else None  # before anything is moved
        _put_back(path, aside, overwrite)
        was = _entries(path) if path.is_dir() else None
        if overwrite and was:
            _refuse_foreign(path)
            path.rename(aside)
        folder = RunFolder.create(path, resume, overwrite=False)
        if held is None or not _lies_at(held, path / LOCK):
            locks.enter_context(locked(path))
        with _kept_or_restored(folder, aside, was, overwrite):
            yield folder


@contextmanager
def _kept_or_restored(folder: RunFolder, aside: Path, was: list[Path] | None, overwrite: bool) -> Iterator[None]:
    """Restore what ``was`` in the folder of a run that is refused before it has begun."""
    path = folder.path
    try:
        yield
    except (IsthmusError, OSError) as error:
        if (overwrite or not was) and not folder.begun and not isinstance(error, HostLost):
            _clear(path, keep=was is not None)
            _put_back(path, aside, overwrite)
        raise
    finally:
        if folder.begun:
            shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def locked(path: Path) -> Iterator[IO[str]]:
    """Lock a folder for this process, or raise if another holds it; a lock ends with the process that held it."""
    with writing(path):
        file = open(path / LOCK, "w")  # noqa: SIM115 - it stays open as long as the folder is kept
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = _lies_at(file, path / LOCK)  # False if the process that had the lock just deleted the file
        except BlockingIOError:
            free = False
        if not free:
            raise IsthmusError(
                f"'{path}' is in use by another process; wait until that has ended, or choose another --out."
            )
        try:
            yield file
        finally:
            (path / LOCK).unlink(missing_ok=True)


def _lies_at(file: IO[str], path: Path) -> bool:
    """Whether an open file is the one that is found under a path."""
    return path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())


def _entries(path: Path) -> list[Path]:
    """What is in a folder, apart from its lock."""
    return sorted(entry for entry in path.iterdir() if entry.name != LOCK)


def _put_back(path: Path, aside: Path, overwrite: bool) -> None:
    """Restore the hidden folder ``aside`` if the run at ``path`` has no results; delete it if it has."""
    if not aside.exists():
        return
    if RunFolder(path).begun:
        shutil.rmtree(aside, ignore_errors=True)
    elif overwrite or not path.exists():
        shutil.rmtree(path, ignore_errors=True)
        aside.rename(path)


def _clear(path: Path, keep: bool) -> None:
    """Remove the folder of a refused run; with ``keep`` leave it empty, because it existed before."""
    shutil.rmtree(path, ignore_errors=True)
    if keep:
        path.mkdir(exist_ok=True)


def _refuse_foreign(path: Path) -> None:
    """Raise unless a folder is a run or holds only runs: ``--overwrite`` must not delete anything else."""
    pages = ("comparison.html", "comparison.json", "report.html")
    of_runs = all(_is_run(each) if each.is_dir() else each.name in pages for each in _entries(path))
    if not _is_run(path) and not of_runs:
        raise IsthmusError(f"'{path}' holds files but is not a run folder; --overwrite will not delete it.")


def _is_run(path: Path) -> bool:
    """Whether a folder is empty or has a ``config.toml`` of this package; other programs have such files too."""
    if not _entries(path):
        return True
    try:
        return {"method", "data", "model", "train"} <= tomllib.loads((path / "config.toml").read_text()).keys()
    except (OSError, ValueError):
        return False
