"""Budgets over all runs of a party: counted as the accountants count, booked before anything leaves."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.policy.chain_file import ChainFile, read_chain
from isthmus.policy.rules import Budget
from isthmus.policy.spending import SpentTotals, most
from isthmus.protect.events import GaussianNoise, LaplaceNoise
from tests.helpers.command import SMALL, isthmus, refuse, succeed
from tests.helpers.killing import at, killed

pytestmark = pytest.mark.usefixtures("no_report")
NOISE = GaussianNoise(1.0, 2.0, "row", 1e-4, 50)
KINDS = ("", "_adjoints", "_parameters", "_gradients")
NOISY = [word for key in KINDS for word in ("--set", f"protect.clip{key}=1", "--set", f"protect.sigma{key}=2")]
CE = ("--method", "ce-fedgnn", "--set", "protect.clip=1", "--set", "protect.sigma=2")


def budgets(path: Path, *units: str, epsilon: float = 1e6, delta: float = 1e-4, more: str = "") -> Path:
    text = "".join(f"[budget.{unit}]\nepsilon = {epsilon}\ndelta = {delta}\n" for unit in units)
    path.write_text(more + text)
    return path


def releases(folder: Path, silo: int = 0) -> list[dict[str, Any]]:
    return [line for line in read_chain(folder / "accounts" / f"silo-{silo}.jsonl") if line["what"] == "release"]


def counted(folder: Path, silo: int = 0) -> int:
    return sum(line["releases"] for line in releases(folder, silo))


@given(st.integers(0, 3000))
def test_bisection_finds_the_last_number_that_fits(bound: int) -> None:
    assert most(lambda n: n <= bound) == bound


def test_room_is_the_largest_number_of_releases_that_fits() -> None:
    totals, budget = SpentTotals(), Budget("row", 20.0, 1e-5)
    totals.add("row", (NOISE, 0), 3)
    room = totals.room(budget, (NOISE, 0))
    assert room > 0
    assert totals.spent(budget, {(NOISE, 0): room}) <= 20 < totals.spent(budget, {(NOISE, 0): room + 1})
    pure = LaplaceNoise(1.0, 4.0, "silo"), 10
    assert SpentTotals().room(Budget("silo", 20.0, 1e-5), pure) >= 4  # ten numbers of epsilon 1 / 2 each
    totals.add("row", (NOISE, 0), room + 1)
    assert totals.room(budget, (NOISE, 0)) == 0


def test_units_are_not_mixed() -> None:
    totals = SpentTotals()
    totals.add("label", (NOISE, 0), 100)
    assert totals.spent(Budget("row", 1.0, 1e-5)) == 0.0 < totals.spent(Budget("label", 1.0, 1e-5))


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("ce-fedgnn", NOISY), ("sync-sgd+fwd-bwd-le", NOISY), ("swift-fedgnn", NOISY),
        ("fedgcn", [*NOISY, "--model", "gcn"]), ("fedpergnn", ["--set", "protect.bound=1", "--set", "protect.scale=2"]),
    ],
)  # fmt: skip
def test_a_run_books_what_its_report_says(method: str, options: list[str], tmp_path: Path) -> None:
    """The guarantees of a whole run, by unit and silo, are those of the last lines of the accounts."""
    policy = budgets(tmp_path / "p.toml", "node", "row")
    quiet = ("--set", "train.statistics=own")  # moments of batches get no noise
    succeed(*SMALL, "--method", method, *options, *quiet, "--policy", policy, "--out", tmp_path / "run")
    told = json.loads((tmp_path / "run" / "metrics.json").read_text())["privacy"]
    [whole] = [each for each in told if each["of"] == "everything"]
    for silo in range(3):
        last = [line for line in releases(tmp_path, silo) if line["unit"] == "node"][-1]
        reported = float(whole["silos"][f"silo-{silo}"]["epsilon"])  # of Laplace noise alone at delta = 0
        same = pytest.approx(reported, rel=1e-9)
        assert last["epsilon"] == same if whole["delta"] else last["epsilon"] < reported
        assert (
            sum(line["releases"] for line in releases(tmp_path, silo) if line["unit"] == "node")
            == whole["silos"][f"silo-{silo}"]["releases"]
        )
        for each in told:
            if each["unit"] == "row" and each["notion"].startswith("DP"):
                rows = [
                    line for line in releases(tmp_path, silo) if line["unit"] == "row" and line["kind"] == each["of"]
                ]
                assert sum(line["releases"] for line in rows) == each["silos"][f"silo-{silo}"]["releases"]


def test_labels_are_counted_by_bounded_steps(tmp_path: Path) -> None:
    steps = ("--set", "protect=dp-sgd", "--set", "protect.seed_clip=1", "--set", "protect.seed_sigma=4")
    policy = budgets(tmp_path / "p.toml", "label")
    succeed(*SMALL, "--method", "fedavg", *steps, "--policy", policy, "--out", tmp_path / "run")
    told = json.loads((tmp_path / "run" / "metrics.json").read_text())["privacy"]
    [label] = [each for each in told if each["unit"] == "label" and each["notion"] == "DP, any two values"]
    assert releases(tmp_path)[-1]["epsilon"] == pytest.approx(label["silos"]["silo-0"]["epsilon"], rel=1e-9)
    assert counted(tmp_path) == label["silos"]["silo-0"]["times"] == 4
    refuse(
        *SMALL,
        "--method",
        "fedavg",
        "--policy",
        policy,
        "--out",
        tmp_path / "bare",
        says=["protect=dp-sgd", "[budget.label] epsilon"],
    )


def test_edges_are_counted_by_draws(tmp_path: Path) -> None:
    words = ("draws=refill", "batch=32", "fanout=1", "floor=8", "epochs=1")
    drawn = [
        *(each for word in words for each in ("--set", f"train.{word}")),
        "--set",
        "data.degree=16",
        "--set",
        "data.nodes=192",
    ]
    policy = budgets(tmp_path / "p.toml", "edge", delta=0.999999999)
    small = [word for word in SMALL if word not in ("--epochs", 4)]
    succeed(*small, "--method", "fedavg", "--model", "sage", *drawn, "--policy", policy, "--out", tmp_path / "run")
    told = json.loads((tmp_path / "run" / "metrics.json").read_text())["privacy"]
    [lists] = [each for each in told if each["unit"] == "list entry"]
    last, mine = releases(tmp_path)[-1], lists["silos"]["silo-0"]
    assert 0 < last["pair"][0] <= mine["epsilon"] and 0 < last["pair"][1] <= mine["delta"]
    refuse(
        *SMALL,
        "--method",
        "fedavg",
        "--policy",
        policy,
        "--out",
        tmp_path / "bare",
        says=["read as a whole", "[budget.edge] epsilon"],
    )


def test_node_data_without_noise_is_refused_under_a_budget(tmp_path: Path) -> None:
    for unit, kind in (("row", "embeddings"), ("node", "adjoints"), ("silo", "adjoints")):
        policy = budgets(tmp_path / "p.toml", unit)
        told = (f"data of one {unit} would leave without noise", f"[budget.{unit}] epsilon", kind)
        refuse(*SMALL, "--method", "sync-sgd+fwd-bwd-le", "--policy", policy, "--out", tmp_path / "run", says=told)
    assert not (tmp_path / "accounts").exists()  # foreseen, before the first message


def test_a_budget_is_over_all_runs_and_is_asked_before_a_release(tmp_path: Path) -> None:
    policy, run = tmp_path / "p.toml", (*SMALL, *CE, "--policy", tmp_path / "p.toml")
    budgets(policy, "row")
    succeed(*run, "--out", tmp_path / "first")
    once = counted(tmp_path)
    epsilon = SpentTotals.of([{**releases(tmp_path)[0], "releases": 2 * once - 1}]).spent(Budget("row", 1.0, 1e-4))
    budgets(policy, "row", epsilon=epsilon)
    outcome = isthmus(*run, "--seed", 1, "--out", tmp_path / "second")
    told = outcome.err
    assert outcome.code == 2 and "refuses embeddings" in told and "[budget.row] epsilon" in told
    assert (
        f"1 more releases of one row after {2 * once - 1} would make epsilon" in told and "there is room for 0" in told
    )
    assert counted(tmp_path) == 2 * once - 1
    assert len({line["run"] for line in releases(tmp_path)}) == 2


def test_bytes_of_one_run_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text("bytes = 4_000")
    run = (*SMALL, "--method", "fedavg", "--policy", tmp_path / "p.toml")
    outcome = isthmus(*run, "--out", tmp_path / "run")
    assert outcome.code == 2 and "this run would send" in outcome.err and "of 4,000 (bytes)." in outcome.err
    (tmp_path / "p.toml").write_text("bytes = 200_000")
    succeed(*run, "--out", tmp_path / "again")  # a run of its own


def lines_by_run(folder: Path) -> set[str]:
    return {line["run"] for line in read_chain(folder / "accounts" / "silo-0.jsonl")}


@pytest.mark.parametrize("after", [False, True])
def test_a_killed_run_whose_noise_follows_from_its_seed_books_each_release_once(after: bool, tmp_path: Path) -> None:
    """Killed before a line was written, or between booking and sending: resumed, it sends the same numbers again."""
    run = (*SMALL, *CE, "--policy", budgets(tmp_path / "p.toml", "row"))
    (tmp_path / "whole").mkdir()
    succeed(*run, "--out", tmp_path / "whole" / "run")
    killed(at(ChainFile, "append", 15, after=after), *run, "--out", tmp_path / "run")
    booked = counted(tmp_path)
    succeed(*run, "--out", tmp_path / "run", "--resume")
    assert 0 < booked < counted(tmp_path) == counted(tmp_path / "whole")
    assert len(lines_by_run(tmp_path)) == 1


def test_a_killed_run_with_secrets_of_its_own_books_what_it_sends_again(tmp_path: Path) -> None:
    """Fresh noise on the same rows is another release; what was booked before the kill stands."""
    run = (*SMALL, *CE, "--set", "protect.secrets=random", "--policy", budgets(tmp_path / "p.toml", "row"))
    (tmp_path / "whole").mkdir()
    succeed(*run, "--out", tmp_path / "whole" / "run")
    killed(at(ChainFile, "append", 21, after=True), *run, "--out", tmp_path / "run")
    booked = counted(tmp_path)
    succeed(*run, "--out", tmp_path / "run", "--resume")
    whole, again = counted(tmp_path / "whole"), counted(tmp_path)
    assert whole < again < booked + whole  # released twice is counted twice, what the checkpoint has is not
    assert len(lines_by_run(tmp_path)) == 1
