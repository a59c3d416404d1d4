"""Files that are never half written, and errors of the disk in words."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isthmus.core.errors import IsthmusError


def write_atomic(path: Path, content: bytes) -> None:
    """Write beside, then rename over: a killed process never leaves half a file.

    Not flushed to the disk, which would cost more than an epoch; after a power cut checksums tell what is damaged.
    """
    temporary = path.with_name(f".{path.name}.{os.environ.get('RANK', '')}.{os.getpid()}")
    temporary.write_bytes(content)
    os.replace(temporary, path)


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
