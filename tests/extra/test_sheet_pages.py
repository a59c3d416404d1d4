"""The disclosure sheet of three parties prints on two pages of A4, as a browser lays it out."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.command import succeed

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-pdf-header-footer",
)  # fmt: skip
pytestmark = [
    pytest.mark.extra,
    pytest.mark.usefixtures("no_report"),
    pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here to print with"),
]
RUN = ("--data", "blocks", "--silos", 3, "--set", "data.nodes=200", "--set", "data.degree=6", "--epochs", 3)


@pytest.mark.parametrize("method", ["fedavg", "ce-fedgnn", "hifgl"])
def test_three_parties_fit_on_two_pages(method: str, tmp_path: Path) -> None:
    succeed("run", *RUN, "--method", method, "--out", tmp_path / "run")
    succeed("disclose", tmp_path / "run", "--out", tmp_path / "sheet.html")
    assert BROWSER is not None
    made = tmp_path / "sheet.pdf"
    own = (f"--user-data-dir={tmp_path / 'browser'}", f"--print-to-pdf={made}", (tmp_path / "sheet.html").as_uri())
    subprocess.run([BROWSER, *QUIET, *own], check=True, capture_output=True, timeout=120)
    content = made.read_bytes()
    assert len(re.findall(rb"/Type\s*/Page\b(?!s)", content)) == 2
    assert b"/MediaBox [0 0 59" in content  # 595 points wide: A4
