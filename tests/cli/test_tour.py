"""The ten-minute tour prints what it shows, and the notebook runs."""

import json
import re
import sys
from pathlib import Path

import pytest

from isthmus.cli.shared import console
from tests.helpers.command import succeed

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import make_tour  # noqa: E402

TIMES = re.compile(r"[\d.]+ (?:ms|s|min|h \d+ min)\b")  # of this machine
BORDERS = re.compile(r"[\u2500-\u257f]+")  # as wide as the times within them


@pytest.mark.usefixtures("no_report")
def test_the_tour_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else, where a change was meant: python docs/make_tour.py."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console, "_width", make_tour.WIDTH)
    monkeypatch.setattr("isthmus.report.report.write_report", lambda folder, alone, link: folder.path / "report.html")
    page = make_tour.PAGE.read_text()
    for name, text in make_tour.files(page).items():
        Path(name).write_text(text)
    made = make_tour.filled(page, lambda command: succeed(*command[1:]).out)
    assert len(made.split("```text")) > 6
    assert _told(made) == _told(page)


def _told(page: str) -> list[str]:
    """The words of a page, without times and borders of tables."""
    return BORDERS.sub(" ", TIMES.sub("TIME", page)).split()


def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    cells = json.loads((ROOT / "examples" / "tour.ipynb").read_text())["cells"]
    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
            shown = "".join("".join(output.get("text", "")) for output in cell["outputs"])
            assert capsys.readouterr().out.split() == shown.split()
