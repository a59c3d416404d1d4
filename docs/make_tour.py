"""``python docs/make_tour.py``: run the commands of docs/tour.md, and put what they print under each of them.

Blocks of commands (``sh``) are run, one line after the other, in one new folder that holds the files which the page
shows; what they print goes into the block of output (``text``) that follows, where there is one.
``tests/cli/test_tour.py`` does the same and compares.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path

PAGE = Path(__file__).parent / "tour.md"
FILE = re.compile(r"`([\w.-]+)`:\n\n```toml\n(.*?)```", re.DOTALL)  # a file that the page has the reader write
SHOWN = re.compile(r"(```sh\n)([^`]*)(```\n)(\n```text\n[^`]*```\n)?")
WIDTH = 92  # columns of a table of output


def files(page: str) -> dict[str, str]:
    """Files that the page shows, by name."""
    return dict(FILE.findall(page))


def filled(page: str, run: Callable[[list[str]], str]) -> str:
    """The page with the output of blocks of commands as ``run`` gives it for one command, where the page shows it."""

    def again(match: re.Match[str]) -> str:
        outputs = [
            wrapped(run(shlex.split(line, comments=True)).rstrip()) for line in match[2].splitlines() if line.strip()
        ]
        shown = "\n".join(filter(None, outputs))
        return match[1] + match[2] + match[3] + (f"\n```text\n{shown}\n```\n" if match[4] else "")

    return SHOWN.sub(again, page)


def printed(command: list[str]) -> str:
    """What a command prints in the current folder."""
    environment = {**os.environ, "COLUMNS": str(WIDTH), "OMP_NUM_THREADS": "1"}
    whole = [sys.executable, "-m", *command]
    return subprocess.run(whole, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    """Write the page anew."""
    page, home = PAGE.read_text(), Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, text in files(page).items():
            Path(name).write_text(text)
        made = filled(page, printed)
        os.chdir(home)
    PAGE.write_text("\n".join(line.rstrip() for line in made.splitlines()) + "\n")


def wrapped(output: str) -> str:
    """Output with lines as a terminal would break them; lines of tables fit already."""
    return "\n".join(textwrap.fill(line, WIDTH, break_on_hyphens=False) for line in output.splitlines())


if __name__ == "__main__":
    main()
