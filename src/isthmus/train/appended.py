"""Files that a run adds to as it goes, each known to a checkpoint by its size and checksum."""

from __future__ import annotations

import zlib
from pathlib import Path

from isthmus.core.errors import IsthmusError
from isthmus.core.files import write_atomic


class Appended:
    """One file that grows; ``mark`` tells a checkpoint how far it has come, ``read`` checks it against a mark."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = self.checksum = 0  # as of the last mark

    def append(self, content: bytes) -> None:
        """Write ``content`` at the end of the file."""
        with open(self.path, "ab") as file:
            file.write(content)

    def mark(self) -> list[int]:
        """Size and checksum of the whole file; only what was added since the last mark is read."""
        if self.path.is_file():
            with open(self.path, "rb") as file:
                file.seek(self.size)
                added = file.read()
            self.size, self.checksum = self.size + len(added), zlib.crc32(added, self.checksum)
        return [self.size, self.checksum]

    def read(self, mark: list[int]) -> bytes:
        """The content up to a mark; raises where it is not what was marked."""
        size, checksum = mark
        content = self.path.read_bytes()[:size] if self.path.is_file() else b""
        if len(content) < size:
            raise IsthmusError(f"'{self.path}' is shorter than its checkpoint says; start again with --overwrite.")
        if zlib.crc32(content) != checksum:
            raise IsthmusError(
                f"'{self.path}' is damaged: its checksum is not that of its checkpoint; start again with --overwrite."
            )
        return content

    def cut_back(self, mark: list[int]) -> None:
        """Drop what was added after a mark."""
        self.size, self.checksum = mark
        with open(self.path, "ab") as file:  # makes one that is not there, since nothing was ever added
            file.truncate(self.size)

    def rewrite(self, content: bytes) -> None:
        """Put ``content`` in the place of all that the file has; the next mark reads it from its beginning."""
        write_atomic(self.path, content)
        self.size = self.checksum = 0

    def clear(self) -> None:
        """Delete the file."""
        self.size = self.checksum = 0
        self.path.unlink(missing_ok=True)
