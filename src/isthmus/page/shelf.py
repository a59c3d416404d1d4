"""The folder that the page shows: which runs lie in it, and which files of it may be read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.core.errors import IsthmusError
from isthmus.runs.text import count_text

SIGNS = ("config.toml", "metrics.json", "metrics.jsonl", ".lock")  # files of which a run folder has one
HERE = "."  # the name of a run whose folder is the one that the page shows
_DEEPEST = 6  # folders below the one that is shown
_MOST_RUNS, _MOST_FOLDERS = 5_000, 50_000
_UNREAD = ("parts",)  # copies of a run's data, which the page has no business with


@dataclass
class RunsFound:
    """Names of the runs in a folder, ascending, and sentences on what was left out."""

    names: list[str]
    notes: list[str]


class Shelf:
    """A folder that holds runs; names of runs are paths below it, and nothing outside it is ever read."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise IsthmusError(f"'{root}' is no folder; give one that holds runs, like: isthmus page runs")
        self.root = root.resolve()

    def find(self) -> RunsFound:
        """Every run below the folder; links are not followed, and counted."""
        walk = _Walk()
        names = sorted(walk.below(self.root, HERE, 0))
        links = count_text(walk.links, "link")
        notes = [f"Not followed: {links} to folders; move the runs here to see them."] if walk.links else []
        if walk.closed:
            notes.append(f"Not readable by this user: {count_text(walk.closed, 'folder')}.")
        if walk.unnamed:
            notes.append(
                f"Names that are no text: {count_text(walk.unnamed, 'folder')}; rename them to see what they hold."
            )
        if walk.full:
            notes.append("There are more folders than are looked at; give a smaller one, like: isthmus page runs/today")
        return RunsFound(names, notes)

    def open(self, name: str) -> Path:
        """The folder of the run of a name; raises where there is none, or where it or a file of it leads outside."""
        parts = name.split("/")
        odd = name != HERE and any(part in ("", ".", "..") or part.startswith(".") for part in parts)
        if odd or "\0" in name or len(name) > 4000:
            raise IsthmusError("There is no run of that name here.")
        path = self.root if name == HERE else self.root.joinpath(*parts)
        try:
            known = path.is_dir() and is_run(path)
        except OSError:
            known = False
        if not known:
            raise IsthmusError("There is no run of that name here; it may have been moved or deleted.")
        if path.resolve() != path:
            raise IsthmusError("That name leads over a link, which this page does not follow.")
        self.check_links(path)
        return path

    def check_links(self, run: Path) -> None:
        """Raise where something in a run folder is a link that leads out of the folder that the page shows."""
        for path in _links(run, 3):
            if not path.resolve().is_relative_to(self.root):
                raise IsthmusError(
                    f"'{path.relative_to(run)}' in this run is a link that leads out of the folder that the page "
                    "shows, so nothing of the run is read; put the file itself there."
                )


class _Walk:
    """One look through folders: what it has met that it does not show."""

    def __init__(self) -> None:
        self.links = self.closed = self.unnamed = self.folders = self.runs = 0
        self.full = False

    def below(self, folder: Path | str, name: str, depth: int) -> Iterator[str]:
        """Yield the names of runs in a folder, or its own if it is one; nothing is looked for within runs."""
        if self.folders >= _MOST_FOLDERS or self.runs >= _MOST_RUNS:
            self.full = True
            return
        self.folders += 1
        try:
            with os.scandir(folder) as scan:
                entries = list(scan)
        except OSError:
            self.closed += 1
            return
        if _has_sign({entry.name for entry in entries}):
            self.runs += 1
            yield name
            return
        for entry in entries:
            yield from self._inside(entry, name, depth)

    def _inside(self, entry: os.DirEntry[str], name: str, depth: int) -> Iterator[str]:
        """Yield the names of runs in one entry of a folder."""
        if entry.is_symlink():
            self.links += entry.is_dir()
        elif entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False):
            return
        elif not _is_text(entry.name):
            self.unnamed += 1
        elif depth >= _DEEPEST:
            self.full = True
        else:
            yield from self.below(entry.path, entry.name if name == HERE else f"{name}/{entry.name}", depth + 1)


def is_run(path: Path) -> bool:
    """Whether a folder is that of a run, however far it has come."""
    return _has_sign(set(os.listdir(path)))


def _has_sign(names: set[str]) -> bool:
    return any(sign in names for sign in SIGNS) or any(name.startswith("status-host-") for name in names)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _links(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the links in a folder and in those below it, but for copies of data."""
    try:
        with os.scandir(folder) as scan:
            entries = list(scan)
    except OSError:
        return
    for entry in entries:
        if entry.is_symlink():
            yield Path(entry.path)
        elif depth and entry.name not in _UNREAD and entry.is_dir(follow_symlinks=False):
            yield from _links(Path(entry.path), depth - 1)


def bounded(path: Path, most: int) -> Path:
    """The path of a file that is read; raises where it is larger than what the page reads of such a file."""
    size = path.stat().st_size
    if size > most:
        raise IsthmusError(
            f"'{path.name}' has {size / 1e6:,.0f} MB, more than the {most / 1e6:,.0f} MB that the page reads; look at "
            "the file itself."
        )
    return path


def stamp(path: Path) -> tuple[Any, ...]:
    """What changes when a file does: its time, size and inode; empty where there is none."""
    try:
        known = path.stat()
    except OSError:
        return ()
    return known.st_mtime_ns, known.st_size, known.st_ino
