"""A disk that is full, only reads, or is another user's: one sentence, no run lost, and it goes on later."""

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from tests.helpers.command import SMALL, isthmus, losses, metrics, refuse, snapshot, succeed

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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, of four megabytes; only root may mount one, and not everywhere."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", place], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_disk_that_is_really_full_or_only_reads_costs_no_run(small_disk: Path, tmp_path: Path) -> None:
    run = small_disk / "run"
    succeed(*SMALL, "--method", "fedavg", "--out", run)
    kept = metrics(run)
    with open(small_disk / "rest", "wb", buffering=0) as rest:
        try:
            while True:
                rest.write(bytes(4096))
        except OSError:
            pass
    for command in ((*SMALL, "--out", run, "--overwrite"), ("run", "--out", run, "--resume", "--epochs", 5)):
        refuse(*command, says=["cannot be written: No space left", "Make room", "--resume"])
        assert metrics(run) == kept  # also where it was to be replaced
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    for arguments in (("run", "--resume", "--out"), ("report",), ("compare", "--out", small_disk / "new")):
        refuse(*arguments, run, says=["cannot be written: Read-only file system"])
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    (small_disk / "rest").unlink()
    succeed("run", "--out", run, "--resume", "--epochs", 5)
    succeed(*SMALL, "--method", "fedavg", "--out", tmp_path / "whole", "--epochs", 5)
    assert losses(run) == losses(tmp_path / "whole")


def denied(plain: Any, place: str) -> Any:
    """A function of paths that the system refuses for one of them."""

    def checked(path: Path, *given: Any, **options: Any) -> Any:
        if str(path).endswith(place):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return plain(path, *given, **options)

    return checked


def test_what_belongs_to_another_user_is_told_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a traceback nor 'damaged', and no run that starts anew because its checkpoints cannot be read."""
    run = tmp_path / "run"
    succeed(*SMALL, "--method", "optimes", "--set", "protect.sigma=0.1", "--set", "protect.clip=1", "--out", run)

    before = snapshot(run)
    for owner, name, place, command in (
        (Path, "read_text", "metrics.json", ("report", run)),
        (Path, "iterdir", "checkpoint", ("run", "--out", run, "--resume")),
        (parquet, "read_table", "releases.parquet", ("audit", run, "--targets", 2)),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, denied(getattr(owner, name), place))
            ended = isthmus(*command)
        last = ended.err.strip().splitlines()[-1]
        assert ended.code == 2 and all(word in last for word in (place, "Permission denied", "right to read")), ended
    assert snapshot(run) == before


def test_what_a_killed_process_had_begun_to_write_is_swept_up(tmp_path: Path) -> None:
    run = tmp_path / "run"
    succeed(*SMALL, "--method", "fedavg", "--out", run)
    newest = max((run / "checkpoint").glob("epoch-*"))
    left = [run / ".metrics.json..123", newest / ".host-0.safetensors..4567"]
    others = [run / ".config.toml.1.123", run / ".notes", run / ".gitignore"]  # of another host, or of people
    for path in (*left, *others):
        path.write_text("half")
    succeed("run", "--out", run, "--resume")
    assert not any(path.exists() for path in left) and all(path.exists() for path in others)
