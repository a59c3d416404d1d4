"""The command line inside this process: what it printed, and how it ended."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from isthmus import cli


@dataclass(frozen=True)
class Outcome:
    """Exit code, standard output and standard error of one command."""

    code: int
    out: str
    err: str


def isthmus(*arguments: str | Path | int | float) -> Outcome:
    """``isthmus ARGUMENTS``, without the seconds that a new process needs to start."""
    out, err = io.StringIO(), io.StringIO()
    with patch.object(sys, "argv", ["isthmus", *map(str, arguments)]), redirect_stdout(out), redirect_stderr(err):
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    return Outcome(code, out.getvalue(), err.getvalue())
