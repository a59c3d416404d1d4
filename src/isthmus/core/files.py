"""Files that are never half written, and errors of the disk in words."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from isthmus.core.errors import IsthmusError

_MAKE_ROOM = "Make room; a run that has a checkpoint goes on with --resume."
_ALLOW = "Give this user the right to read and write there, or use a folder of your own."
_OF_DISKS = {
    errno.ENOSPC: _MAKE_ROOM,
    errno.EDQUOT: _MAKE_ROOM,
    errno.EFBIG: _MAKE_ROOM,
    errno.EIO: "The disk has failed; copy what is left to another, and go on there with --resume.",
    errno.EROFS: "Nothing can be written there; mount it for writing, or copy the folder elsewhere.",
    errno.EACCES: _ALLOW,
    errno.EPERM: _ALLOW,
}


def write_atomic(path: Path, content: bytes) -> None:
    """Write beside, then rename over: a killed process never leaves half a file.

    Not flushed to the disk, which would cost more than an epoch; after a power cut checksums tell what is damaged.
    """
    temporary = path.with_name(f".{path.name}.{os.environ.get('RANK', '')}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):  # a disk that only reads refuses this too
            temporary.unlink(missing_ok=True)  # half a file is of no use, and takes room that is short
        error.filename = str(path)
        raise


def sweep(folder: Path) -> None:
    """Delete what `write_atomic` had begun in a folder when its process was killed, as far as it was this host."""
    left = re.compile(rf"\..+\.{os.environ.get('RANK', '')}\.[0-9]+")
    for path in folder.rglob(".*"):
        if left.fullmatch(path.name) and path.is_file():
            path.unlink(missing_ok=True)


def there(path: Path) -> bool:
    """Whether there is such a file or folder; there is none of a name that is longer than the disk allows."""
    try:
        return path.exists()
    except OSError:
        return False


def is_folder(path: Path) -> bool:
    """Whether there is such a folder."""
    return there(path) and path.is_dir()


@contextmanager
def telling_of_disks() -> Iterator[None]:
    """Turn what a disk refuses anywhere inside a ``with`` block into an error that tells what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in _OF_DISKS:
            raise
        what = f"'{error.filename}'" if error.filename else "A file"
        how = "used" if error.errno in (errno.EACCES, errno.EPERM) else "written"
        why = os.strerror(error.errno)
        raise IsthmusError(f"{what} cannot be {how}: {why}. {_OF_DISKS[error.errno]}") from error


@contextmanager
def private() -> Iterator[None]:
    """Let nobody but their owner read the files and folders that are made inside a ``with`` block."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the disk refuses inside a ``with`` block into an error that tells what to do."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise IsthmusError(f"'{path}' cannot be written: {why}; choose another --out.") from error
