"""Trackers follow a run as watchers: every number once, whatever becomes of the run. No package is needed here."""

import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from torch import arange

import isthmus
from isthmus.core.errors import IsthmusError
from isthmus.graph.cut import split_graph
from isthmus.launch import trackers
from isthmus.launch.tracker import Tracker
from isthmus.runs.config import SystemConfig, resolve
from tests.helpers.command import SMALL, history, refuse, succeed
from tests.helpers.small import small_graph

WRITERS: list["FakeWriter"] = []


class FakeWriter:
    """What TensorBoard's writer is asked to write."""

    def __init__(self, place: str) -> None:
        self.place, self.told, self.texts, self.closed = Path(place), dict[str, dict[int, float]](), [], False
        self.place.mkdir(parents=True)
        WRITERS.append(self)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        assert not self.closed and step not in self.told.setdefault(name, {})
        self.told[name][step] = value

    def add_text(self, name: str, text: str) -> None:
        self.texts.append(text)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, no_report: None) -> list[FakeWriter]:
    """A module in the place of TensorBoard's."""
    WRITERS.clear()
    module: Any = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = FakeWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    monkeypatch.setattr(trackers, "find_spec", lambda name: object())
    return WRITERS


def test_every_number_of_a_run_is_told_once(fake: list[FakeWriter], tmp_path: Path) -> None:
    succeed(*SMALL, "--set", "score=across,own", "--track", f"tensorboard:{tmp_path / 'tb'}", "--out", tmp_path / "run")
    [writer] = fake
    lines, metrics = history(tmp_path / "run"), json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert writer.closed and writer.told["loss"] == {
        line["step"]: line["loss"] for line in lines if "valid" not in line
    }
    assert writer.told["valid/accuracy"] == {
        line["epoch"]: line["valid"]["accuracy"] for line in lines if "valid" in line
    }
    assert writer.told["test/accuracy"] == {4: metrics["scored"]["across"]["test"]["accuracy"]}
    assert writer.told["test own/accuracy"] == {4: metrics["scored"]["own"]["test"]["accuracy"]}
    assert writer.told["bytes/total"] == {4: metrics["bytes"]["total"]} and len(writer.told["epoch_seconds"]) == 4
    assert "epsilon" not in writer.told  # infinite: no number
    assert "train.epochs = 4" in writer.texts[0] and writer.place == tmp_path / "tb" / "fedavg-seed-0"


def test_recipes_and_python_name_trackers_too(fake: list[FakeWriter], tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text(f'[system]\ntrack = "tensorboard:{tmp_path / "tb"}"\n')
    run, *rest = SMALL
    succeed(run, recipe, *rest, "--seeds", 2, "--out", tmp_path / "a")
    assert [writer.place.name for writer in fake] == ["fedavg-0-seed-0", "fedavg-1-seed-1"]
    silos = split_graph(small_graph(30, 140), arange(30) % 3, 3)
    few = {"train.epochs": 2, "model.hidden": 4}
    result = isthmus.fit(silos, settings={**few, "system.track": f"tensorboard:{tmp_path / 'b'}"})
    isthmus.fit(silos, settings=few, watcher=isthmus.tracker(f"tensorboard:{tmp_path / 'c'}", "mine"))
    isthmus.fit(silos, settings={**few, "system.track": f"tensorboard:{tmp_path / 'd'}"}, out=tmp_path / "run")
    for writer in fake[2:]:
        assert writer.closed and writer.told["test/accuracy"] == {2: pytest.approx(result.test.as_dict()["accuracy"])}
        assert len(writer.told["loss"]) == 2
    assert fake[3].place == tmp_path / "c" / "mine"


def test_trackers_change_no_result(fake: list[FakeWriter], tmp_path: Path) -> None:
    for name, track in (("a", ()), ("b", ("--track", f"tensorboard:{tmp_path / 'tb'}"))):
        succeed(*SMALL, *track, "--out", tmp_path / name)
    assert history(tmp_path / "a") == history(tmp_path / "b")
    recipe = {"data": {"name": "blocks"}}
    assert resolve(recipe).digest() == resolve({**recipe, "system": {"track": "mlflow:x"}}).digest()


class Kept(Tracker):
    """A tracker that keeps what it is told."""

    finished: bool | None = None

    def begin(self) -> None:
        """Nothing to open."""

    def number(self, name: str, value: float, step: int) -> None:
        """Stop a run in its second epoch."""
        if name == "loss" and step == 2:
            raise KeyboardInterrupt

    def end(self, finished: bool) -> None:
        """Keep how it ended."""
        self.finished = finished


def test_a_run_that_breaks_off_is_said_to_have_failed() -> None:
    silos, kept = split_graph(small_graph(30, 140), arange(30) % 3, 3), Kept("nowhere")
    with pytest.raises(KeyboardInterrupt):
        isthmus.fit(silos, settings={"train.epochs": 3}, watcher=kept)
    assert kept.finished is False


@pytest.mark.parametrize("kind", ["tensorboard", "mlflow"])
def test_a_missing_package_is_told_before_anything_runs(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda name: None if name == kind else importlib.util.find_spec(name))
    refuse(*SMALL, "--track", f"{kind}:x", "--out", tmp_path / "run", says=[kind, "pip install 'isthmus[track]'"])
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("track", "says"),
    [
        ("tensorbord:x", "tensorbord.*tensorboard"),
        ("tensorboard", "needs a folder on this machine, like tensorboard:runs/tensorboard"),
        ("mlflow:http://host:5000", "needs a folder on this machine"),
        ("tensorboard:a,mlflow:", "mlflow: needs a folder"),
    ],
)
def test_a_tracker_that_means_nothing_is_refused(track: str, says: str) -> None:
    with pytest.raises(IsthmusError, match=says):
        SystemConfig(track=track).check()
    with pytest.raises(IsthmusError, match="tensorboard:DIR"):
        isthmus.tracker("wandb:x")
