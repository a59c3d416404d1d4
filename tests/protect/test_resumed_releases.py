"""A run that was killed and resumed has released what its book says, and nothing twice."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

from isthmus.core.kinds import Kind
from isthmus.core.parcel import Parcel
from isthmus.launch.release_files import RESUMED
from isthmus.protect.base import Chain, Sealed
from isthmus.protect.releases import Releases
from isthmus.train import loop as train
from tests.helpers.command import SMALL, metrics, succeed
from tests.helpers.killing import at, killed

pytestmark = pytest.mark.usefixtures("no_report")

OPTIONS = [f"protect.{key}{kind}=0.5" for key in ("clip", "sigma") for kind in ("", "_parameters", "_gradients")]
NOISE = [word for option in OPTIONS for word in ("--set", option)]
RANDOM = ("--set", "protect.secrets=random")
SETS = ("--set", "sync.local_steps=2")
RUNS: dict[str, tuple[Any, ...]] = {
    "fedgcn": ("--method", "fedgcn", "--model", "gcn", *SETS),
    "fedgcn, one hop": ("--method", "fedgcn", "--model", "gcn", *SETS, "--set", "exchange.hops=1"),
    "optimes": ("--method", "optimes"),
    "optimes, three layers": ("--method", "optimes", "--set", "model.layers=3"),
    "ce-fedgnn": ("--method", "ce-fedgnn", *SETS),
}
KINDS = (Kind.AGGREGATES, Kind.EMBEDDINGS, Kind.PARAMETERS)


def releases_of(folder: Path) -> list[tuple[Any, ...]]:
    return [tuple(line.values()) for line in pq.read_table(folder / "releases.parquet").to_pylist()]


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> Counter[Kind]:
    """How many parcels with rows of each kind have passed the door in this process."""
    found: Counter[Kind] = Counter()
    plain = Releases.book

    def watched(self: Releases, parcel: Parcel, sealed: Sealed, chain: Chain) -> None:
        if not parcel.by_server and parcel.kind in KINDS and len(parcel.rows):
            found[parcel.kind] += 1
        plain(self, parcel, sealed, chain)

    monkeypatch.setattr(Releases, "book", watched)
    return found


@pytest.mark.parametrize("name", RUNS)
def test_releases_after_a_kill_are_those_that_happened(name: str, left: Counter[Kind], tmp_path: Path) -> None:
    """Killed right before its third step: both epochs before are in the checkpoint, and nothing left since."""
    command = (*SMALL, *RUNS[name], *NOISE, *RANDOM)
    succeed(*command, "--out", tmp_path / "whole")
    whole = Counter(left)
    left.clear()
    killed(at(train, "step", 3), *command, "--out", tmp_path / "run")  # in a process of its own, not counted here
    succeed("run", "--out", tmp_path / "run", "--resume")
    assert releases_of(tmp_path / "run") == releases_of(tmp_path / "whole")
    found, expected = (metrics(tmp_path / run) for run in ("run", "whole"))
    assert found["epsilon"] == expected["epsilon"] and 0 < float(found["epsilon"]) < 1e9
    assert left[Kind.AGGREGATES] == 0 and left[Kind.PARAMETERS] == whole[Kind.PARAMETERS] // 2
    assert whole[Kind.AGGREGATES] == {"fedgcn": 2, "fedgcn, one hop": 1}.get(name, 0)
    if name.startswith("optimes"):  # of eleven pushes, one before the first step, the last two rounds, and four scores
        assert 11 * left[Kind.EMBEDDINGS] == 6 * whole[Kind.EMBEDDINGS] > 0


def test_a_checkpoint_holds_the_rows_that_left_and_no_others() -> None:
    """Of 1,000 rows three have left; the book that is read again is the one that was written."""
    book, again = Releases(), Releases()
    for each in (book, again):
        each.open(1000)
    left, plain = torch.rand(3, 4), torch.rand(3, 4)
    book.record(Kind.EMBEDDINGS, 1, torch.tensor([7, 500, 999]), left, plain)
    book.record(Kind.EMBEDDINGS, 1, torch.tensor([500]), -left[:1], plain[:1])
    packed = book.packed()
    assert packed["left/embeddings/1"].shape == packed["plain/embeddings/1"].shape == (3, 4)
    again.unpack(packed)
    assert again.state.keys() == book.state.keys()
    assert all(torch.equal(again.state[name], table) for name, table in book.state.items())


def test_a_resumed_run_says_what_it_cannot_have_counted(tmp_path: Path) -> None:
    """Also where it was killed before its first checkpoint; noise from the seed is the same noise again."""
    for name, secrets, say in (("random", RANDOM, True), ("seed", (), False)):
        command = (*SMALL, *RUNS["fedgcn"], *NOISE, *secrets, "--out", tmp_path / name)
        killed(at(train, "step", 1), *command)
        succeed("run", "--out", tmp_path / name, "--resume")
        found = metrics(tmp_path / name)
        assert (RESUMED in found["notes"]) == say
        assert all((RESUMED in each["assumptions"]) == say for each in found["privacy"])
