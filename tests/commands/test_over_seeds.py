"""What several seeds promise together is the worst of what each promises, guarantee by guarantee and silo by silo."""

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from isthmus.commands.over_seeds import worst_guarantees
from isthmus.protect.accounting.guarantee import DP, EDGE_LDP, ENTRY, EVERYTHING, LISTS, NODE, ROW, Guarantee
from tests.helpers.command import metrics, succeed


def run(*told: Guarantee) -> dict[str, Any]:
    return {"privacy": [each.as_dict() for each in told]}


def test_every_guarantee_is_its_worst_seeds_whatever_the_headline_is() -> None:
    headline = Guarantee(EVERYTHING, NODE, DP, float("inf"), 0.0)
    nodes = [Guarantee("embeddings", NODE, DP, epsilon, 1e-4) for epsilon in (742.2, 727.0, 772.5)]
    rows = [Guarantee("embeddings", ROW, DP, epsilon, 1e-4) for epsilon in (37.8, 39.6, 35.2)]
    found = worst_guarantees([run(headline, node, row) for node, row in zip(nodes, rows, strict=True)])
    assert [(each["unit"], each["epsilon"]) for each in found] == [(NODE, "inf"), (NODE, 772.5), (ROW, 39.6)]


def test_a_guarantee_that_one_seed_alone_tells_is_told() -> None:
    only = Guarantee("embeddings", ROW, DP, 3.0, 0.0)
    assert worst_guarantees([run(), run(only)]) == run(only)["privacy"]


def test_of_lists_the_seed_with_the_largest_delta_counts_and_of_each_silo_its_own_worst() -> None:
    def lists(epsilon: float, delta: float, north: float) -> Guarantee:
        silos = {"north": {"epsilon": north, "delta": delta}, "south": {"epsilon": 1.0, "delta": 0.1}}
        return Guarantee(LISTS, ENTRY, EDGE_LDP, epsilon, delta, silos=silos)

    (worst,) = worst_guarantees([run(lists(9.0, 0.2, 9.0)), run(lists(5.0, 0.7, 4.0))])
    assert (worst["epsilon"], worst["delta"], worst["void"]) == (5.0, 0.7, True)
    assert worst["silos"]["north"] == {"epsilon": 4.0, "delta": 0.7} and worst["silos"]["south"]["epsilon"] == 1.0


@pytest.mark.usefixtures("no_report")
def test_a_run_with_seeds_tells_the_worst_of_them(tmp_path: Any) -> None:
    small = ("--data", "blocks", "--silos", 3, "--set", "data.nodes=120", "--set", "data.degree=4", "--epochs", 2)
    noisy = ("--set", "protect=gaussian", "--set", "protect.clip=1", "--set", "protect.sigma=2")
    sampled = ("--set", "train.batch=8", "--set", "train.fanout=[3,3]")
    succeed("run", *small, *noisy, *sampled, "--method", "sync-sgd+fwd-le", "--seeds", 3, "--out", tmp_path / "run")
    each = [metrics(tmp_path / "run" / f"seed-{seed}")["privacy"] for seed in range(3)]
    told = metrics(tmp_path / "run")["privacy"]
    assert [one["epsilon"] for one in told] == [
        max((run[place]["epsilon"] for run in each), key=float) for place in range(len(told))
    ]
    assert len({run[1]["epsilon"] for run in each}) > 1
    _bytes_are_means(tmp_path / "run", 3)


def _bytes_are_means(run: Path, seeds: int) -> None:
    """Check that bytes of a run are means over its seeds, as those in ``link`` are."""
    told, each = metrics(run), [metrics(run / f"seed-{seed}") for seed in range(seeds)]
    assert len({one["bytes"]["total"] for one in each}) > 1
    for table in ("bytes", "bytes_by_model"):
        assert told[table] == {key: round(fmean(one[table][key] for one in each)) for key in each[0][table]}
    of_link = sum(part["bytes"] for part in told["link"]["parts"].values())
    assert told["bytes"]["total"] == pytest.approx(of_link, abs=1)
    for how, way in told["scored"].items():
        assert way["bytes"] == round(fmean(one["scored"][how]["bytes"] for one in each))
