"""How a CSV file is written: its encoding and the mark between columns, found out from its bytes."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from pathlib import Path

from isthmus.core.errors import IsthmusError

_CHUNK = 2**22
_SAMPLE = 2**16
_MARKS = ",;\t|"
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_NAMES = {
    **{"latin-1": "Latin-1", "cp1252": "Windows-1252"},
    **dict.fromkeys(("utf-16", "utf-16-le", "utf-16-be"), "UTF-16"),
}
# What a file that is called CSV may be, by its first bytes.
_OTHERS = {
    b"PK\x03\x04": "an Excel workbook or a ZIP archive",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook",
    b"\x1f\x8b": "compressed (gzip)",
    b"PAR1": "a Parquet file",
}
_MARK_NAMES = {";": "semicolons", "\t": "tabs", "|": "bars"}


@dataclass(frozen=True)
class Writing:
    """The encoding of a file and the mark between its columns; ``header`` is the length of its first line in bytes."""

    encoding: str
    mark: str
    header: int

    def note(self, path: Path) -> str:
        """A sentence on what was found out and is not usual; empty for commas in UTF-8."""
        odd = [f"as {_NAMES[self.encoding]} (it is not UTF-8)"] if self.encoding in _NAMES else []
        odd += [f"with {_MARK_NAMES[self.mark]} between columns"] if self.mark in _MARK_NAMES else []
        return f"{path} was read {' and '.join(odd)}." if odd else ""


def writing_of(path: Path, needed: tuple[str, ...] = ()) -> Writing:
    """How a text file is written. ``needed``: columns that it should have, which tell commas from other marks."""
    with open(path, "rb") as file:
        header = file.readline(2**28)  # a column for each of millions of words is a mistake, not a header
    other = next((what for start, what in _OTHERS.items() if header.startswith(start)), "")
    if other:
        raise IsthmusError(f"{path} is {other}, whatever its name says; write it again as CSV in UTF-8, or as Parquet.")
    encoding = _encoding(path, header[:_SAMPLE])
    first = header.decode(encoding, errors="replace").lstrip("\ufeff") if len(header) <= _SAMPLE else ""
    return Writing(encoding, _mark(first, needed), len(header))


def _encoding(path: Path, start: bytes) -> str:
    """The encoding of a file: by its first bytes, else UTF-8 if all of it is, else a Western European one."""
    marked = next((name for bom, name in _BOMS if start.startswith(bom)), "")
    if marked:
        return marked
    if b"\x00" in start[:64]:
        return "utf-16-le" if start[1:2] == b"\x00" else "utf-16-be"
    decoder, windows = codecs.getincrementaldecoder("utf-8")(), False
    strange = False
    with open(path, "rb") as file:
        while block := file.read(_CHUNK):
            windows |= any(0x80 <= byte < 0xA0 for byte in set(block))
            try:
                if not strange:
                    decoder.decode(block)
            except UnicodeDecodeError:
                strange = True
    if not strange:
        return "utf-8"
    return "cp1252" if windows else "latin-1"


def _mark(header: str, needed: tuple[str, ...]) -> str:
    """The mark between columns: a comma, unless another one cuts the header into the columns that are needed."""
    best = max(_MARKS, key=header.count)
    names = [name.strip().strip('"') for name in header.strip().split(best)]
    if best != "," and header.count(best) and (not needed or set(names) & set(needed)):
        return best
    return ","
