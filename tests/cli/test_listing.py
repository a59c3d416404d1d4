"""Lists come from a file, and say what the catalogues say."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from isthmus import __version__
from isthmus.cli.listing import asked, listed
from tests.helpers.command import succeed
from tests.helpers.reports import THREE, make_run


@pytest.mark.parametrize("what", ["methods", "datasets", "studies"])
def test_the_file_is_what_the_catalogues_say(what: str) -> None:
    """Else: python -m isthmus.cli.listing."""
    assert listed(what) == asked()[what]
    command = "reproduce" if what == "studies" else what
    assert json.loads(succeed(command, "--json").out) == asked()[what]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"], ["--version"], ["run", "--help"], ["split", "--help"], ["methods"], ["datasets", "--json"],
        ["reproduce"], ["report", "run"], ["compare", "run", "run"],
    ],
)  # fmt: skip
def test_commands_that_compute_nothing_do_not_load_pytorch(arguments: list[str], tmp_path: Path) -> None:
    make_run(tmp_path / "run", THREE)
    run = "import sys; from isthmus.cli import app; app(sys.argv[1:], standalone_mode=False)"
    code = f"{run}; print('torch' in sys.modules)"
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "False"


def test_the_version_is_that_of_the_package() -> None:
    assert succeed("--version").out == f"isthmus {__version__}\n"
