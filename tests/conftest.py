import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("repeatable", derandomize=True, deadline=None)  # a commit passes always, or never
settings.register_profile("random", derandomize=False, deadline=None)  # other examples each time: make fuzz
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test loads from outside the package is not loaded again by commands of another."""
    monkeypatch.setenv("ISTHMUS_PLUGINS", "")


@pytest.fixture
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs leave no report.html: drawing it takes longer than training on a small graph."""
    monkeypatch.setattr("isthmus.commands.run.write_report", lambda folder: folder.path)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of the public data sets: ISTHMUS_DATA, or a folder beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    places = [Path(place) for place in (os.environ.get("ISTHMUS_DATA"), beside) if place]
    for place in places:
        if place.is_dir():
            return place
    pytest.skip(f"no public data: none of {', '.join(map(str, places))} exists; set ISTHMUS_DATA")
