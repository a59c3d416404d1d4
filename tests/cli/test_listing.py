"""Lists come from a file, and say what the catalogues say."""

import json
import subprocess
import sys

import pytest

from isthmus.cli.listing import asked, listed
from tests.helpers.command import succeed


@pytest.mark.parametrize("what", ["methods", "datasets", "studies"])
def test_the_file_is_what_the_catalogues_say(what: str) -> None:
    """Else: python -m isthmus.cli.listing."""
    assert listed(what) == asked()[what]
    command = "reproduce" if what == "studies" else what
    assert json.loads(succeed(command, "--json").out) == asked()[what]


@pytest.mark.parametrize(
    "arguments", [["--help"], ["run", "--help"], ["methods"], ["datasets", "--json"], ["reproduce"]]
)
def test_commands_that_compute_nothing_do_not_load_pytorch(arguments: list[str]) -> None:
    run = "import sys; from isthmus.cli import app; app(sys.argv[1:], standalone_mode=False)"
    code = f"{run}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
