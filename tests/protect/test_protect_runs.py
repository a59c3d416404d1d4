"""Noise in whole runs: where it comes from, what is left behind, what the report says."""

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file

from tests.helpers.command import SMALL, losses, metrics, refuse, succeed

NOISY = (*SMALL, "--method", "ce-fedgnn", "--set", "sync.local_steps=1", "--set", "protect.clip=1")
SIGMA = ("--set", "protect.sigma=0.5")
RANDOM = ("--set", "protect.secrets=random")


def run(folder: Path, *options: Any) -> dict[str, Any]:
    succeed(*NOISY, *options, "--out", folder)
    return metrics(folder)


def test_a_simulation_says_that_its_noise_follows_from_the_seed(tmp_path: Path) -> None:
    first, second = run(tmp_path / "a", *SIGMA), run(tmp_path / "b", *SIGMA)
    assert any("run's seed" in note for note in first["notes"])
    assert losses(tmp_path / "a") == losses(tmp_path / "b")
    assert first["epsilon"] == second["epsilon"] and 0 < first["epsilon"]["embeddings"] < 1e6
    assert first["epsilon"]["parameters"] == first["epsilon"]["ids"] == "inf"


def test_secrets_are_new_for_every_run_and_written_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, system = list[bytes](), os.urandom
    monkeypatch.setattr(os, "urandom", lambda size: drawn.append(system(size)) or drawn[-1])
    for name in ("a", "b"):
        assert not run(tmp_path / name, *SIGMA, *RANDOM)["notes"]
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
    assert metrics(tmp_path)["notes"] == ["Noise was asked for, but nothing that it applies to has left a silo."]


def test_a_run_that_diverged_with_noise_still_ends(tmp_path: Path) -> None:
    found = run(tmp_path, *SIGMA, "--set", "train.lr=1e30", "--set", "train.optimiser=sgd")
    assert any("no finite number" in note for note in found["notes"]) and found["epsilon"]["embeddings"] == "inf"


@pytest.mark.hosts
def test_hosts_draw_secrets_unless_told_otherwise(tmp_path: Path) -> None:
    apart = run(tmp_path / "apart", *SIGMA, "--hosts", 3)
    assert not apart["notes"]
    told = run(tmp_path / "told", *SIGMA, "--hosts", 3, "--set", "protect.secrets=seed")
    alone = run(tmp_path / "alone", *SIGMA)
    assert any("run's seed" in note for note in told["notes"])
    assert losses(tmp_path / "told") == pytest.approx(losses(tmp_path / "alone"), rel=1e-4)
    for kind, value in alone["epsilon"].items():
        assert float(told["epsilon"][kind]) == pytest.approx(float(value), rel=1e-3)
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
    assert "Protected by Gaussian noise (clip 1, sigma 0.5), which hides any one node up to epsilon." in page
    assert "Embeddings: nodes" in page and "ε, any two" in page and "part of it unprotected" in page
    run(tmp_path / "clipped")
    page = (tmp_path / "clipped" / "report.html").read_text()
    assert "Clipped at 1, no noise: epsilon is infinite." in page and "Embeddings: nodes" not in page
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
