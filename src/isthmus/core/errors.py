"""Errors that tell the next step: what was given, what is allowed, what to do."""

from collections.abc import Iterable
from difflib import get_close_matches


class IsthmusError(Exception):
    """A problem the user can fix; the command line prints it as one line, without a traceback."""


class CellError(IsthmusError):
    """A problem of one value in a file: which file, column and row (counted from 1), and what to do."""

    def __init__(self, file: str, column: str, row: int, what: str, remedy: str) -> None:
        super().__init__(f"{file}, column '{column}', row {row}: {what}; {remedy}.")
        self.file, self.column, self.row, self.what, self.remedy = file, column, row, what, remedy


class HostLost(IsthmusError):
    """Another host of a run died or stalled; the run can be resumed."""


class Terminated(HostLost):
    """SIGTERM asked the process to end; what it had begun can be resumed."""


class PartyLost(HostLost):
    """Another host was lost within a round, which those who are left can roll back and take again."""


class PeerError(IsthmusError):
    """Another party sent what no member of this run would send; the message names it."""


def unknown(what: str, given: object, choices: Iterable[str]) -> IsthmusError:
    """An error for a name that does not exist: the closest match first, then every choice."""
    names = sorted(choices)
    near = get_close_matches(str(given), names, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return IsthmusError(f"Unknown {what} '{given}'.{hint} Choose from: {', '.join(names)}.")
