"""Predictions for new data: every row once, with the model that was trained, whatever the data says of labels."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from tests.helpers.command import metrics, refuse, succeed

pytestmark = pytest.mark.usefixtures("no_report")

TRAIN = ("--epochs", 5, "--set", "model.hidden=8")
N = 40


def graph(
    folder: Path, labels: bool = True, edge_labels: bool = False, order: tuple[str, ...] = ("age", "wealth")
) -> Path:
    """Forty nodes in a ring with chords, two features and three classes (on nodes or on edges)."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 3, N)
    columns: dict[str, Any] = {"age": label + rng.normal(size=N), "wealth": rng.normal(size=N)}
    split = np.resize(["train", "train", "valid", "test"], N)
    folder.mkdir()
    node_labels = labels and not edge_labels
    rows = [["id", *(["label", "split"] if node_labels else []), *order]]
    for i in range(N):
        words = [f"class-{label[i]}", str(split[i])] if node_labels else []
        rows.append([f"n{i}", *words, *(f"{columns[name][i]:.6f}" for name in order)])
    (folder / "nodes.csv").write_text("\n".join(",".join(row) for row in rows))
    ends = [(i, (i + step) % N) for step in (1, 7) for i in range(N)]
    rows = [["source", "target", "amount", *(["label", "split"] if labels and edge_labels else [])]]
    for k, (i, j) in enumerate(ends):
        words = [["low", "high"][int(label[i] > label[j])], str(split[k % N])] if labels and edge_labels else []
        rows.append([f"n{i}", f"n{j}", f"{k / 10}", *words])
    (folder / "edges.csv").write_text("\n".join(",".join(row) for row in rows))
    return folder


def score(run: Path, data: Path | str, *options: Any) -> dict[str, list[Any]]:
    said = succeed("score", run, "--data", data, *options).out
    path = Path(options[options.index("--out") + 1]) if "--out" in options else run / "predictions.parquet"
    assert str(path) in said
    columns: dict[str, list[Any]] = pq.read_table(path).to_pydict()
    return columns


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a graph and a centralised and a local run on it."""
    root = tmp_path_factory.mktemp("scoring")
    data = graph(root / "graph")
    for method in ("centralised", "local"):
        options = ("--data", data, "--silos", 2, "--method", method, *TRAIN)
        succeed("run", *options, "--out", root / method)
    return root


def test_every_node_is_scored_once_and_as_in_training(mine: Path) -> None:
    found = score(mine / "centralised", mine / "graph")
    assert sorted(found["id"]) == sorted(f"n{i}" for i in range(N))
    classes = ["class-0", "class-1", "class-2"]
    chance = np.array([found[f"probability:{name}"] for name in classes])
    assert chance.sum(0) == pytest.approx(np.ones(N), abs=1e-5)
    assert found["prediction"] == [classes[i] for i in chance.argmax(0)]
    lines = [line.split(",") for line in (mine / "graph" / "nodes.csv").read_text().splitlines()[1:]]
    said = dict(zip(found["id"], found["prediction"], strict=True))
    hits = [said[line[0]] == line[1] for line in lines if line[2] == "test"]
    assert np.mean(hits) == pytest.approx(metrics(mine / "centralised")["test"]["accuracy"])


def test_labels_of_the_new_data_do_not_matter(mine: Path, tmp_path: Path) -> None:
    bare = graph(tmp_path / "bare", labels=False)
    with_labels = score(mine / "centralised", mine / "graph", "--out", tmp_path / "deep" / "er" / "a.parquet")
    assert score(mine / "centralised", bare, "--out", tmp_path / "b.parquet") == with_labels


def test_parts_score_like_the_whole(mine: Path, tmp_path: Path) -> None:
    succeed("split", mine / "graph", "--silos", 3, "--split", "random", "--out", tmp_path / "parts")
    whole = score(mine / "centralised", mine / "graph", "--out", tmp_path / "a.parquet")
    parts = score(mine / "centralised", tmp_path / "parts", "--out", tmp_path / "b.parquet")
    places = [parts["id"].index(name) for name in whole["id"]]
    for name in ("probability:class-0", "probability:class-2"):
        assert [parts[name][at] for at in places] == pytest.approx(whole[name], rel=1e-5)


def test_a_graph_smaller_than_the_number_of_silos(mine: Path, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "nodes.csv").write_text("id,age,wealth\nz,1,2\n")
    (tmp_path / "one" / "edges.csv").write_text("source,target,amount\n")
    assert score(mine / "centralised", tmp_path / "one")["id"] == ["z"]


def test_a_model_of_sampled_batches(mine: Path, tmp_path: Path) -> None:
    options = ("--set", "train.batch=7", "--set", "train.fanout=-1", "--method", "sync-sgd", "--silos", 2)
    succeed("run", "--data", mine / "graph", *TRAIN, *options, "--out", tmp_path / "run")
    assert sorted(score(tmp_path / "run", mine / "graph")["id"]) == sorted(f"n{i}" for i in range(N))


def test_edges_are_scored_where_edges_have_the_label(tmp_path: Path) -> None:
    data, bare = graph(tmp_path / "graph", edge_labels=True), graph(tmp_path / "bare", labels=False)
    options = ("--data", data, "--silos", 2, "--method", "centralised", *TRAIN)
    succeed("run", *options, "--out", tmp_path / "run")
    found = score(tmp_path / "run", data, "--out", tmp_path / "a.parquet")
    ends = [line.split(",")[:2] for line in (data / "edges.csv").read_text().splitlines()[1:]]
    assert sorted(zip(found["source"], found["target"], strict=True)) == sorted(map(tuple, ends))
    assert set(found["prediction"]) <= {"low", "high"}
    assert score(tmp_path / "run", bare, "--out", tmp_path / "b.parquet") == found


def test_yes_or_no_tasks_have_a_probability_each(tmp_path: Path) -> None:
    data = ("--set", "data.nodes=30", "--set", "data.tasks=C2,C3")
    model = ("--model", "pna", "--set", "model.hidden=8", "--set", "model.layers=2")
    succeed("run", "--data", "patterns", *data, *model, "--silos", 2, "--epochs", 2, "--out", tmp_path / "run")
    found = score(tmp_path / "run", "patterns", *data)
    assert set(found) == {"id", "probability:C2", "probability:C3"}
    assert len(found["id"]) == 90 and all(0 < p < 1 for p in found["probability:C2"])


def test_a_classifier_with_generated_neighbours_scores_as_on_the_merged_graph(mine: Path, tmp_path: Path) -> None:
    options = ("--method", "feddep", "--silos", 2, "--set", "phase.encode.epochs=1", "--set", "score=global")
    succeed("run", "--data", mine / "graph", *TRAIN, *options, "--out", tmp_path / "run")
    found = score(tmp_path / "run", mine / "graph")
    lines = [line.split(",") for line in (mine / "graph" / "nodes.csv").read_text().splitlines()[1:]]
    said = dict(zip(found["id"], found["prediction"], strict=True))
    hits = [said[line[0]] == line[1] for line in lines if line[2] == "test"]
    assert np.mean(hits) == pytest.approx(metrics(tmp_path / "run")["test"]["accuracy"])


def test_masked_models_score_as_in_training(mine: Path, tmp_path: Path) -> None:
    """FED-PUB's files hold weights with masks in them; of one silo and of two, which have models of their own."""
    for silos, of_silo in ((1, ()), (2, ("--silo", 1))):
        run = tmp_path / f"run-{silos}"
        options = ("--data", mine / "graph", "--silos", silos, "--method", "fed-pub", *TRAIN)
        succeed("run", *options, "--set", "objective.sparsity=1", "--out", run)
        said = dict(zip(*(score(run, mine / "graph", *of_silo)[name] for name in ("id", "prediction")), strict=True))
        lines = [line.split(",") for line in (mine / "graph" / "nodes.csv").read_text().splitlines()[1:]]
        hits = [said[line[0]] == line[1] for line in lines if line[2] == "test"]
        assert silos > 1 or np.mean(hits) == pytest.approx(metrics(run)["test"]["accuracy"])


def test_each_silo_of_a_local_run_has_its_own_model(mine: Path, tmp_path: Path) -> None:
    run = mine / "local"
    each = [score(run, mine / "graph", "--silo", i, "--out", tmp_path / f"{i}.parquet") for i in range(2)]
    assert each[0]["id"] == each[1]["id"] and each[0] != each[1]
    refuse("score", run, "--data", mine / "graph", says=["models of their own", "--silo 0"])
    refuse("score", run, "--data", mine / "graph", "--silo", 2, says=["model-silo-2", "there are 2"])
    refuse(
        "score",
        mine / "centralised",
        "--data",
        mine / "graph",
        "--silo",
        5,
        says=["model-silo-5", "models of their own"],
    )


def test_data_that_the_model_does_not_know(mine: Path, tmp_path: Path) -> None:
    run = mine / "centralised"
    turned = graph(tmp_path / "turned", order=("wealth", "age"))
    refuse("score", run, "--data", turned, says=["(age, wealth)", "(wealth, age)", "same order"])
    fewer = graph(tmp_path / "fewer", order=("age",))
    refuse("score", run, "--data", fewer, says=["2 features", "1 (age)"])
    refuse("score", run, "--data", "blok", says=["data set 'blok'", "blocks"])
    refuse("score", run, "--data", tmp_path / "nowhere", says=["no folder"])
    assert not (run / "predictions.parquet").exists() or (run / "predictions.parquet").stat().st_size


def test_runs_that_cannot_score(mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse("score", tmp_path, "--data", mine / "graph", says=["is not a run"])
    for method in ("bogus", "fedavg"):
        other = ("--data", mine / "graph", "--set", f"method={method}")
        refuse("score", mine / "centralised", *other, says=["method means nothing to score", "leave it out"])
    run = tmp_path / "run"
    succeed("run", "--data", mine / "graph", "--silos", 2, *TRAIN, "--out", run)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    gpu = (run / "config.toml").read_text().replace('device = "cpu"', 'device = "cuda"')
    (run / "config.toml").write_text(gpu)
    refuse("score", run, "--data", mine / "graph", says=["no GPU"])
    succeed("score", run, "--data", mine / "graph", "--set", "system.device=cpu")
    succeed("run", "--data", mine / "graph", "--silos", 2, *TRAIN, "--out", run, "--overwrite")
    model = run / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-20])
    refuse("score", run, "--data", mine / "graph", says=["model.safetensors", "damaged"])
    model.unlink()
    refuse("score", run, "--data", mine / "graph", says=["no model.safetensors"])
    (run / "metrics.json").unlink()
    refuse("score", run, "--data", mine / "graph", says=["has not finished"])


def test_scaled_features_are_scaled_as_in_training(tmp_path: Path) -> None:
    """A part of the data, scored by itself, gets the predictions it would get among the rest: not its own moments."""
    data = graph(tmp_path / "graph")
    nodes = (data / "nodes.csv").read_text().splitlines()
    large = [nodes[0], *(f"{line}e4" for line in nodes[1:])]  # the last column is wealth
    (data / "nodes.csv").write_text("\n".join(large))
    succeed("run", "--data", data, "--silos", 2, "--method", "centralised", *TRAIN, "--out", tmp_path / "run")
    assert metrics(tmp_path / "run")["scale"]["x"]["how"] == "columns"
    whole = score(tmp_path / "run", data, "--out", tmp_path / "whole.parquet")
    component = [line for line in large[1:] if int(line.split(",")[0][1:]) < 10]
    (data / "nodes.csv").write_text("\n".join([nodes[0], *component]))
    (data / "edges.csv").write_text("source,target,amount\n")
    apart = score(tmp_path / "run", data, "--out", tmp_path / "apart.parquet")
    (data / "nodes.csv").write_text("\n".join(large))
    among = score(tmp_path / "run", data, "--out", tmp_path / "among.parquet")
    assert apart["probability:class-0"] == pytest.approx(among["probability:class-0"][:10], abs=1e-6)
    assert whole["probability:class-0"] != pytest.approx(among["probability:class-0"], abs=1e-6)  # edges tell
