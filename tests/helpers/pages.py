"""The local page in tests: a browser's requests without a browser, and runs of which the page tells."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from isthmus.page.actions import Choices
from isthmus.page.app import page_app
from isthmus.page.doorway import Keys
from isthmus.page.shelf import Shelf
from isthmus.page.starting import Starter
from tests.helpers.reports import THREE, Tests, make_run

PORT = 8765
BASE = f"http://127.0.0.1:{PORT}"
DIGESTS = {f"silo-{i}": {"nodes": f"{i}"} for i in range(3)}
CHOICES = Choices([{"name": "fedavg", "summary": "means"}, {"name": "local", "summary": "alone"}], [
    {"name": "blocks", "summary": "made"}])  # fmt: skip


def stranger(root: Path, starts: bool = False) -> tuple[TestClient, Keys]:
    """Somebody who has not got the cookie yet, and the keys of the page."""
    keys = Keys()
    app = page_app(root, keys, PORT, CHOICES, Starter(Shelf(root)) if starts else None)
    return TestClient(app, base_url=BASE, follow_redirects=False), keys


def reader(root: Path, starts: bool = False) -> TestClient:
    """Somebody who has opened the address with its token."""
    client, keys = stranger(root, starts)
    assert client.get("/", params={"token": keys.token}).status_code == 200
    client.headers["x-form"] = keys.form  # for `send`
    return client


def send(client: TestClient, path: str, **fields: str) -> Any:
    """Send a form as the page's own forms are sent."""
    form = {"csrf": client.headers["x-form"], **fields}
    return client.post(path, data=form, headers={"origin": BASE, "sec-fetch-site": "same-origin"})


def scored_run(path: Path, tests: Tests = THREE, sees: tuple[str, ...] = ("own",), **changes: Any) -> Path:
    """The folder of a finished run as this version writes it: with digests of its data, and what its scores saw."""
    split = {"accuracy": 0.5, "silos": {}}
    each = {"valid": split, "test": split, "best_epoch": [2], "seeds_scored": [10, 10, 10], "bytes": 100}
    scored = {saw: {"sees": saw, **each} for saw in sees}
    usual = {
        "data_digests": DIGESTS,
        "scored": scored,
        "average": "seeds",
        "bytes": {"total": 12_345},
        "epsilon": "inf",
    }
    make_run(path, tests, **{**usual, **changes})
    return path


def begun(path: Path, **told: Any) -> Path:
    """The folder of a run that goes on in no process of this machine, and told of itself just now."""
    path.mkdir(parents=True)
    (path / "config.toml").write_text('method = "fedavg"\n[data]\nname = "blocks"\nsilos = 3\n[train]\nepochs = 9\n')
    now = {"host": 0, "party": "silo-0", "state": "running", "epoch": 4, "epochs": 9, "step": 4, "loss": 0.5, "pid": 1}
    now |= {"started": "", "updated": datetime.now(UTC).isoformat(), **told}
    (path / "status-host-0.json").write_text(json.dumps(now))
    return path


def words(text: str) -> str:
    """The words of a page, without its tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text)).strip()
