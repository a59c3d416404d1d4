"""A seed is a seed: the runs of ``--seeds`` know nothing of each other."""

from pathlib import Path

import pytest

from isthmus.methods import catalogue
from tests.helpers.command import losses, succeed

SMALL = (
    "--data",
    "blocks",
    "--silos",
    3,
    "--set",
    "data.nodes=120",
    "--set",
    "data.degree=4",
    "--set",
    "model.hidden=8",
    "--epochs",
    4,
)
pytestmark = pytest.mark.usefixtures("no_report")


@pytest.mark.parametrize("name", catalogue.names())
def test_the_second_of_two_seeds_is_the_run_with_that_seed(name: str, tmp_path: Path) -> None:
    """Bit for bit: no average, table, interval or cache of the first seed is left for the second."""
    model = () if catalogue.get(name).model else ("--model", "gcn")
    often = {
        "ce-fedgnn": ("--set", "sync.local_steps=2"),
        "fedgnn-st": ("--set", "sync.local_steps=2"),
        "fedgnn-pns": ("--set", "schedule.period=2"),
        "llcg": ("--set", "sync.local_steps=2"),
        "llcg-every-step": ("--set", "sync.every=2"),
        "swift-fedgnn": ("--set", "schedule.every=2"),
    }.get(name, ())
    before = catalogue.get(name).phases[:-1]
    short = [word for phase in before for word in ("--set", f"phase.{phase.name}.epochs=2")]
    command = ("run", *SMALL, "--method", name, *model, *often, *short)
    succeed(*command, "--seeds", 2, "--out", tmp_path / "both")
    succeed(*command, "--seed", 1, "--out", tmp_path / "one")
    assert losses(tmp_path / "both" / "seed-1") == losses(tmp_path / "one")
    assert losses(tmp_path / "both" / "seed-0") != losses(tmp_path / "one")
