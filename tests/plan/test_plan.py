"""A plan says before a run what the run's ledger says after it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from isthmus.commands.run import Request, configure
from isthmus.core.kinds import Purpose
from isthmus.plan.plan import make_plan
from isthmus.plan.run_length import Length, length_of
from tests.helpers.command import SMALL, refuse, succeed
from tests.helpers.small import run_method, small_graph

pytestmark = pytest.mark.usefixtures("no_report")

OPTIONS = tuple(x for x in SMALL if x not in ("run", "--epochs", 4))
SAMPLED = ("--set", "train.batch=8", "--set", "train.fanout=2")
ALL_SILOS = ("--set", "schedule.every=2", "--set", "schedule.share=1")
EXACT: dict[str, tuple[Any, ...]] = {
    "fedavg": ("--epochs", 9),
    "rounds of three epochs": ("--epochs", 11, "--set", "sync.local_epochs=3", "--set", "train.evaluate_every=2"),
    "sync-sgd": ("--method", "sync-sgd", "--epochs", 7, "--set", "train.evaluate_every=3"),
    "full exchange": ("--method", "sync-sgd+fwd-bwd-le", "--epochs", 9),
    "ce-fedgnn": ("--method", "ce-fedgnn", "--epochs", 19, "--set", "sync.local_steps=4"),
    "optimes": ("--method", "optimes", "--epochs", 7),
    "rounds that end with an epoch": ("--method", "ce-fedgnn", "--epochs", 7),
    "sums of features": ("--method", "fedgcn", "--model", "gcn", "--epochs", 7, "--set", "sync.local_steps=3"),
    "local": ("--method", "local", "--epochs", 7),
    "aggregates": ("--method", "fedgnn-g", "--epochs", 7),
    "aggregates at some steps": ("--method", "fedgnn-g", "--epochs", 8, "--set", "schedule.every=3"),
    "exchange at some steps": ("--method", "sync-sgd+fwd-bwd-le", "--epochs", 7, "--set", "schedule.every=2"),
    "batches, and steps that end in an epoch": ("--steps", 23, *SAMPLED),
    "joint batches, pooled": ("--method", "sync-sgd", *SAMPLED, "--epochs", 6, "--set", "train.pooled=true"),
    "two phases": (
        *("--method", "pretrained-fedavg", "--epochs", 17, "--set", "phase.pretrain.epochs=6"),
        *("--set", "train.evaluate_every=4", "--set", "sync.local_epochs=3"),
    ),
    "validations counted over two phases": (
        *("--method", "pretrained-fedavg", "--epochs", 12, "--set", "score=own,across"),
        *("--set", "train.evaluate_every=3"),
    ),
    "validations counted over two phases, the last epoch too": (
        *("--method", "pretrained-fedavg", "--epochs", 13, "--set", "score=own,across"),
        *("--set", "train.evaluate_every=4"),
    ),
    "one step": ("--epochs", 1),
    "no step": ("--epochs", 0),
}
ROUGH: dict[str, tuple[Any, ...]] = {
    "full exchange": ("--method", "sync-sgd+fwd-bwd-le", "--epochs", 12, *SAMPLED),
    "the paper's exchange": ("--method", "fedavg+fwd-bwd-le", "--epochs", 12, *SAMPLED),
    "ce-fedgnn": ("--method", "ce-fedgnn", "--epochs", 30, "--set", "sync.local_steps=5", *SAMPLED),
    "corrections": ("--method", "llcg-every-step", "--epochs", 7, "--set", "sync.every=3", "--set", "sync.seeds=1000"),
    "corrections after rounds": (
        *("--method", "llcg", "--epochs", 30, "--set", "sync.local_steps=2"),
        *("--set", "sync.growth=1.5", "--set", "sync.seeds=1000"),
    ),
    "swift-fedgnn": ("--method", "swift-fedgnn", "--epochs", 20, *ALL_SILOS, *SAMPLED),
    "shares": ("--method", "fedgnn-g", "--epochs", 8, *SAMPLED, "--set", "protect=fixed-point,shares"),
    "some silos": ("--method", "swift-fedgnn", "--epochs", 40, "--set", "schedule.every=2"),
    "some silos, layer-wise": ("--method", "sync-sgd+fwd-bwd-le", "--epochs", 40, "--set", "schedule.silos=2"),
    "intervals of their own, agreed moments": (
        *("--method", "fedgnn-pns", "--epochs", 60, "--set", "schedule.period=8"),
        *("--set", "model.norm=batch", "--set", "train.statistics=agreed"),
    ),
}


def planned(*options: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(succeed("plan", *OPTIONS, *options, "--json").out)
    return found


def both(folder: Path, *options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the plan said and what the run did."""
    plan = planned(*options)
    ran = json.loads(succeed("run", *OPTIONS, *options, "--out", folder, "--json").out)
    assert plan["trial_steps"] < ran["steps"] or ran["steps"] <= 1
    assert (plan["steps"], plan["epochs"]) == (ran["steps"], ran["epochs"])
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert plan["validations"] == sum("valid" in line for line in lines)
    return plan, ran


def trips(found: dict[str, Any]) -> dict[str, float]:
    return {name: part["round_trips"] for name, part in found["link"]["parts"].items()}


@pytest.mark.parametrize("case", EXACT)
def test_what_does_not_depend_on_sampling_is_exact(case: str, tmp_path: Path) -> None:
    plan, ran = both(tmp_path / "run", *EXACT[case])
    assert plan["extrapolated"] == []
    assert plan["bytes"] == ran["bytes"]
    assert trips(plan) == trips(ran) and plan["link"]["round_trips"] == ran["link"]["round_trips"]
    assert plan["link"]["transfer_seconds"] == pytest.approx(ran["link"]["transfer_seconds"])
    assert plan["link"]["latency_seconds"] == pytest.approx(ran["link"]["latency_seconds"])
    for name, part in ran["link"]["parts"].items():
        assert plan["link"]["parts"][name]["bytes"] == pytest.approx(part["bytes"])


@pytest.mark.parametrize("case", ROUGH)
def test_what_is_sampled_is_extrapolated(case: str, tmp_path: Path) -> None:
    plan, ran = both(tmp_path / "run", *ROUGH[case])
    told = set(plan["extrapolated"])
    assert told <= {"ids", "embeddings", "adjoints", "partials", "share-sums", "features", "labels", "edges"}
    assert ("share-sums" in told) == (case == "shares")
    assert told & {"embeddings", "partials", "features"}
    assert trips(plan) == trips(ran)
    for kind, size in ran["bytes"].items():
        exact = kind not in (*plan["extrapolated"], "total")
        assert plan["bytes"][kind] == (size if exact else pytest.approx(size, rel=0.15)), kind
    assert plan["link"]["transfer_seconds"] == pytest.approx(ran["link"]["transfer_seconds"], rel=0.1)


def test_phases_that_hand_something_over_are_planned_one_by_one(tmp_path: Path) -> None:
    """All but the number of prototypes, which are means of what a model of two steps has learnt, is exact."""
    plan, ran = both(tmp_path / "run", "--method", "feddep", "--epochs", 12, "--set", "phase.encode.epochs=5")
    assert plan["extrapolated"] == ["prototypes"] and plan["trial_steps"] == 4
    assert plan["bytes"]["prototypes"] == pytest.approx(ran["bytes"]["prototypes"], rel=0.3)
    exact = set(ran["bytes"]) - {"prototypes", "total"}
    assert {kind: plan["bytes"][kind] for kind in exact} == {kind: ran["bytes"][kind] for kind in exact}
    assert trips(plan) == trips(ran)


def test_trial_steps(tmp_path: Path) -> None:
    assert planned("--epochs", 50)["trial_steps"] == 2
    assert planned("--epochs", 500, "--set", "sync.local_epochs=10")["trial_steps"] == 10
    assert planned("--epochs", 500, "--set", "sync.local_epochs=100")["trial_steps"] == 64
    assert planned("--epochs", 50, "--trial-steps", 7)["trial_steps"] == 7
    assert planned("--epochs", 3, "--trial-steps", 70)["trial_steps"] == 3
    cut = planned("--method", "ce-fedgnn", "--epochs", 50, "--set", "sync.local_steps=32", *SAMPLED, "--trial-steps", 3)
    assert any("shorter than a round" in note for note in cut["notes"])
    early = planned("--epochs", 50, "--set", "train.patience=3")
    assert early["validations"] == 50 and "train.patience" in early["notes"][0]


def test_patience_ends_nothing_where_silos_select_for_themselves(tmp_path: Path) -> None:
    """Neither the run nor its plan is shorter, and both say why."""
    plan, ran = both(tmp_path / "run", "--method", "local", "--epochs", 30, "--set", "train.patience=1")
    assert ran["epochs"] == 30
    for notes in (plan["notes"], ran["notes"]):
        assert [note for note in notes if "train.patience" in note] == [
            "train.patience never ends this run: each silo selects a model for itself, and training ends early only "
            "where silos select together."
        ]
    phases = planned("--method", "pretrained-fedavg", "--epochs", 12, "--set", "train.patience=1")["notes"]
    assert any("may end the run earlier" in note for note in phases)
    assert any("never ends phase pretrain" in note for note in phases)
    together = planned("--epochs", 12, "--set", "train.patience=1")["notes"]
    assert not any("never ends" in note for note in together)


@pytest.mark.parametrize("batches", ["local", "joint"])
def test_seeds_of_silos_that_cross_are_counted_without_a_step(batches: str) -> None:
    """Silos of different size, whose last batches of an epoch are smaller."""
    options = {"schedule": {"every": 3, "silos": 2}, "sync": {"weights": ""}}
    settings = {"batch": 4, "fanout": (2,), "batches": batches, "epochs": 5}
    owner = torch.arange(60).clamp(max=40) % 3
    training = run_method("swift-fedgnn", small_graph(60, 140), owner, 3, options=options, **settings).training
    planned = length_of(training.stage, training.stage.last_step, 0)
    stage, progress = training.stage, training.progress
    crossed = rests = progress.step = 0
    for progress.epoch in range(5):
        for seeds in stage.epoch_seeds(progress):
            across = stage.who_crosses(progress.step)
            crossed += int(seeds.counts()[across].sum()) if across.any() else 0
            rests += 0 if across.any() else int(seeds.counts().sum())
            progress.step += 1
    assert planned.seeds[Purpose.STEP] == pytest.approx(rests)
    assert planned.seeds[Purpose.MIXED] == pytest.approx(crossed, rel=0 if batches == "local" else 0.2)
    twice = Length(mixed=2, seeds={Purpose.MIXED: 3.0}), Length(mixed=4, seeds={Purpose.MIXED: 15.0})
    assert twice[1].over(twice[0])[Purpose.MIXED] == 2 and twice[1].rows_over(twice[0])[Purpose.MIXED] == 5


# Privacy


def test_epsilon_of_silos_is_that_of_the_run(tmp_path: Path) -> None:
    noise = [x for key in ("clip", "sigma") for x in ("--set", f"protect.{key}_parameters=0.5")]
    plan, ran = both(tmp_path / "run", "--epochs", 9, *noise)
    assert plan["epsilon"] == pytest.approx(of_a_node(ran))
    assert 0 < plan["epsilon"]["parameters"] == plan["epsilon"]["everything"] < float("inf")
    assert "ids" not in plan["epsilon"]


def of_a_node(ran: dict[str, Any]) -> dict[str, Any]:
    """Epsilon of one node in the worst case, by what it is of."""
    return {told["of"]: told["epsilon"] for told in ran["privacy"] if told["unit"] != "row"}


def test_releases_of_nodes_are_those_of_the_run(tmp_path: Path) -> None:
    """The worst case does not depend on rows, so that it is exact, whatever they are."""
    noise = ("--set", "protect.sigma=0.5", "--set", "protect.clip=1", "--method", "ce-fedgnn")
    length = ("--epochs", 12, "--set", "sync.local_steps=4")
    plan, ran = both(tmp_path / "run", *noise, *length)
    assert plan["epsilon"] == of_a_node(ran) and plan["epsilon"]["everything"] == "inf"  # weights left as they are
    assert plan["epsilon"]["embeddings"] > 0


def test_a_trial_that_cannot_tell_says_so() -> None:
    bound = ("--set", "protect.sigma=0.5", "--set", "protect.clip=1")
    noise = ("--method", "sync-sgd+fwd-le", *bound, "--epochs", 20, *SAMPLED)
    assert "unknown: 2 trial steps" in planned(*noise, "--trial-steps", 2)["epsilon"]["embeddings"]
    assert "Epsilon of embeddings is unknown" in succeed("plan", *OPTIONS, *noise, "--trial-steps", 2).out
    assert planned(*noise)["epsilon"]["embeddings"] > 0
    assert planned("--epochs", 5)["epsilon"] is None


# The command


def test_what_the_trial_scores_is_no_note_of_the_plan() -> None:
    """After two steps hardly any model beats a constant, which says nothing of the run that is planned."""
    said = json.loads(succeed("plan", *OPTIONS, "--method", "fedavg", "--epochs", 40, "--json").out)
    assert "CONSTANT" not in json.dumps(said, default=str)


def test_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = succeed("plan", *OPTIONS, "--epochs", 9, "--out", tmp_path / "run", "--overwrite", "--hosts", 2).out
    assert "9 steps, 9 rounds, 9 validations" in said and "Exact: bytes, round trips" in said
    assert "Over links of 1000 Mbit/s and 1 ms" in said
    succeed("plan", *OPTIONS, "--method", "sync-sgd+fwd-bwd-le", "--epochs", 9, *SAMPLED, "--seeds", 3)
    assert list(tmp_path.iterdir()) == []


def test_the_plan_of_a_folder_is_that_of_its_configuration(tmp_path: Path) -> None:
    succeed("run", *OPTIONS, "--epochs", 2, "--out", tmp_path / "run")
    whole = json.loads(succeed("plan", "--out", tmp_path / "run", "--resume", "--epochs", 9, "--json").out)
    assert whole["bytes"] == planned("--epochs", 9)["bytes"]


def test_merged_data_and_another_link() -> None:
    merged = planned("--method", "centralised", "--epochs", 9)
    assert merged["link"]["round_trips"] == 0 and any("nothing leaves it" in note for note in merged["notes"])
    slow, fast = (planned("--epochs", 9, "--set", f"link.mbps={speed}") for speed in (10, 1000))
    assert slow["link"]["transfer_seconds"] == pytest.approx(100 * fast["link"]["transfer_seconds"])
    plan = make_plan(configure(Request(None, {}, ("data.nodes=64", "data.degree=3", "train.epochs=4"))))
    assert plan.trial.steps == 2 and plan.length.steps == 4


def test_errors_are_those_of_a_run() -> None:
    refuse("plan", *OPTIONS, "--method", "fedavgg", says=["fedavgg", "fedavg"])
    refuse("plan", *OPTIONS, "--set", "train.speed=1", says=["train", "speed"])
    refuse("plan", *OPTIONS, "--set", "link.mbps=0", says=["link.mbps"])
    refuse("plan", *OPTIONS, "--trial-steps", 0, says=["--trial-steps is 0", "at least 1"])
    refuse("plan", *OPTIONS, "--epochs", 3, "--steps", 3, says=["--epochs", "--steps"])
    refuse("plan", *OPTIONS, "--seeds", 0, says=["--seeds"])
    refuse("plan", *OPTIONS, "--hosts", 9, says=["--hosts 9"])


def test_a_trial_shows_both_kinds_of_steps_of_a_schedule() -> None:
    options = ("--method", "swift-fedgnn", "--epochs", 20, "--set", "schedule.every=4")
    assert planned(*options, "--trial-steps", 2)["trial_steps"] == 2
    assert planned(*options)["trial_steps"] == 9  # two of the three silos cross at a time, until each has twice
    refuse("plan", *OPTIONS, *options, "--trial-steps", 1, says=["--trial-steps is 1", "give at least 2"])
