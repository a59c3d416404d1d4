"""The commands: what they take, what they print, and what they leave behind."""

import json
from pathlib import Path
from statistics import fmean, stdev

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from isthmus.commands.run import Request, configure
from isthmus.data import DATASETS
from isthmus.methods.catalogue import names
from isthmus.runs.recipe import recipe_names
from tests.helpers.command import SMALL, history, isthmus, losses, metrics, refuse, same_run, snapshot, succeed

pytestmark = pytest.mark.usefixtures("no_report")  # but for runs of fixtures

TABLES = ("ledger.parquet", "legs.parquet")
FILES = ("config.toml", "metrics.jsonl", "metrics.json", *TABLES, "model.safetensors", "report.html")
AXES = {"exchange", "schedule", "sync", "objective", "protect", "score", "paper"}
COLUMNS = ["epoch", "step", "purpose", "sender", "receiver", "kind", "event", "model", "messages", "rows", "bytes"]
OPTIONS = (
    "data", "method", "model", "silos", "split", "epochs", "steps", "seed", "seeds", "dtype", "device", "hosts", "out",
    "set", "resume", "overwrite", "json",
)  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of four epochs over three silos, to look at and not to change."""
    folder = tmp_path_factory.mktemp("cli") / "run"
    succeed(*SMALL, "--out", folder)
    return folder


def test_every_option_is_in_the_help() -> None:
    text = succeed("run", "--help").out
    for option in OPTIONS:
        assert f"--{option} " in text, option


def test_a_run_leaves_its_files(finished: Path) -> None:
    for name in FILES:
        assert (finished / name).stat().st_size, name
    assert (finished / "checkpoint").is_dir()
    assert not [path.name for path in finished.rglob(".*")]  # no half-written files


def test_one_line_for_each_step_and_one_for_each_evaluated_epoch(finished: Path) -> None:
    lines = history(finished)
    steps, epochs = [x for x in lines if "valid" not in x], [x for x in lines if "valid" in x]
    assert [(x["step"], x["epoch"]) for x in steps] == [(i, i) for i in range(1, 5)]
    assert [(x["step"], x["epoch"]) for x in epochs] == [(i, i) for i in range(1, 5)]
    assert all(set(x) == {"step", "epoch", "loss"} for x in steps)
    assert [x["loss"] for x in steps] == [x["loss"] for x in epochs]  # full batch: a step is an epoch


def test_final_metrics(finished: Path) -> None:
    found = json.loads((finished / "metrics.json").read_text())
    said = {key: found[key] for key in ("method", "data", "silos", "seed", "epochs", "steps")}
    assert said == {"method": "fedavg", "data": "blocks", "silos": 3, "seed": 0, "epochs": 4, "steps": 4}
    for split in ("valid", "test"):
        assert set(found[split]) == {"accuracy", "macro_f1", "silos"}
        assert list(found[split]["silos"]) == ["silo-0", "silo-1", "silo-2"]
    assert found["seconds"] > 0
    assert found["epsilon"] == found["privacy"][0]["epsilon"] == "inf"
    assert found["privacy"][0]["bare"] == ["parameters"]
    assert {*found["privacy"][0]["apart"], "parameters"} == set(found["bytes"]) - {"total"}
    best = max((x for x in history(finished) if "valid" in x), key=lambda x: x["valid"]["accuracy"])
    assert found["valid"]["accuracy"] == best["valid"]["accuracy"]


def test_bytes_are_the_sums_of_the_ledger(finished: Path) -> None:
    ledger = pq.read_table(finished / "ledger.parquet")
    assert ledger.column_names == COLUMNS
    said = json.loads((finished / "metrics.json").read_text())["bytes"]
    sums: dict[str, int] = {}
    for row in ledger.to_pylist():
        sums[row["kind"]] = sums.get(row["kind"], 0) + row["bytes"]
    assert said == {"total": sum(sums.values()), **sums}
    # Every epoch each of three silos sends its parameters and gets the mean back.
    numbers = sum(t.numel() for t in load_file(finished / "model.safetensors").values())
    assert sums["parameters"] == 4 * 3 * 2 * numbers * 4


def test_the_model_is_finite_and_whole(finished: Path) -> None:
    model = load_file(finished / "model.safetensors")
    assert model and all(bool(torch.isfinite(tensor).all()) for tensor in model.values())


VARIETY = [
    (),
    ("--method", "fedprox", "--set", "objective.mu=0.3", "--set", "sync.local_epochs=3", "--seed", 7),
    ("--method", "fedper", "--dtype", "float64", "--split", "label:0.5", "--set", "data.seed=2"),
    ("--method", "sync-sgd", "--model", "gat", "--set", "model.heads=2", "--set", "train.batch=16", "--set",
     "train.fanout=3,2", "--split", "metis"),
    ("--method", "local-mlp", "--set", "train.optimiser=sgd", "--set", "data.scale=columns"),
    ("--method", "fedavg", "--set", "sync.private=head,layers.1", "--set", "exchange.halo=placeholder"),
    ("--method", "ce-fedgnn", "--set", "sync.local_steps=1", "--set", "protect=gaussian,bfloat16", "--set",
     "protect.sigma=0.1", "--set", "score=across"),
    ("--method", "pretrained-fedavg", "--set", "phase.pretrain.epochs=2", "--set",
     "phase.federate.exchange=optimes"),
    ("--method", "llcg-every-step", "--set", "sync.every=2", "--set", "sync.seeds=5", "--set", "score=own"),
]  # fmt: skip


@pytest.mark.parametrize("options", VARIETY, ids=lambda options: " ".join(map(str, options[:2])) or "defaults")
def test_config_toml_repeats_the_run(options: tuple[str, ...], tmp_path: Path) -> None:
    succeed(*SMALL, *options, "--out", tmp_path / "a")
    succeed("run", tmp_path / "a" / "config.toml", "--out", tmp_path / "b")
    same_run(tmp_path / "a", tmp_path / "b", also=["config.toml"])


def test_the_same_command_gives_the_same_bytes_and_another_seed_does_not(finished: Path, tmp_path: Path) -> None:
    succeed(*SMALL, "--out", tmp_path / "again")
    same_run(finished, tmp_path / "again")
    succeed(*SMALL, "--seed", 1, "--out", tmp_path / "other")
    assert losses(tmp_path / "other") != losses(finished)


@pytest.mark.parametrize("batch", [0, 8])
@pytest.mark.parametrize("steps", [1, 4, 7])
def test_exactly_as_many_steps_as_asked_for(batch: int, steps: int, tmp_path: Path) -> None:
    without = [x for x in SMALL if x not in ("--epochs", 4)]
    succeed(*without, "--steps", steps, "--set", f"train.batch={batch}", "--out", tmp_path / "run")
    done = [x["step"] for x in history(tmp_path / "run") if "valid" not in x]
    assert done == list(range(1, steps + 1))
    assert metrics(tmp_path / "run")["steps"] == steps
    assert any("valid" in x and x["step"] == steps for x in history(tmp_path / "run"))  # the last step is judged


def test_no_epoch_at_all(tmp_path: Path) -> None:
    succeed(*SMALL, "--epochs", 0, "--out", tmp_path / "run")
    assert history(tmp_path / "run") == []
    assert metrics(tmp_path / "run")["steps"] == 0


def test_a_run_that_diverged_says_so(finished: Path, tmp_path: Path) -> None:
    said = succeed(*SMALL, "--set", "train.lr=1e30", "--out", tmp_path / "run").out
    assert "no finite number from step 2 on" in said and "train.lr" in said
    assert not any("finite" in note for note in metrics(finished)["notes"])


def test_options_override_the_recipe_and_set_overrides_both(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text('method = "local"\nseed = 3\n[data]\nsilos = 2\n[train]\nsteps = 9\nlr = 0.5\n')
    options = {"method": "fedprox", "data": {"silos": 4}}
    config = configure(Request(str(recipe), options, ("data.silos=6", "objective.mu=2", "train.lr=0.25")))
    assert (config.method.name, config.seed, config.data.silos, config.train.lr) == ("fedprox", 3, 6, 0.25)
    assert config.train.steps == 9
    assert config.as_dict()["objective"]["mu"] == 2.0
    assert configure(Request(str(recipe), {"train": {"epochs": 2}})).train.steps == 0  # else steps would come first


@pytest.mark.parametrize("recipe", recipe_names())
def test_shipped_recipes_are_whole(recipe: str) -> None:
    config = configure(Request(recipe, {}))
    assert configure(Request(recipe, {})).digest() == config.digest()
    assert config.data.name in DATASETS


def test_a_shipped_recipe_runs_with_options(tmp_path: Path) -> None:
    succeed("run", "demo", "--set", "data.nodes=400", "--epochs", 2, "--method", "local", "--out", tmp_path / "run")
    config = configure(Request(str(tmp_path / "run" / "config.toml"), {}))
    assert (config.model.name, config.model.dropout, config.data.split) == ("gcn", 0.5, "attribute:bank")
    assert (config.train.epochs, config.method.name, metrics(tmp_path / "run")["epochs"]) == (2, "local", 2)


def test_the_recipe_of_feddep_is_planned_run_and_scored_without_any_download(tmp_path: Path) -> None:
    small = ("--set", "data.nodes=240", "--set", "model.hidden=8", "--set", "phase.encode.epochs=2", "--epochs", 4)
    plan = json.loads(succeed("plan", "feddep", *small, "--json").out)
    succeed("run", "feddep", *small, "--out", tmp_path / "run")
    found = metrics(tmp_path / "run")
    assert list(found["scored"]) == ["trained", "global"] and found["method"] == "feddep"
    assert plan["bytes"]["parameters"] == found["bytes"]["parameters"] and plan["extrapolated"] == ["prototypes"]
    assert 0 < found["bytes"]["prototypes"] <= 5 * 4 * 10 * 8 * 4  # ten of eight numbers, from five banks to four
    assert all(each["predicted_neighbours"] is not None for each in found["silo_figures"].values())
    config = configure(Request(str(tmp_path / "run" / "config.toml"), {}))
    assert (config.train.batch, config.train.optimiser, config.train.lr) == (32, "sgd", 0.1)
    assert any(each["of"] == "neighbour lists" for each in found["privacy"])
    succeed("score", tmp_path / "run", "--data", "blocks", "--set", "data.nodes=240", "--set", "data.classes=5")
    assert pq.read_table(tmp_path / "run" / "predictions.parquet").num_rows == 240


def test_several_seeds_give_mean_and_deviation(finished: Path, tmp_path: Path) -> None:
    said = succeed(*SMALL, "--seeds", 3, "--out", tmp_path / "run").out
    each = [metrics(tmp_path / "run" / f"seed-{seed}") for seed in range(3)]
    assert [one["seed"] for one in each] == [0, 1, 2]
    whole = metrics(tmp_path / "run")
    assert whole["seeds"] == [0, 1, 2]
    for name in ("accuracy", "macro_f1"):
        scores = [one["test"][name] for one in each]
        assert whole["test"][name] == pytest.approx(fmean(scores))
        assert whole["test_std"][name] == pytest.approx(stdev(scores))
        assert f"{fmean(scores):.4f} ± {stdev(scores):.4f}" in said
    silo = [one["test"]["silos"]["silo-1"]["accuracy"] for one in each]
    assert whole["test"]["silos"]["silo-1"]["accuracy"] == pytest.approx(fmean(silo))
    same_run(finished, tmp_path / "run" / "seed-0")  # a seed of several is the run with that seed
    for name in set(FILES) - {"report.html"}:
        assert (tmp_path / "run" / name).is_file(), name
    refuse("run", "--out", tmp_path / "run", "--resume", says=["several seeds", "--seeds"])


def test_json_says_what_metrics_json_says(tmp_path: Path) -> None:
    said = json.loads(succeed(*SMALL, "--out", tmp_path / "run", "--json").out)
    assert said == {**json.loads((tmp_path / "run" / "metrics.json").read_text()), "folder": str(tmp_path / "run")}


def test_the_table_shows_scores_bytes_and_where_the_report_is(tmp_path: Path) -> None:
    said = succeed(*SMALL, "--out", tmp_path / "run").out
    found = metrics(tmp_path / "run")
    assert "fedavg on blocks, 3 silos" in said
    assert f"{found['valid']['accuracy']:.4f}" in said and f"{found['test']['macro_f1']:.4f}" in said
    assert "crossed in 4 steps" in said and f"{tmp_path / 'run'}/report.html" in said


def test_the_table_says_what_scores_saw_and_has_every_way(tmp_path: Path) -> None:
    out = succeed(*SMALL, "--method", "fedavg", "--set", "score=own,across", "--out", tmp_path / "a").out
    across = metrics(tmp_path / "a")["scored"]["across"]
    assert "scored own edges" in " ".join(out.split())
    for name, split in (("accuracy, across", "test"), ("accuracy, across, pooled", "test_pooled")):
        [line] = [line for line in out.splitlines() if f"│ {name} " in line]
        assert f"{across[split]['accuracy']:.4f}" in line
    merged = succeed(*SMALL, "--method", "centralised", "--out", tmp_path / "b").out
    assert "on the merged graph" in " ".join(merged.split())


def test_the_default_folder_is_named_by_data_and_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    succeed(*SMALL, "--method", "local", "--epochs", 1)
    assert (tmp_path / "runs" / "blocks-local" / "metrics.json").is_file()


def test_float64_is_another_number_format(finished: Path, tmp_path: Path) -> None:
    succeed(*SMALL, "--dtype", "float64", "--out", tmp_path / "run")
    assert load_file(tmp_path / "run" / "model.safetensors")["head.weight"].dtype == torch.float64
    assert losses(tmp_path / "run") == pytest.approx(losses(finished), rel=1e-4)
    assert losses(tmp_path / "run") != losses(finished)


def test_evaluation_every_few_epochs_and_at_the_end(tmp_path: Path) -> None:
    succeed(*SMALL, "--set", "train.evaluate_every=3", "--out", tmp_path / "run")
    assert [x["epoch"] for x in history(tmp_path / "run") if "valid" in x] == [3, 4]


def test_methods_and_data_sets_are_listed() -> None:
    rows = json.loads(succeed("methods", "--json").out)
    assert [row["name"] for row in rows] == names()
    assert all(row["summary"] and AXES <= set(row) for row in rows)
    prox = next(row for row in rows if row["name"] == "fedprox")
    assert prox["options"]["objective.mu"] == 0.01 and prox["options"]["sync.local_epochs"] == 1
    rows = json.loads(succeed("datasets", "--json").out)
    assert [row["name"] for row in rows] == list(DATASETS)
    assert all(row["summary"] and row["source"] and row["model"] for row in rows)
    assert "fedprox" in succeed("methods").out and "blocks" in succeed("datasets").out


SPLIT = ("split", "blocks", "--silos", 3, "--set", "data.nodes=64", "--set", "data.degree=3")


def test_split_prints_what_every_silo_owns(tmp_path: Path) -> None:
    stats = json.loads(succeed(*SPLIT, "--json").out)
    assert stats["nodes"] == 64 == sum(silo["nodes"] for silo in stats["silos"])
    assert len(stats["silos"]) == 3
    crossing = sum(silo["cross"] for silo in stats["silos"])
    assert sum(silo["inner"] for silo in stats["silos"]) + crossing // 2 == stats["edges"]  # both sides list one
    assert "silo-2" in succeed(*SPLIT, "--split", "random").out
    assert list(tmp_path.iterdir()) == []  # nothing is written unless asked for


def test_split_replaces_parts_only_when_told_and_nothing_else_ever(tmp_path: Path) -> None:
    parts, mine = tmp_path / "parts", tmp_path / "mine"
    said = succeed(*SPLIT, "--out", parts).out
    assert f"isthmus run --data {parts}" in said
    before = snapshot(parts)
    refuse(*SPLIT, "--split", "random", "--out", parts, says=["not empty", "--overwrite"])
    refuse(*SPLIT, "--split", "rendom", "--out", parts, "--overwrite", says=["'random'"])
    assert snapshot(parts) == before
    succeed(*SPLIT, "--split", "random", "--out", parts, "--overwrite")
    assert snapshot(parts) != before and sorted(snapshot(parts)) == sorted(before)
    mine.mkdir()
    (mine / "thesis.tex").write_text("years of work")
    refuse(*SPLIT, "--out", mine, "--overwrite", says=["no parts"])
    refuse(*SPLIT, "--out", mine / "thesis.tex", "--overwrite", says=["is a file"])
    assert snapshot(mine) == {"thesis.tex": b"years of work"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "parts"]
    refuse("split", parts, says=["parts already"])
    refuse(*SPLIT, "--set", "train.lr=1", says=["data"])


def test_places_where_nothing_can_be_written(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    below, told = tmp_path / "file" / "x", ["cannot be written", "--out"]
    few = [word for key in ("nodes=60", "classes=3", "degree=4", "features=4") for word in ("--set", f"data.{key}")]
    refuse("compare", finished, finished, "--out", tmp_path / "file", says=told)
    refuse("score", finished, "--data", "blocks", *few, "--out", below.with_suffix(".csv"), says=told)
    refuse("split", "blocks", *few, "--out", below, says=told)
    refuse("simulate-aml", "--transactions", 6000, "--illicit-rate", 0.1, "--out", below, says=told)


def test_compare_and_report(finished: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    succeed(*SMALL, "--method", "local", "--out", alone)
    said = succeed("compare", finished, alone, "--out", tmp_path / "both").out
    assert "fedavg" in said and "local" in said and "comparison.html" in said
    rows = json.loads(succeed("compare", finished, alone, "--out", tmp_path / "both", "--json").out)["runs"]
    assert [row["test"] for row in rows] == [metrics(run)["test"]["accuracy"] for run in (finished, alone)]
    page = alone / "report.html"
    assert str(page) in succeed("report", alone).out.replace("\n", "")
    assert page.read_text().lower().startswith("<!doctype html>")
    for command in ("compare", "report"):
        refuse(command, tmp_path / "none", says=["is not a run"])


def test_no_command_shows_the_help() -> None:
    outcome = isthmus()
    assert all(command in outcome.out + outcome.err for command in ("run", "split", "score", "compare", "report"))


def test_an_interrupted_run_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("isthmus.commands.run.execute", interrupt)
    refuse(*SMALL, "--out", tmp_path / "run", says=["Interrupted before the first checkpoint", "--overwrite"])
