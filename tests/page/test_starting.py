"""Runs that are started from the page: the form and its errors, the estimate, starting, stopping, resuming."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra isthmus[page] is not installed")

from starlette.testclient import TestClient

from isthmus.core.errors import IsthmusError
from isthmus.page import starting
from isthmus.page.shelf import Shelf
from isthmus.page.starting import AT_ONCE, Starter, StartForm
from tests.helpers.pages import reader, scored_run, send, words

# Stands for isthmus: it writes down what it was asked for, and runs until it is asked to end.
STAND_IN = """
import json, pathlib, signal, sys, time
words = sys.argv[1:]
if words[0] == "plan":
    if "--method=bad" in words:
        sys.exit("isthmus: Unknown method 'bad'.")
    print(json.dumps({"bytes": {"total": 1500, "ids": 1500}, "link": {"seconds": 2.0, "mbps": 100.0, "round_trips": 7},
        "steps": 3, "rounds": 1, "validations": 2, "trial_steps": 2, "extrapolated": ["ids"], "epsilon": None,
        "notes": [], "seeds": int(next((w[8:] for w in words if w.startswith("--seeds=")), 1))}))
    sys.exit()
if "--method=refused" in words:
    sys.exit("isthmus: Refused <b>by</b> a rule.")
out = pathlib.Path(next(word[6:] for word in words if word.startswith("--out=")))
out.mkdir(exist_ok=True)
(out / "config.toml").write_text("method = 'fedavg'")
(out / "asked.json").write_text(json.dumps(words))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
(out / "ready").touch()
time.sleep(60)
"""


@pytest.fixture
def starter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Starter]:
    (tmp_path / "isthmus.py").write_text(STAND_IN)
    (tmp_path / "runs").mkdir()
    monkeypatch.setattr(starting, "COMMAND", (sys.executable, str(tmp_path / "isthmus.py")))
    begun = Starter(Shelf(tmp_path / "runs"))
    yield begun
    for each in begun.started.values():
        each.process.kill()
        each.process.wait()


@pytest.fixture
def client(starter: Starter, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    monkeypatch.setattr("tests.helpers.pages.Starter", lambda shelf: starter)
    return reader(starter.shelf.root, starts=True)


def ready(path: Path) -> None:
    until = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_form_stands_for_options_and_nothing_in_it_becomes_another() -> None:
    form = StartForm.of({"data": "--overwrite", "method": "local", "silos": "3", "sets": "a.b=1\n\n c=--out=/x "})
    assert form.words() == ["--data=--overwrite", "--method=local", "--silos=3", "--set=a.b=1", "--set=c=--out=/x"]


WRONG = [
    ({"silos": "many"}, "silos", "This is 'many'"), ({"epochs": "0"}, "epochs", "from 1 on"),
    ({"seeds": "0"}, "seeds", "from 1 on"), ({"hosts": "two"}, "hosts", "from 1 on"),
    ({"silos": "3", "hosts": "5"}, "hosts", "give at most 4"),
    ({"split": "lovain"}, "split", "Did you mean"), ({"split": "label"}, "split", "'label:ALPHA'"),
    ({"seed": "-1"}, "seed", "from 0 on"), ({"seed": "²"}, "seed", "whole number"),
    ({"data": ""}, "data", "Choose one"), ({"sets": "train.lr"}, "sets", "no key with a value"),
    ({"sets": "system.log=/etc/x"}, "sets", "leave out system.log"),
    ({"sets": "system.track=tensorboard:/tmp/x"}, "sets", "and system.track"),
    ({"sets": "system={log='x'}"}, "sets", "leave out"), ({"sets": "a=1\n" * 41}, "sets", "at most 40"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "field", "says"), WRONG)
def test_errors_stand_at_their_fields(changes: dict[str, str], field: str, says: str, client: TestClient) -> None:
    sent = {"data": "blocks", "method": "fedavg", **changes}
    assert says in StartForm.of(sent).problems()[field]
    if field in ("silos", "hosts", "seeds"):  # three fields in a row: the sentence below them names its own
        assert f">{field.capitalize()}: " in send(client, "/start", **sent).text
    answer = send(client, "/start", **sent)
    assert answer.status_code == 422 and f'aria-describedby="why-{field}"' in answer.text
    assert not (answer.text.count('role="alert"') != 1)
    assert not StartForm.of({"data": "blocks", "method": "fedavg"}).problems()


@pytest.mark.parametrize("name", ["../out", "/tmp/x", "a/../b", ".hidden", "a b", "x\n", "-o", "a" * 200])
def test_a_run_is_started_in_the_folder_alone(name: str, client: TestClient, starter: Starter) -> None:
    answer = send(client, "/start", data="blocks", method="fedavg", name=name)
    assert answer.status_code == 422 or (name == "x\n" and answer.status_code == 303)
    assert set(starter.started) <= {"x"}


def test_a_run_is_started_watched_stopped_and_resumed(client: TestClient, starter: Starter) -> None:
    root = starter.shelf.root
    answer = send(client, "/start", data="blocks", method="fedavg", name="mine", sets="train.lr=0.1")
    assert answer.status_code == 303 and answer.headers["location"] == "/begun?folder=mine"
    ready(root / "mine" / "ready")
    assert "--set=train.lr=0.1" in (root / "mine" / "asked.json").read_text()
    assert client.get("/begun?folder=mine").headers["location"] == "/run?folder=mine"
    assert 'id="stop"' in client.get("/run?folder=mine").text
    assert "is there already" in send(client, "/start", data="blocks", method="fedavg", name="mine").text
    assert send(client, "/stop", folder="mine").status_code == 303
    assert starter.started["mine"].process.wait(10) == 2 and 'id="stop"' not in client.get("/run?folder=mine").text
    assert "no checkpoint" in send(client, "/resume", folder="mine").text
    assert 'id="resume"' not in client.get("/run?folder=mine").text
    (root / "mine" / "checkpoint" / "epoch-000001").mkdir(parents=True)
    assert 'id="resume"' in client.get("/run?folder=mine").text
    (root / "mine" / "ready").unlink()
    assert send(client, "/resume", folder="mine").status_code == 303
    ready(root / "mine" / "ready")
    assert (root / "mine" / "asked.json").read_text() == f'["run", "--resume", "--out={root / "mine"}"]'


def test_only_what_this_page_has_started_is_stopped(client: TestClient, starter: Starter) -> None:
    scored_run(starter.shelf.root / "other")
    answer = send(client, "/stop", folder="other")
    assert answer.status_code == 409 and "has not started that run" in answer.text


def test_a_run_that_is_refused_says_why(client: TestClient, starter: Starter) -> None:
    send(client, "/start", data="blocks", method="refused", name="none")
    starter.started["none"].process.wait(30)
    assert "Refused <b>by</b> a rule." in starter.started["none"].said
    assert "Refused &lt;b&gt;by&lt;/b&gt; a rule." in client.get("/begun?folder=none").text
    assert client.get("/begun?folder=nobody").status_code == 404


def test_an_estimate_is_what_the_plan_tells(client: TestClient) -> None:
    part = send(client, "/plan", data="blocks", method="fedavg", part="1").text
    assert "<html" not in part and "~1.5 kB" in part and "2.0 s" in part and "ids of nodes" in part
    whole = send(client, "/plan", data="blocks", method="fedavg", silos="7").text  # without a script
    assert "~1.5 kB" in whole and 'name="silos" inputmode="numeric" value="7"' in whole
    assert "Unknown method &#39;bad&#39;." in send(client, "/plan", data="blocks", method="bad", part="1").text
    said = words(send(client, "/plan", data="blocks", method="fedavg", silos="x", seeds="0", part="1").text)
    assert "Mend first: Silos: This is" in said and "Seeds: This is" in said
    assert "Mend the fields" in words(send(client, "/plan", data="blocks", method="fedavg", silos="x").text)


def test_seeds_and_hosts_and_the_split_reach_the_plan_and_the_run(client: TestClient, starter: Starter) -> None:
    asked = {"data": "blocks", "method": "fedavg", "seeds": "3", "hosts": "2", "split": "label:0.5"}
    words_of_it = ["--hosts=2", "--seeds=3", "--split=label:0.5"]
    estimate = words(send(client, "/plan", **asked, part="1").text)
    assert "4.5 kB would cross, in 3 seeds" in estimate and "In each seed" in estimate and "~1.5 kB" in estimate
    assert "6.0 s" in estimate and "21 round trips" in estimate and "2 hosts send the same" in estimate
    send(client, "/start", **asked, name="mine")
    ready(starter.shelf.root / "mine" / "ready")
    assert set(words_of_it) <= set(json.loads((starter.shelf.root / "mine" / "asked.json").read_text()))


def test_a_run_with_several_seeds_is_resumed_with_as_many(client: TestClient, starter: Starter) -> None:
    mine = starter.shelf.root / "mine"
    send(client, "/start", data="blocks", method="fedavg", name="mine", seeds="3")
    ready(mine / "ready")
    send(client, "/stop", folder="mine")
    starter.started["mine"].process.wait(10)
    (mine / "seed-0" / "checkpoint" / "epoch-000001").mkdir(parents=True)
    (mine / "ready").unlink()
    assert send(client, "/resume", folder="mine").status_code == 303
    ready(mine / "ready")
    assert json.loads((mine / "asked.json").read_text()) == ["run", "--resume", f"--out={mine}", "--seeds=3"]
    other = scored_run(starter.shelf.root / "other")
    (other / "seed-0" / "checkpoint" / "epoch-000001").mkdir(parents=True)
    assert "does not say how many" in send(client, "/resume", folder="other").text


def test_a_free_name_is_made_and_only_so_many_go_on(starter: Starter) -> None:
    form = StartForm.of({"data": "/data/my cora.csv", "method": "fedavg"})
    names = []
    for _ in range(AT_ONCE):
        names.append(starter.start(form))
        ready(starter.shelf.root / names[-1] / "ready")
    assert names == ["my-cora.csv-fedavg", *(f"my-cora.csv-fedavg-{n}" for n in (2, 3, 4))]
    with pytest.raises(IsthmusError, match="4 runs of this page go on"):
        starter.start(form)
