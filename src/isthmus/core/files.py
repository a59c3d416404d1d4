"""Files that are never half written, and errors of the disk in words."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isthmus.core.errors import IsthmusError

_OF_DISKS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


def write_atomic(path: Path, content: bytes) -> None:
    """Write beside, then rename over: a killed process never leaves half a file.

    Not flushed to the disk, which would cost more than an epoch; after a power cut checksums tell what is damaged.
    """
    temporary = path.with_name(f".{path.name}.{os.environ.get('RANK', '')}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)  # half a file is of no use, and takes room that is short
        error.filename = str(path)
        raise


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
        why = os.strerror(error.errno)
        raise IsthmusError(f"{what} cannot be written: {why}. Make room; a run then goes on with --resume.") from error


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
