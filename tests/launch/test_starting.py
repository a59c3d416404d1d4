"""How hosts start and end: nothing of the current folder runs in them, and who ends them is told."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from isthmus.runs.status import FILE, status_of
from isthmus.train import loop
from tests.helpers.command import SMALL, isthmus, losses, succeed

pytestmark = pytest.mark.usefixtures("no_report")


def test_sigterm_says_a_word_and_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, step = signal.getsignal(signal.SIGTERM), loop.step
    calls = []

    def third(*given: Any) -> None:
        calls.append(given)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        step(*given)

    monkeypatch.setattr(loop, "step", third)
    ended = isthmus(*SMALL, "--out", tmp_path / "run")
    assert ended.code == 2 and ended.err.splitlines()[-1].startswith("isthmus: Ended by SIGTERM;"), ended.err
    assert signal.getsignal(signal.SIGTERM) is before
    monkeypatch.undo()
    succeed("run", "--out", tmp_path / "run", "--resume")
    assert len(losses(tmp_path / "run")) == 4


@pytest.mark.hosts
def test_hosts_do_not_import_what_lies_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is called like a module of the standard library must not run in their place."""
    (tmp_path / "secrets.py").write_text("import os\nos._exit(77)\n")
    (tmp_path / "safetensors.py").write_text("import os\nos._exit(77)\n")
    monkeypatch.chdir(tmp_path)
    succeed(*SMALL, "--hosts", 2, "--epochs", 1, "--out", tmp_path / "run")


@pytest.mark.hosts
def test_hosts_that_are_asked_to_end_write_down_that_they_were(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = [*map(str, SMALL), "--hosts", "2", "--epochs", "5000", "--out", str(run)]
    with subprocess.Popen([sys.executable, "-m", "isthmus", *words], stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 60
        while not all((run / FILE.format(host)).is_file() for host in (0, 1)):
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.1)
        process.terminate()
        assert "Ended by SIGTERM" in process.communicate(timeout=30)[1]
    found = status_of(run)
    assert found.state == "failed" and [host.why for host in found.hosts] == ["Terminated", "Terminated"]
