"""An append-only file of JSON lines, each with the hash of the one before: what is changed or cut off later shows.

Beside ``NAME`` lies ``NAME.head``: how many lines there are, and the hash of the last. A line is on the disk before
its head is, and both are before :meth:`ChainFile.append` returns. Whoever can write into the folder can make a new
chain; the hashes find accidents, and whoever kept a head elsewhere finds the rest.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from isthmus.core.errors import IsthmusError
from isthmus.core.files import private, writing

FIRST = "0" * 64  # what stands for the hash before the first line
_HASH = ', "hash": "'


def _hash(text: bytes) -> str:
    return hashlib.blake2b(text, digest_size=32).hexdigest()


def _line(content: Mapping[str, Any], before: str) -> tuple[bytes, str]:
    """A line of the file, and its hash, which covers every byte in front of it."""
    body = json.dumps({**content, "before": before})[:-1].encode()
    found = _hash(body)
    return body + f'{_HASH}{found}"}}\n'.encode(), found


def _head(lines: int, last: str) -> bytes:
    body = f"{lines} {last}"
    return f"{body} {_hash(body.encode())}\n".encode()


class ChainFile:
    """A chain that this process alone appends to; ``lines`` are those that it holds."""

    def __init__(self, path: Path, file: IO[bytes], lines: list[dict[str, Any]], last: str) -> None:
        self.path, self._file, self.lines, self._last = path, file, lines, last

    def append(self, contents: Sequence[Mapping[str, Any]]) -> None:
        """Append lines; when this returns they are on the disk."""
        text = b""
        for content in contents:
            line, self._last = _line(content, self._last)
            text += line
            self.lines.append(dict(content))
        self._file.write(text)
        self._file.flush()
        os.fsync(self._file.fileno())
        _write_head(self.path, len(self.lines), self._last)


@contextmanager
def appending(path: Path) -> Iterator[ChainFile]:
    """The chain of a file, made if there is none; locked for this process and checked from its first line on."""
    with private(), writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() and _head_of(path).exists():
            raise IsthmusError(f"Account '{path}' is missing, but '{_head_of(path)}' counts its lines; restore it.")
        file = open(path, "a+b")  # noqa: SIM115 - closed below, and open as long as it is locked
    with file:
        _lock(file, path)
        lines, last, whole = _read(path)
        if file.seek(0, os.SEEK_END) > whole:  # a line that a kill has cut off before it counted
            file.truncate(whole)
        with writing(path):
            _write_head(path, len(lines), last)
        yield ChainFile(path, file, lines, last)


def _lock(file: IO[bytes], path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise IsthmusError(
            f"Account '{path}' is in use by another run of this party; wait until that has ended: two runs at once "
            "could spend one budget twice."
        ) from None


def read_chain(path: Path) -> list[dict[str, Any]]:
    """The lines of a chain, checked; a run may append to it meanwhile."""
    if not path.is_file():
        raise IsthmusError(f"There is no account '{path}'.")
    return _read(path)[0]


def _read(path: Path) -> tuple[list[dict[str, Any]], str, int]:
    """The lines of a chain, the hash of the last, and the bytes of all whole lines; raises where one does not fit."""
    counted, known = _read_head(path)
    raw = path.read_bytes()
    *texts, rest = raw.split(b"\n")
    lines, last = list[dict[str, Any]](), FIRST
    for number, text in enumerate(texts, 1):
        content = _checked(text, last)
        if content is None:
            raise _damaged(path, number, "is not what was written, or a line before it is gone")
        last = text[-66:-2].decode()
        lines.append({key: value for key, value in content.items() if key not in ("before", "hash")})
        if number == counted and last != known:
            raise _damaged(path, number, f"is not the one that '{_head_of(path).name}' has counted")
    if len(lines) < counted:
        raise _damaged(path, len(lines) + 1, f"is cut off or missing: {counted} lines were written")
    return lines, last, len(raw) - len(rest)


def _checked(text: bytes, before: str) -> dict[str, Any] | None:
    """The content of a line; None where it does not fit its hash, or the line before."""
    body, end = text[: -66 - len(_HASH)], text[-66 - len(_HASH) :]
    if end != f'{_HASH}{_hash(body)}"}}'.encode():
        return None
    content: dict[str, Any] = json.loads(text)
    return content if content["before"] == before else None


def _head_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.head")


def _read_head(path: Path) -> tuple[int, str]:
    """How many lines were written, and the hash of the last; (0, ...) for a chain without lines or head."""
    head = _head_of(path)
    if not head.is_file():
        if path.stat().st_size:
            raise IsthmusError(f"'{head}', which counts the lines of account '{path}', is missing; restore it.")
        return 0, FIRST
    text = head.read_bytes()
    words = text.decode(errors="replace").split()
    lines = int(words[0]) if len(words) == 3 and words[0].isascii() and words[0].isdigit() else -1
    if lines < 0 or text != _head(lines, words[1]):
        raise IsthmusError(f"'{head}', which counts the lines of account '{path}', is damaged; restore it.")
    return lines, words[1]


def _write_head(path: Path, lines: int, last: str) -> None:
    head = _head_of(path)
    beside = head.with_name(f".{head.name}")
    with private(), open(beside, "wb") as file:
        file.write(_head(lines, last))
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, head)


def _damaged(path: Path, number: int, how: str) -> IsthmusError:
    return IsthmusError(
        f"Account '{path}' is damaged: line {number} {how}. What was spent is not known any more: restore the file "
        "from a copy; to begin anew, move it and its .head away, which forgets what has left."
    )
