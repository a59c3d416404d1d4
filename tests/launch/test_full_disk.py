"""A disk that is full ends a run with one sentence, and the run goes on once there is room."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.command import SMALL, isthmus, losses, succeed

pytestmark = pytest.mark.usefixtures("no_report")


def test_a_full_disk_is_told_and_the_run_goes_on_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    succeed(*SMALL, "--method", "fedavg", "--out", tmp_path / "whole")
    write, run = Path.write_bytes, tmp_path / "run"

    def full_after_the_first_epoch(path: Path, content: Any) -> int:
        if "epoch-000002" in str(path):
            write(path, content[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, content)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full_after_the_first_epoch)
        ended = isthmus(*SMALL, "--method", "fedavg", "--out", run)
    last = ended.err.strip().splitlines()[-1]
    assert ended.code == 2 and all(word in last for word in ("No space left", "epoch-000002", "--resume")), ended
    assert not list(run.rglob(".host-*"))
    succeed("run", "--out", run, "--resume")
    assert losses(run) == losses(tmp_path / "whole")
