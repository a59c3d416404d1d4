"""An audit of a damaged run names the file, or finds what it would have found: no traceback, nothing in silence."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.command import Outcome, isthmus, refuse, succeed

FILES = (
    "config.toml", "metrics.json", "metrics.jsonl", "ledger.parquet", "steps.parquet", "legs.parquet",
    "releases.parquet", "released.safetensors", "model.safetensors", "status-host-0.json",
)  # fmt: skip
READ = FILES[:2] + ("ledger.parquet", "releases.parquet", "released.safetensors")  # by an audit
QUICK = ("--deepest", 0, "--sigma", "0", "--targets", 4, "--json")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that released rows, without the files of its checkpoints."""
    folder = tmp_path_factory.mktemp("damaged") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("isthmus.commands.run.write_report", lambda folder: folder.path)
        succeed(
            "run", "--data", "blocks", "--silos", 2, "--split", "random", "--model", "sage", "--epochs", 1,
            "--method", "sync-sgd+fwd-bwd-le", "--set", "data.nodes=40", "--set", "data.degree=3",
            "--set", "data.features=4", "--set", "data.classes=2", "--set", "model.hidden=4", "--out", folder,
        )  # fmt: skip
    shutil.rmtree(folder / "checkpoint")
    return folder


@pytest.fixture(scope="module")
def whole(run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What an audit of the undamaged run finds."""
    copy = shutil.copytree(run, tmp_path_factory.mktemp("whole") / "run")
    found: dict[str, Any] = json.loads(succeed("audit", copy, *QUICK).out)
    return found


@pytest.fixture
def copied(run: Path, tmp_path: Path) -> Path:
    """The run, to damage."""
    return Path(shutil.copytree(run, tmp_path / "run"))


def flipped(content: bytes, place: float) -> bytes:
    """The content with other bits in the byte at a place between 0 and 1."""
    at = int(place * (len(content) - 1))
    return content[:at] + bytes([content[at] ^ 0x15]) + content[at + 1 :]


def honest(done: Outcome, file: str, whole: dict[str, Any]) -> None:
    """A refusal in one line that names the file, or the findings of the undamaged run, or a note."""
    if done.code:
        assert done.code == 2 and done.err.startswith("isthmus: ") and "\n" not in done.err.strip()
        assert file in done.err, done.err
        return
    found = json.loads(done.out)
    assert found == whole or any(file in note or "damaged files" in note for note in found["notes"])


@pytest.mark.parametrize("how", ["deleted", "emptied", "truncated"])
@pytest.mark.parametrize("file", FILES)
def test_a_file_that_is_not_whole(file: str, how: str, copied: Path, whole: dict[str, Any]) -> None:
    path = copied / file
    half = path.read_bytes()[: path.stat().st_size // 2]
    path.unlink()
    if how != "deleted":
        path.write_bytes(b"" if how == "emptied" else half)
    done = isthmus("audit", copied, *QUICK)
    honest(done, file, whole)
    assert (done.code == 2) == (file in READ)


@pytest.mark.parametrize("place", [0.0, 0.2, 0.45, 0.7, 0.99])
@pytest.mark.parametrize("file", READ)
def test_a_byte_that_changed(file: str, place: float, copied: Path, whole: dict[str, Any]) -> None:
    (copied / file).write_bytes(flipped((copied / file).read_bytes(), place))
    honest(isthmus("audit", copied, *QUICK), file, whole)


def test_another_value_in_the_configuration_is_told(copied: Path) -> None:
    config = copied / "config.toml"
    text = config.read_text()
    assert "lr = 0.01" in text
    config.write_text(text.replace("lr = 0.01", "lr = 0.03"))
    notes = json.loads(succeed("audit", copied, *QUICK).out)["notes"]
    assert any("config.toml' is not as the run left it" in note for note in notes)
    config.write_text(text.replace("nodes = 40", "nodes = 41"))
    refuse("audit", copied, *QUICK, says=["The data has changed", "config.toml' is not as the run left it"])


def test_a_value_that_no_run_writes_is_no_traceback(copied: Path) -> None:
    told = json.loads((copied / "metrics.json").read_text())
    (copied / "metrics.json").write_text(json.dumps(told | {"silo_nodes": 7}))
    refuse("audit", copied, *QUICK, says=["metrics.json"])
