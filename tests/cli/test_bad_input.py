"""Bad input: one clear line before training starts, and nothing that was there is lost."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import isthmus as package
from isthmus.core.errors import IsthmusError
from isthmus.graph.graph import Graph
from tests.helpers.command import SMALL, history, isthmus, metrics, refuse, same_run, snapshot, succeed
from tests.helpers.small import small_graph

pytestmark = pytest.mark.usefixtures("no_report")

NAMES = [
    (("--method", "fedavgg"), ["method 'fedavgg'", "mean 'fedavg'", "centralised, fed-pub, fedavg"]),
    (("--data", "block"), ["data set 'block'", "mean 'blocks'", "cora"]),
    (("--model", "gatt"), ["model 'gatt'", "mean 'gat'", "gcn, gin, mlp"]),
    (("--method", "local-mlp", "--model", "gcn"), ["'local-mlp'", "'mlp'", "'gcn'"]),
    (("--split", "louvan"), ["partitioner 'louvan'", "mean 'louvain'", "metis, random"]),
    (("--split", "attribute:bnk"), ["'bnk'", "mean 'bank'", "bank, class"]),
    (("--split", "attribute"), ["attribute:COLUMN"]),
    (("--split", "label:none"), ["'none'", "label:0.5"]),
    (("--dtype", "float16"), ["dtype 'float16'", "float32, float64"]),
    (("--device", "tpu"), ["device 'tpu'", "cpu, cuda"]),
    (("recipe-of-mine",), ["recipe 'recipe-of-mine'", "cora, demo, feddep, patterns"]),
    (("mine.toml",), ["'mine.toml'", "cora, demo, feddep, patterns"]),
]
SETS = [
    ("train.lrr=1", ["[train] 'lrr'", "mean 'lr'", "weight_decay"]),
    ("trane.lr=1", ["'trane'", "mean 'train'", "system"]),
    ("model.hiden=8", ["[model] 'hiden'", "mean 'hidden'", "aggregate"]),
    ("model.heads=2", ["'heads'", "aggregate"]),  # an option of another layer
    ("data.node=64", ["data option 'node'", "mean 'nodes'", "homophily"]),
    ("system.thread=1", ["[system] 'thread'", "mean 'threads'"]),
    ("sync.local_epoch=2", ["sync.local_epoch", "sync.local_epochs"]),
    ("objective.mu=1", ["'fedavg'", "objective.mu", "objective.minority_weight"]),  # an option of another method
    ("exchange.halo=keep", ["'keep'", "drop, placeholder"]),
    ("model.norm=batchnorm", ["'batchnorm'", "batch, layer, none"]),
    ("data.scale=minmax", ["'minmax'", "auto, columns, lengths, none, rows"]),
    ("train.optimiser=adamw", ["'adamw'", "adam, sgd"]),
    ("train.batches=mine", ["'mine'", "joint, local"]),
    ("score=best", ["score 'best'", "across, everywhere, global, own, trained"]),
    ("schedule.score=own", ["schedule.score", "schedule.every"]),  # how parameters are scored is no schedule's
    ("exchange=optimess", ["exchange 'optimess'", "mean 'optimes'", "swift"]),
    ("protect=gaussian,noise", ["protect 'noise'", "bfloat16", "gaussian"]),
    ("phase.later.epochs=2", ["phase of 'fedavg' 'later'", "train"]),
]
APART = [  # parts that cannot go together
    (
        ("--method", "llcg-every-step", "--set", "protect.sigma_gradients=1"),
        ["server corrects", "protect.sigma_gradients"],
    ),
    (("--set", "schedule.every=2"), ["exchange=nothing", "nothing to schedule"]),
    (("--method", "fedgcn", "--model", "sage"), ["gcn and not for sage"]),
    (("--method", "sync-sgd", "--set", "sync.weights=silos"), ["sync.weights=silos", "train.batches=local"]),
    (("--set", "protect=bfloat16", "--set", "protect.sigma=1"), ["no option protect.sigma", "protect.format"]),
    (("--method", "pretrained-fedavg"), ["train.epochs is 4", "take 10", "phase.NAME.epochs"]),
]
VALUES = [
    ("train.lr=fast", ["train.lr is 'fast'", "float", "0.01"]),
    ("train.lr=nan", ["train.lr is nan", "finite"]),
    ("train.batch=9223372036854775808", ["train.batch is 9223372036854775808", "63 bits"]),
    ("train.fanout=9223372036854775808", ["train.fanout is 9223372036854775808", "63 bits"]),
    ("data.silos=100000000000000000000", ["data.silos is 100000000000000000000", "63 bits"]),
    ("data.silos=1000001", ["--silos is 1000001", "at most 1,000,000"]),
    ("system.timeout=1e300", ["system.timeout is 1e+300", "at most 1,000,000"]),
    (f"train.fanout={'[' * 5000}", ["train.fanout is '[[[", "list"]),
    ("train.lr=0", ["train.lr is 0.0", "positive"]),
    ("train.weight_decay=-1", ["train.weight_decay is -1", "0 or more"]),
    ("train.epochs=true", ["train.epochs is True", "int"]),
    ("train.epochs=-1", ["train.epochs is -1", "at least 0"]),
    ("train.fanout=true", ["train.fanout is True", "list"]),
    ("train.fanout=3,2,1", ["train.fanout is [3, 2, 1]", "2 layers"]),
    ("train.fanout=0", ["train.fanout is [0]", "positive"]),
    ("train.pooled=1", ["train.pooled is 1", "bool"]),
    ("train.evaluate_every=0", ["train.evaluate_every is 0", "at least 1"]),
    ("model.hidden=many", ["model.hidden is 'many'", "int"]),
    ("model.hidden=0", ["hidden=0", "at least one"]),
    ("model.dropout=1", ["dropout=1.0", "[0, 1)"]),
    ("model.options=5", ["'options'", "table"]),
    ("model.aggregate=most", ["'most'", "mean"]),
    ("data.nodes=abc", ["data.nodes is 'abc'", "int"]),
    ("data.nodes=64.5", ["data.nodes is 64.5", "int"]),
    ("data.nodes=3", ["nodes=3"]),
    ("data.degree=inf", ["data.degree is inf", "finite"]),
    ("data.seed=-1", ["data.seed is -1", "0 or more"]),
    ("data.train=1.5", ["1.5", "between 0 and 1"]),
    ("data.resolution=-1", ["-1.0", "positive"]),
    ("data.communities=9", ["'louvain'", "communities"]),
    ("data=5", ["'data'", "table"]),
    ("data.silos.x=5", ["'silos'", "both"]),
    ("sync.private=5", ["sync.private is 5", "list"]),
    ("sync.local_epochs=true", ["sync.local_epochs is True", "int"]),
    ("sync.local_epochs=0", ["sync.local_epochs is 0", "at least 1"]),
    ("system.timeout=0", ["system.timeout is 0", "positive"]),
    ("system.threads=-1", ["system.threads is -1", "0..1024"]),
    ("system.threads=99999999", ["system.threads is 99999999", "0..1024"]),
    ("seed=-1", ["seed is -1", "0 or more"]),
    ("seed=1.5", ["seed is 1.5", "whole number"]),
    ("train.lr", ["key=value", "'train.lr'"]),
    ("=3", ["key=value", "'=3'"]),
]
NUMBERS = [
    (("--silos", 100), ["64 nodes", "100 silos", "1 to 64"]),
    (("--silos", 0), ["--silos is 0", "at least one"]),
    (("--hosts", 5), ["--hosts 5", "3 silos", "at most 4"]),  # a fourth carries the server alone
    (("--hosts", 2, "--method", "centralised"), ["--hosts 2", "1 silo"]),
    (("--hosts", 0), ["--hosts is 0", "at least 1"]),
    (("--seeds", 0), ["--seeds is 0", "at least 1"]),
    (("--seed", -1), ["seed is -1"]),
    (("--set", "train.epochs=-1"), ["train.epochs is -1"]),
    (("--steps", 5), ["--epochs and --steps", "one of them"]),  # SMALL has --epochs
    (("--resume", "--overwrite"), ["--resume", "--overwrite", "one of them"]),
    (("--model", "gat", "--set", "model.heads=x"), ["model.heads is 'x'", "int"]),
    (("--model", "gat", "--set", "model.heads=3"), ["3 heads", "divisor"]),
    (("--model", "gat", "--set", "model.heads=true"), ["model.heads is True", "int"]),
]  # fmt: skip


def refused(out: Path, *options: str | int | Path, says: list[str]) -> None:
    refuse(*SMALL, *options, "--out", out, says=says)
    assert not out.exists()


@pytest.mark.parametrize(("options", "says"), NAMES + NUMBERS, ids=str)
def test_unknown_names_and_impossible_numbers(options: tuple[str, ...], says: list[str], tmp_path: Path) -> None:
    refused(tmp_path / "run", *options, says=says)


@pytest.mark.parametrize(("pair", "says"), SETS + VALUES, ids=str)
def test_unknown_keys_and_wrong_values(pair: str, says: list[str], tmp_path: Path) -> None:
    refused(tmp_path / "run", "--set", pair, says=says)


def test_names_and_files_without_bounds_are_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "deep.toml").write_text(f"a = {'[' * 100_000}")
    refuse("run", tmp_path / "deep.toml", says=["deep.toml' is not valid TOML"])
    refuse(*SMALL, "--out", tmp_path / ("x" * 300), says=["cannot be written: File name too long", "another --out"])
    refuse("plan", *SMALL[1:], "--out", tmp_path / ("x" * 300), says=["File name too long"])
    refuse("split", "blocks", "--out", tmp_path / ("x" * 300), says=["File name too long"])
    refuse("run", "--data", "x" * 300, "--out", tmp_path / "run", says=["Unknown data set"])
    refuse("run", "--data", f"/{'x' * 300}", "--out", tmp_path / "run", says=["There is no folder"])
    refuse("run", "x" * 300, says=["Unknown recipe"])
    assert [path.name for path in tmp_path.iterdir()] == ["deep.toml"]


@pytest.mark.parametrize(("options", "says"), APART, ids=str)
def test_parts_that_cannot_go_together_are_refused_before_data_is_read(
    options: tuple[str, ...], says: list[str], tmp_path: Path
) -> None:
    refused(tmp_path / "run", "--data", tmp_path / "nowhere", *options, says=says)


def test_tasks_of_patterns_are_words(tmp_path: Path) -> None:
    options = ("run", "--data", "patterns", "--set", "data.nodes=20", "--out", tmp_path / "run", "--set")
    refuse(*options, "data.tasks=5", says=["data.tasks is 5", "list"])
    refuse(*options, "data.tasks=C2,C7", says=["'C7'", "C2, C3"])


def test_a_gpu_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refused(tmp_path / "run", "--device", "cuda", says=["--device cuda", "no GPU", "--device cpu"])
    refused(tmp_path / "run", "--device", "cuda", "--seeds", 2, says=["no GPU"])


def test_an_option_that_is_no_number_is_refused_by_the_parser() -> None:
    outcome = isthmus("run", "--silos", "many")
    assert outcome.code == 2 and "--silos" in outcome.err and "Traceback" not in outcome.err


@pytest.mark.parametrize(
    ("recipe", "says"),
    [
        ("method = fedavg", ["not valid TOML"]),
        ("[train]\nlr = 'fast'", ["train.lr is 'fast'"]),
        ("colour = 'red'", ["'colour'"]),
        ("train = 5", ["'train'", "table"]),
        ("\xff", ["cannot be read"]),
    ],
)
def test_recipes_that_are_wrong(recipe: str, says: list[str], tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(recipe.encode("latin-1"))
    refuse("run", tmp_path / "mine.toml", "--out", tmp_path / "run", says=says)
    assert not (tmp_path / "run").exists()


# A graph of one's own

NODES = ["id,label,split,age", "a,x,train,1", "b,y,train,2", "c,x,valid,3", "d,y,test,4", "e,,,5"]
EDGES = ["source,target,amount", "a,b,1", "b,c,2", "c,d,3", "d,e,4"]


def write(folder: Path, nodes: list[str] = NODES, edges: list[str] = EDGES) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "nodes.csv").write_text("\n".join(nodes) + "\n")
    (folder / "edges.csv").write_text("\n".join(edges) + "\n")
    return folder


@pytest.mark.parametrize(
    ("nodes", "edges", "says"),
    [
        (NODES, [*EDGES, "a,q,1"], ["edges.csv", "'target'", "row 5", "'q'", "add the node"]),
        (NODES, ["source,target,amount", "q,a,1"], ["'source'", "row 1", "'q'"]),
        ([*NODES, "f,x,train,inf"], EDGES, ["nodes.csv", "'age'", "row 6", "inf"]),
        ([*NODES, "f,x,train,1e300"], EDGES, ["nodes.csv", "'age'", "row 6"]),
        (NODES, [*EDGES, "a,b,inf"], ["edges.csv", "'amount'", "row 5"]),
        ([*NODES, "a,x,train,1"], EDGES, ["'a'", "rows 1 and 6"]),
        ([*NODES, ",x,train,1"], EDGES, ["'id'", "row 6", "missing id"]),
        ([*NODES, "f,x,training,1"], EDGES, ["'training'", "train, valid, test"]),
        (["id,age", "a,1", "b,2", "c,3", "d,4", "e,5"], EDGES, ["No silo has a label"]),
        ([line.replace("train", "test") for line in NODES], EDGES, ["labelled training node"]),
        (["id,label,split,age"], ["source,target,amount"], ["no rows"]),
        (["name,label,split,age", "a,x,train,1"], EDGES, ["no column 'id'", "'name'"]),
        (NODES, ["from,to", "a,b"], ["no column 'source'", "'from', 'to'"]),
    ],
)
def test_a_wrong_graph(nodes: list[str], edges: list[str], says: list[str], tmp_path: Path) -> None:
    data = write(tmp_path / "graph", nodes, edges)
    options = ("--data", data, "--silos", 2, "--split", "random", "--out", tmp_path / "run")
    refuse("run", *options, "--epochs", 1, says=says)
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    refuse("run", "--data", tmp_path / "graph", "--out", tmp_path / "run", says=["no folder", "graph", ".parquet"])
    assert list(tmp_path.iterdir()) == []


def test_damaged_parquet(tmp_path: Path) -> None:
    data = write(tmp_path / "graph")
    (data / "nodes.csv").unlink()
    (data / "nodes.parquet").write_bytes(b"PAR1" + b"\0" * 100 + b"PAR1")
    refuse("run", "--data", data, "--out", tmp_path / "run", says=["nodes.parquet", "cannot be read"])
    refuse("split", data, "--out", tmp_path / "parts", says=["nodes.parquet", "cannot be read"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph"]


def test_a_silo_without_training_nodes_is_told_and_trained_around(tmp_path: Path) -> None:
    nodes = ["id,label,split,age,bank", "a,x,train,1,A", "b,y,train,2,A", "c,x,valid,3,B", "d,y,test,4,B", "e,,,5,C"]
    data = write(tmp_path / "graph", nodes)
    options = ("--data", data, "--silos", 3, "--split", "attribute:bank", "--epochs", 2)
    said = succeed("run", *options, "--out", tmp_path / "run").out
    notes = metrics(tmp_path / "run")["notes"]
    assert "B, C have no labelled train nodes." in notes
    assert all(f"note: {note}" in said for note in notes)
    assert len(history(tmp_path / "run")) == 4


# From Python


def test_owner_vectors(tmp_path: Path) -> None:
    graph = small_graph()
    with pytest.raises(IsthmusError, match="11 entries for 12 nodes"):
        package.split(graph, [0] * 11)
    with pytest.raises(IsthmusError, match=r"-1\.\.1; allowed are 0\.\.1"):
        package.split(graph, [-1] + [1] * 11, 2)
    with pytest.raises(IsthmusError, match=r"0\.\.5; allowed are 0\.\.1"):
        package.split(graph, [5] + [0] * 11, 2)


SPOILT: dict[str, tuple[Callable[[Graph], Graph], str]] = {
    "nan": (lambda g: replace(g, x=g.x.index_fill(0, torch.tensor(3), torch.nan)), "node feature .* NaN or infinite"),
    "inf": (lambda g: replace(g, edge_attr=g.edge_attr + torch.inf), "edge feature .* NaN or infinite"),  # type: ignore[operator]
    "high label": (lambda g: replace(g, y=g.y + 1), r"labels lie in .*3; allowed are 0\.\.2"),  # type: ignore[operator]
    "low label": (lambda g: replace(g, y=g.y - 3), "allowed are"),  # type: ignore[operator]
    "few labels": (lambda g: replace(g, y=g.y[:5]), "5 node labels for 12 nodes"),  # type: ignore[index]
    "unknown end": (lambda g: replace(g, edge_index=g.edge_index + 5), "ends at an unknown node"),
    "twice": (lambda g: replace(g, ids=np.zeros(12, dtype=np.int64)), "appear more than once"),
    "few rows": (lambda g: replace(g, x=g.x[:5]), "12 node ids but 5 feature rows"),  # type: ignore[index]
}


@pytest.mark.parametrize("case", SPOILT)
def test_graphs_that_cannot_be_trained_on(case: str) -> None:
    spoil, says = SPOILT[case]
    with pytest.raises(IsthmusError, match=says):
        spoil(small_graph()).check()


# What is there already


@pytest.fixture
def run(tmp_path: Path) -> Path:
    succeed(*SMALL, "--out", tmp_path / "run")
    return tmp_path / "run"


def test_a_run_is_not_replaced_by_accident(run: Path) -> None:
    before = snapshot(run)
    refuse(*SMALL, "--out", run, says=["already holds a run", "--resume", "--overwrite"])
    refuse(*SMALL, "--seeds", 2, "--out", run, says=["already holds a run"])
    assert snapshot(run) == before


BROKEN = [
    ("--data", "block"),
    ("--data", "./nowhere"),
    ("--silos", 100),
    ("--hosts", 9),
    ("--set", "data.degree=99"),
    ("--split", "attribute:bnk"),
    ("--hosts", 2, "--data", "block"),
    ("--seeds", 2, "--silos", 100),
]


@pytest.mark.parametrize("options", BROKEN, ids=str)
def test_what_cannot_start_does_not_replace_anything(options: tuple[str, ...], run: Path) -> None:
    before = snapshot(run)
    refuse(*SMALL, *options, "--out", run, "--overwrite")
    assert snapshot(run) == before
    assert [path.name for path in run.parent.iterdir()] == ["run"]


def test_a_run_is_replaced_when_told(run: Path, tmp_path: Path) -> None:
    (run / "old.txt").write_text("of the old run")
    succeed(*SMALL, "--seed", 1, "--out", run, "--overwrite")
    succeed(*SMALL, "--seed", 1, "--out", tmp_path / "new")
    same_run(run, tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "run"]
    assert not (run / "old.txt").exists()


def test_the_old_run_survives_a_crash_of_the_new_one(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot(run)

    def crash(*_: object, **__: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr("isthmus.launch.processes.host_main", crash)
        with pytest.raises(RuntimeError):
            isthmus(*SMALL, "--seed", 1, "--out", run, "--overwrite")
    refuse(*SMALL, "--silos", 100, "--out", run, "--overwrite")  # the next attempt finds it again
    assert snapshot(run) == before


@pytest.mark.parametrize("name", ["thesis.tex", "checkpoint/model.pt", "config.toml", "comparison.json"])
def test_nothing_but_a_run_is_ever_overwritten(name: str, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    (mine / name).parent.mkdir(parents=True)
    (mine / name).write_text("[package]\nname = 'mine'\n")
    (mine / "more").mkdir()
    (mine / "more" / "thesis.tex").write_text("years of work")
    before = snapshot(mine)
    refuse(*SMALL, "--out", mine, "--overwrite", says=["not a run folder", "will not delete"])
    refuse(*SMALL, "--out", mine, says=["--overwrite"])
    assert snapshot(mine) == before


def test_a_folder_of_runs_may_be_replaced(run: Path, tmp_path: Path) -> None:
    both = tmp_path / "both"
    (both / "not-yet").mkdir(parents=True)
    shutil.copytree(run, both / "fedavg")
    (both / "comparison.json").write_text("{}")
    (both / "fedavg-too").mkdir()
    (both / "fedavg-too" / "thesis.tex").write_text("years of work")
    refuse(*SMALL, "--out", both, "--overwrite", says=["not a run folder"])
    shutil.rmtree(both / "fedavg-too")
    succeed(*SMALL, "--out", both, "--overwrite")
    same_run(run, both)


def test_an_empty_folder_is_used_and_left_empty_by_a_failure(tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    refuse(*SMALL, "--silos", 100, "--out", out)
    assert list(tmp_path.rglob("*")) == [out]
    succeed(*SMALL, "--out", out)


def test_places_where_no_folder_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    refuse(*SMALL, "--out", tmp_path / "file", says=["is a file", "--out"])
    refuse(*SMALL, "--out", tmp_path / "file" / "run", says=["cannot be written", "--out"])
    assert snapshot(tmp_path) == {"file": b"mine"}


def test_nothing_to_resume(tmp_path: Path) -> None:
    refuse("run", "--out", tmp_path / "typo", "--resume", says=["typo", "no run to resume"])
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("years of work")
    refuse(*SMALL, "--out", mine, "--resume", says=["no run to resume"])
    assert snapshot(tmp_path) == {"mine/thesis.tex": b"years of work"}


# Checkpoints


def newest(run: Path) -> Path:
    return max((run / "checkpoint").glob("epoch-*"))


def flip(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[-9] ^= 0x40
    path.write_bytes(bytes(body))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a flipped bit": lambda at: flip(at / "host-0.safetensors"),
    "half the tensors": lambda at: (at / "host-0.safetensors").write_bytes(b"half"),
    "no tensors": lambda at: (at / "host-0.safetensors").unlink(),
    "half the JSON": lambda at: (at / "host-0.json").write_text((at / "host-0.json").read_text()[:40]),
    "other JSON": lambda at: (at / "host-0.json").write_text("[]"),
    "nothing in the JSON": lambda at: (at / "host-0.json").write_text(""),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_checkpoint_is_refused_and_the_one_before_goes_on(case: str, run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "whole")
    damaged = newest(run)
    DAMAGE[case](damaged)
    before = snapshot(run)
    refuse("run", "--out", run, "--resume", says=[str(damaged), "damaged", "Delete that folder", "--overwrite"])
    assert snapshot(run) == before
    damaged.rename(damaged.with_name(f"{damaged.name}.damaged"))  # deleted, or only put aside
    succeed("run", "--out", run, "--resume")
    same_run(run, tmp_path / "whole")


@pytest.mark.parametrize("name", ["metrics.jsonl", "checkpoint/ledger-host-0.bin", "checkpoint/legs-host-0.bin"])
@pytest.mark.parametrize("how", ["gone", "short"])
def test_a_log_that_is_shorter_than_its_checkpoint(name: str, how: str, run: Path) -> None:
    path = run / name
    path.unlink() if how == "gone" else path.write_bytes(path.read_bytes()[:-1])
    refuse("run", "--out", run, "--resume", says=[str(path), "shorter", "--overwrite"])


def test_a_run_of_another_configuration_is_not_continued(run: Path, tmp_path: Path) -> None:
    before = snapshot(run)
    refuse("run", "--out", run, "--resume", "--set", "train.lr=0.5", says=["train.lr is 0.01 there and 0.5 here"])
    refuse(*SMALL, "--silos", 2, "--out", run, "--resume", says=["data.silos is 3 there and 2 here", "--overwrite"])
    refuse("run", "--out", run, "--resume", "--hosts", 2, says=["system.hosts is 1 there and 2 here"])
    assert snapshot(run) == before
    succeed(*SMALL, "--seed", 5, "--out", tmp_path / "other")
    shutil.rmtree(run / "checkpoint")
    shutil.copytree(tmp_path / "other" / "checkpoint", run / "checkpoint")  # somebody mixed two runs up
    refuse("run", "--out", run, "--resume", says=["another configuration", "config.toml", "--overwrite"])


def test_seeds_and_single_runs_do_not_mix(run: Path) -> None:
    before = snapshot(run)
    refuse(*SMALL, "--out", run, "--resume", "--seeds", 2, says=["one run", "--seeds", "--out"])
    assert snapshot(run) == before


@pytest.mark.parametrize(
    "name", ["config.toml", "metrics.json", "metrics.jsonl", "ledger.parquet", "steps.parquet", "legs.parquet"]
)
def test_commands_on_a_damaged_run_say_what_is_damaged(name: str, run: Path, tmp_path: Path) -> None:
    (run / name).write_bytes(b"{ half")
    for command in (("report", run), ("compare", run, "--out", tmp_path / "comparison")):
        refuse(*command, says=[name, "damaged"])


@pytest.mark.parametrize(("key", "value"), [("seconds", "x"), ("parties", 1e308), ("valid_pooled", "x")])
def test_metrics_that_no_run_writes_are_damage(key: str, value: object, run: Path, tmp_path: Path) -> None:
    path = run / "metrics.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    refuse("report", run, says=[str(run), "is damaged, or of another version"])
