"""What lies in a run folder: kept to one process, known by checksums, bound to its data, private where rows are."""

import fcntl
import json
import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from isthmus.core.version import VERSION
from isthmus.data.write_parts import write_parts
from isthmus.graph.cut import split_graph
from isthmus.graph.digest import changes, digests
from isthmus.graph.features import SparseRows
from isthmus.graph.silo import Silo
from isthmus.runs.folder import LOCK
from tests.helpers.command import SMALL, refuse, same_run, snapshot, succeed
from tests.helpers.small import owners, small_graph

pytestmark = pytest.mark.usefixtures("no_report")
RUN = (*SMALL, "--method", "optimes", "--set", "protect.sigma=0.1", "--set", "protect.clip=1")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    succeed(*RUN, "--out", out)
    return out


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_a_flipped_bit_in_any_file_of_a_checkpoint_is_refused_by_name(run: Path, tmp_path: Path) -> None:
    newest = max((run / "checkpoint").glob("epoch-*"))
    files = [*newest.iterdir(), *(run / "checkpoint").glob("*.bin"), run / "metrics.jsonl"]
    assert len(files) == 2 + 5 + 1
    for path in files:
        whole = path.read_bytes()
        for place in {0, len(whole) // 3, len(whole) // 2, len(whole) - 1} if whole else ():
            path.write_bytes(bytes(byte ^ (0x04 * (at == place)) for at, byte in enumerate(whole)))
            refuse("run", "--out", run, "--resume", says=[path.name, "damaged", "--overwrite"])
        path.write_bytes(whole)
    succeed("run", "--out", run, "--resume", "--epochs", 5)
    succeed(*RUN, "--epochs", 5, "--out", tmp_path / "whole")
    same_run(run, tmp_path / "whole")


def test_the_version_of_the_package_is_recorded_and_another_is_noted(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert json.loads((run / "metrics.json").read_text())["version"] == VERSION
    said = max((run / "checkpoint").glob("epoch-*")) / "host-0.json"
    assert json.loads(said.read_text().splitlines()[0])["version"] == VERSION
    monkeypatch.setattr("isthmus.train.checkpoint.VERSION", "77.0")
    succeed("run", "--out", run, "--resume", "--epochs", 5)
    notes = json.loads((run / "metrics.json").read_text())["notes"]
    assert f"This run began with isthmus {VERSION} and went on with 77.0." in notes


def test_a_folder_is_kept_to_one_process_and_the_dead_keep_nothing(run: Path) -> None:
    (run / LOCK).touch()  # left by a process that was killed
    succeed("run", "--out", run, "--resume")
    assert not (run / LOCK).exists()
    before = snapshot(run)
    with open(run / LOCK, "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        for how in ("--resume", "--overwrite"):
            refuse(*RUN, "--out", run, how, says=[str(run), "in use by another process", "--out"])
    (run / LOCK).unlink()
    assert snapshot(run) == before
    succeed("run", "--out", run, "--resume")


def parts(root: Path, change: Callable[[Silo], Silo] = lambda silo: silo) -> None:
    silos = split_graph(small_graph(30, 140), owners(3), 3, ["a", "b", "c"])
    write_parts([change(silo) if silo.name == "b" else silo for silo in silos], root, overwrite=True)


def other_features(silo: Silo) -> Silo:
    assert not isinstance(silo.x, SparseRows)
    return replace(silo, x=silo.x + torch.eye(*silo.x.shape) * 1e-6)


CHANGES: dict[str, Callable[[Silo], Silo]] = {
    "features": other_features,
    "labels": lambda silo: replace(silo, y=silo.y.flip(0)),
    "splits": lambda silo: replace(silo, split=silo.split.flip(0)),
    "edge features": lambda silo: replace(silo, edge_attr=silo.edge_attr * 2),  # type: ignore[operator]
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_run_is_not_continued_on_other_data(what: str, tmp_path: Path) -> None:
    parts(tmp_path / "parts")
    options = ("run", "--data", tmp_path / "parts", "--method", "fedavg", "--epochs", 2, "--out", tmp_path / "run")
    succeed(*options)
    parts(tmp_path / "parts", CHANGES[what])
    before = snapshot(tmp_path / "run")
    refuse(*options, "--resume", says=["data", "is not what it was", f"b ({what})", "--overwrite"])
    assert snapshot(tmp_path / "run") == before
    parts(tmp_path / "parts")
    succeed(*options, "--resume")


def test_digests_tell_what_has_changed_and_where() -> None:
    silos = split_graph(small_graph(30, 140), owners(3), 3, ["a", "b", "c"])
    now = {silo.name: digests(silo) for silo in silos}
    assert changes(now, dict(now)) == ""
    fewer = replace(silos[1], edge_index=silos[1].edge_index.flip(0), edge_time=silos[1].edge_time + 1)  # type: ignore[operator]
    assert changes(now, {**now, "b": digests(fewer)}) == "b (edges, edge times)"
    assert changes(now, {name: now[name] for name in "ab"}) == "c (gone)"
    assert changes({"a": now["a"]}, {"a": now["a"], "d": now["b"]}) == "d (new)"


def test_files_with_rows_can_be_read_by_their_owner_alone(finished: Path, tmp_path: Path) -> None:
    parts(tmp_path / "parts")
    kept = [*(finished / "checkpoint").rglob("*"), *tmp_path.rglob("*.parquet"), *finished.glob("release*")]
    assert len(kept) > 10
    for path in (path for path in kept if path.is_file()):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600, path
