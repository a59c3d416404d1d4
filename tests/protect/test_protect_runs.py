"""Noise in whole runs: where it comes from, what is left behind, what the report says."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file

from isthmus.protect.accounting.metric_dp import composed_epsilon
from isthmus.runs.text import epsilon_text
from tests.helpers.command import SMALL, losses, metrics, refuse, succeed

NOISY = (*SMALL, "--method", "ce-fedgnn", "--set", "sync.local_steps=1", "--set", "protect.clip=1")
SIGMA = ("--set", "protect.sigma=0.5")
RANDOM = ("--set", "protect.secrets=random")


def run(folder: Path, *options: Any) -> dict[str, Any]:
    succeed(*NOISY, *options, "--out", folder)
    return metrics(folder)


def on_noise(found: dict[str, Any]) -> list[str]:
    return [note for note in found["notes"] if "noise" in note.lower()]


def spent(found: dict[str, Any], of: str, unit: str) -> float:
    """Epsilon of any two values, of a kind and for a unit."""
    (told,) = [g for g in found["privacy"] if (g["of"], g["unit"]) == (of, unit) and g["notion"].startswith("DP")]
    return float(told["epsilon"])


def test_a_simulation_says_that_its_noise_follows_from_the_seed(tmp_path: Path) -> None:
    first, second = run(tmp_path / "a", *SIGMA), run(tmp_path / "b", *SIGMA)
    assert any("run's seed" in note for note in first["notes"])
    assert losses(tmp_path / "a") == losses(tmp_path / "b")
    assert first["privacy"] == second["privacy"] and 0 < spent(first, "embeddings", "row") < 1e6
    assert first["epsilon"] == "inf" and spent(first, "parameters", "node") == float("inf")
    assert first["privacy"][0]["bare"] == ["parameters", "gradients"] and "ids" in first["privacy"][0]["apart"]


def test_secrets_are_new_for_every_run_and_written_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, system = list[bytes](), os.urandom
    monkeypatch.setattr(os, "urandom", lambda size: drawn.append(system(size)) or drawn[-1])
    for name in ("a", "b"):
        assert not on_noise(run(tmp_path / name, *SIGMA, *RANDOM))
    assert len({secret for secret in drawn if len(secret) == 32}) >= 6
    assert losses(tmp_path / "a") != losses(tmp_path / "b")  # the same seed, other noise
    for content in (path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()):
        assert not any(secret in content or secret.hex().encode() in content for secret in drawn if len(secret) == 32)


def test_a_resumed_run_draws_other_noise_and_says_what_it_cannot_count(tmp_path: Path) -> None:
    run(tmp_path / "a", *SIGMA, *RANDOM)
    succeed("run", "--out", tmp_path / "a", "--resume", "--epochs", 6)
    assert any("resumed" in note for note in metrics(tmp_path / "a")["notes"])


def test_noise_that_reaches_nothing_is_told(tmp_path: Path) -> None:
    succeed(*SMALL, "--method", "fedavg", *SIGMA, "--out", tmp_path)
    assert on_noise(metrics(tmp_path)) == ["Noise was asked for, but nothing that it applies to has left a silo."]


@pytest.mark.parametrize(
    ("method", "chain", "idle"),
    [("fedavg", "int8", True), ("fedpergnn", "laplace", True), ("ce-fedgnn", "int8", False), ("fedpergnn", "", False)],
)
def test_a_mechanism_that_changes_nothing_is_told(method: str, chain: str, idle: bool, tmp_path: Path) -> None:
    """A format of rows where none leave; Laplace noise by its bare name, which replaces that of the method."""
    given = ("--set", f"protect={chain}") if chain else ()
    succeed(*SMALL, "--method", method, *given, "--out", tmp_path)
    assert any("changed nothing that left a silo" in note for note in metrics(tmp_path)["notes"]) == idle


def test_a_run_that_diverged_with_noise_still_ends(tmp_path: Path) -> None:
    found = run(tmp_path, *SIGMA, "--set", "train.lr=1e30", "--set", "train.optimiser=sgd")
    assert any("no finite number" in note for note in found["notes"]) and spent(found, "embeddings", "row") < 1e6


@pytest.mark.hosts
def test_hosts_draw_secrets_unless_told_otherwise(tmp_path: Path) -> None:
    apart = run(tmp_path / "apart", *SIGMA, "--hosts", 3)
    assert not on_noise(apart)
    told = run(tmp_path / "told", *SIGMA, "--hosts", 3, "--set", "protect.secrets=seed")
    alone = run(tmp_path / "alone", *SIGMA)
    assert any("run's seed" in note for note in told["notes"])
    assert losses(tmp_path / "told") == pytest.approx(losses(tmp_path / "alone"), rel=1e-4)
    worst = [[g for g in each["privacy"] if g["notion"][:2] == "DP"] for each in (alone, told)]
    for one, other in zip(*worst, strict=True):
        assert {**one, "apart": other["apart"]} == other  # beside all others, ledgers
    assert spent(told, "embeddings", "row") > 0
    assert [set(g["silos"]) for g in told["privacy"] if g["notion"][:2] != "DP"] == [{"silo-0"}]  # the server's host
    for host in (1, 2):  # distances between private rows stay at home
        (own,) = json.loads((tmp_path / "told" / f"privacy-host-{host}.json").read_text())
        assert set(own["silos"]) == {f"silo-{host}"} and own["notion"].startswith("metric DP")
    lines = [pq.read_table(path) for path in sorted((tmp_path / "told").glob("releases*.parquet"))]
    together = sorted(tuple(row.values()) for table in lines for row in table.to_pylist())
    whole = pq.read_table(tmp_path / "alone" / "releases.parquet").to_pylist()
    assert len(lines) == 3 and together == sorted(tuple(row.values()) for row in whole)


def test_released_rows_lie_in_the_order_of_the_lines(tmp_path: Path) -> None:
    run(tmp_path, *SIGMA)
    lines = pq.read_table(tmp_path / "releases.parquet").to_pylist()
    rows = load_file(tmp_path / "released.safetensors")
    for layer in (0, 1):
        listed = [line for line in lines if (line["kind"], line["layer"]) == ("embeddings", layer)]
        assert len(rows[f"embeddings/{layer}"]) == len(listed) > 0
        assert all(line["releases"] >= 4 for line in listed)  # four rounds, and what was scored


def test_the_report_says_what_noise_hides_and_what_is_still_bare(tmp_path: Path) -> None:
    run(tmp_path / "noisy", *SIGMA)
    page = (tmp_path / "noisy" / "report.html").read_text()
    assert "Protected by Gaussian noise (clip 1, sigma 0.5), which hides any one row up to epsilon." in page
    assert "Embeddings: metric privacy within ρ" in page and "ε of a node" in page and "part of it unprotected" in page
    assert "Epsilon = ∞: model weights, gradients left without noise" in page and "not covered: column names" in page
    run(tmp_path / "clipped")
    page = (tmp_path / "clipped" / "report.html").read_text()
    assert "Clipped at 1, no noise: epsilon is infinite." in page and "metric privacy" not in page
    assert "none of it protected" in page


def test_tables_of_averages_are_reported_silo_by_silo(tmp_path: Path) -> None:
    found = run(tmp_path)["silo_nodes"]
    for sizes in found.values():  # three layers of 8 numbers in float32, for owned and halo nodes
        assert sizes["table_bytes"] == 3 * 8 * 4 * (sizes["nodes"] + sizes["halo"])
    assert "Tables: memory for rows" in (tmp_path / "report.html").read_text()


def test_noise_that_cannot_be_is_refused_before_anything_runs(tmp_path: Path) -> None:
    refuse(*NOISY, "--set", "protect.sigma=-1", "--out", tmp_path / "x", says=("protect.sigma is -1", "0 or more"))
    refuse(*NOISY, "--set", "protect.clip=0", "--out", tmp_path / "x", says=("protect.clip", "positive"))
    assert not (tmp_path / "x").exists()


def test_a_run_whose_every_kind_is_protected_has_a_finite_epsilon_in_one_line(tmp_path: Path) -> None:
    """The same number on the terminal, in metrics.json, in the report and in a comparison."""
    bound = [f"protect.{key}{kind}=1" for key in ("clip", "sigma") for kind in ("", "_parameters")]
    noise = [word for option in bound for word in ("--set", option)]
    fedgcn = (*SMALL, "--method", "fedgcn", "--model", "gcn", *noise)
    said = " ".join(succeed(*fedgcn, "--out", tmp_path / "all").out.split())
    found = metrics(tmp_path / "all")
    told = found["privacy"][0]
    number = epsilon_text(found["epsilon"])
    assert 0 < found["epsilon"] == told["epsilon"] < 1e4 and (told["of"], told["unit"]) == ("everything", "node")
    assert found["epsilon"] > max(spent(found, kind, "node") for kind in ("aggregates", "parameters"))
    assert f"epsilon = {number}" in said and "not covered: schema, ids, metrics, statistics" in said
    page = (tmp_path / "all" / "report.html").read_text()
    assert f"Epsilon = {number}" in page and f"ε = {number}" in page
    succeed(*fedgcn, "--set", "protect.sigma_parameters=0", "--out", tmp_path / "some")
    succeed("compare", tmp_path / "all", tmp_path / "some", "--out", tmp_path / "both")
    rows = json.loads((tmp_path / "both" / "comparison.json").read_text())["runs"]
    assert [row["epsilon"] for row in rows] == [found["epsilon"], "inf"]


def test_the_example_of_the_page_adds_up() -> None:
    """A node in 32 sums of features, whose silo sent its weights twice."""
    page = (Path(__file__).parents[2] / "docs" / "privacy.md").read_text(encoding="utf-8")
    noise = {"sums": (0.8, 0.4, 32), "weights": (1.0, 0.5, 2)}
    each = {kind: times * (2 * clip / sigma) ** 2 / 2 for kind, (clip, sigma, times) in noise.items()}
    whole, sums, weights = (float(composed_epsilon(x, 1e-4)) for x in (sum(each.values()), *each.values()))
    assert f"\nepsilon = {epsilon_text(whole)}, which" in page and f"| **{epsilon_text(whole)}** |" in page
    assert f"| 32, {epsilon_text(sums)} | 2, {epsilon_text(weights)} |" in page
