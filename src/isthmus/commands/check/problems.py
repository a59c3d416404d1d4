"""Problems of data that would keep a run from starting, each with where it is and what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from isthmus.core.errors import CellError, IsthmusError

_FILE = re.compile(r"^(?:Silo )?(\S+?\.(?:csv|parquet|toml))\b")


@dataclass(frozen=True)
class Problem:
    """One problem: the file, column and row where it is known, what is wrong, and what to do."""

    what: str
    remedy: str
    file: str = ""
    column: str = ""
    row: int | None = None

    @property
    def place(self) -> str:
        """Where the problem is, for people; empty where no file is named."""
        parts = [self.file, f"column '{self.column}'" if self.column else "", f"row {self.row}" if self.row else ""]
        return ", ".join(filter(None, parts))


def problems_of(errors: Sequence[IsthmusError]) -> list[Problem]:
    """Problems from the errors that reading raises, each once."""
    return list(dict.fromkeys(map(_problem_of, errors)))


def _problem_of(error: IsthmusError) -> Problem:
    if isinstance(error, CellError):
        return Problem(error.what, error.remedy, error.file, error.column, error.row)
    text = str(error)
    named = _FILE.match(text)
    *before, last = re.split(r"(?<=[.;]) (?=\S)", text)
    what = " ".join(before).rstrip(";.") or text
    return Problem(what, last.rstrip(".") if before else "", named.group(1).rstrip(",:") if named else "")
