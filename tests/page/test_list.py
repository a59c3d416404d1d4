"""The list of runs: what it shows, finds and pages, and runs that are damaged, being written, or named to do harm."""

import fcntl
import json
import re
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra isthmus[page] is not installed")

from isthmus.page.shelf import Shelf
from isthmus.page.shown_runs import ShownRuns
from tests.helpers.pages import begun, reader, scored_run, words
from tests.helpers.reports import THREE

BAD = "<script>alert('x')</script>"


def rows(root: Path, **query: str) -> dict[str, list[str]]:
    """The rows of the list by name."""
    found = re.findall(r'<tr data-name="([^"]*)">(.*?)</tr>', reader(root).get("/", params=query).text, re.DOTALL)
    return {name: [words(cell) for cell in re.findall(r"<td.*?</td>", row, re.DOTALL)] for name, row in found}


def test_the_list_tells_how_runs_stand(tmp_path: Path) -> None:
    scored_run(tmp_path / "done")
    begun(tmp_path / "deep" / "going")
    begun(tmp_path / "lost", updated="2020-01-01T00:00:00+00:00")
    begun(tmp_path / "asked", state="failed", why="Terminated")
    found = rows(tmp_path)
    assert list(found)[0] == "deep/going"  # those that go on come first
    assert found["deep/going"][2:5] == ["running", "fedavg", "blocks, 3 silos"] and "4 of 9" in found["deep/going"][5]
    assert found["done"][2:9] == ["finished", "fedavg", "blocks, 3 silos", "3", "78.1 %", "12.3 kB", "∞"]
    assert found["lost"][2] == "cut off" and found["asked"][2] == "stopped"


def test_runs_are_found_by_words_and_state(tmp_path: Path) -> None:
    for name, method in (("a", "fedavg"), ("b", "local"), ("c/a", "local")):
        scored_run(tmp_path / name, method=method)
    begun(tmp_path / "d")
    assert set(rows(tmp_path, q="local")) == {"b", "c/a"} and set(rows(tmp_path, q="C/ LOCAL")) == {"c/a"}
    assert set(rows(tmp_path, state="running")) == {"d"} and set(rows(tmp_path, q="nothing")) == set()
    assert "None of the 4 runs" in reader(tmp_path).get("/", params={"q": "nothing"}).text


def test_every_run_is_on_one_page_of_the_list(tmp_path: Path) -> None:
    for number in range(104):
        begun(tmp_path / f"run-{number:03d}")
    each = [set(rows(tmp_path, page=str(page))) for page in (1, 2, 3)]
    assert [len(names) for names in each] == [50, 50, 4] and len(set.union(*each)) == 104
    assert set(rows(tmp_path, page="99")) == each[2] and set(rows(tmp_path, page="-1")) == each[0]


DAMAGES: dict[str, tuple[str, bytes]] = {
    "config cut": ("config.toml", b'method = "fed'),
    "config no text": ("config.toml", b"\xff\xfe\x00"),
    "metrics cut": ("metrics.json", b'{"method": "fed'),
    "metrics a list": ("metrics.json", b"[1, 2]"),
    "metrics empty": ("metrics.json", b""),
    "metrics of other shapes": ("metrics.json", b'{"test": [1], "bytes": 7, "epochs": "x", "scored": 3}'),
    "status cut": ("status-host-0.json", b'{"host"'),
    "status of other shapes": ("status-host-0.json", b'{"epoch": "many"}'),
    "history of noise": ("metrics.jsonl", bytes(range(256)) * 20),
    "ledger of noise": ("ledger.parquet", bytes(range(256)) * 20),
    "ledger empty": ("ledger.parquet", b""),
}
PAGES = ("/", "/run?folder=run", "/ledger?folder=run", "/disclosure?folder=run", "/compare?run=run&run=other",
         "/apart?run=run", "/run?folder=run&part=1", "/ledger?folder=run&kind=schema&from=x")  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_folder_is_shown_as_such_and_hides_no_other(damage: tuple[str, bytes], tmp_path: Path) -> None:
    scored_run(tmp_path / "run")
    scored_run(tmp_path / "other")
    (tmp_path / "run" / damage[0]).write_bytes(damage[1])
    client = reader(tmp_path)
    for path in PAGES:
        answer = client.get(path)
        assert answer.status_code == 200, (path, answer.text)
    said = words(client.get("/run?folder=run").text) + words(client.get("/disclosure?folder=run").text)
    assert "amaged" in said or "cannot be read" in said
    assert rows(tmp_path)["other"][2] == "finished"


def test_folders_without_what_a_run_needs_are_shown(tmp_path: Path) -> None:
    for name in ("config.toml", "metrics.json", "ledger.parquet", "metrics.jsonl"):
        run = scored_run(tmp_path / name.replace(".", "-"))
        (run / name).unlink()
    client = reader(tmp_path)
    for name in ("config-toml", "metrics-json", "ledger-parquet", "metrics-jsonl"):
        for path in ("/run", "/ledger", "/disclosure"):
            assert client.get(path, params={"folder": name}).status_code == 200
    assert "There is no config.toml" in client.get("/").text


def test_a_folder_that_is_just_made_is_starting(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with open(tmp_path / "run" / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert rows(tmp_path)["run"][2] == "starting"
        assert reader(tmp_path).get("/run?folder=run").status_code == 200


def test_names_and_words_of_files_are_never_markup(tmp_path: Path) -> None:
    bad = BAD.replace("/", "\u2215")  # a folder's name has no slash
    silos = {f"{BAD}{i}": 0.5 for i in range(3)}
    lines = [(e, e, "step", f"{BAD}0", f"{BAD}1", "embeddings", BAD, BAD, 1, 1, 10) for e in (1, 2)]
    run = scored_run(tmp_path / bad, silos, method=BAD, data=BAD, notes=[BAD], lines=lines, metric="accuracy")
    scored_run(tmp_path / f"{bad}2", silos, method=BAD, data=BAD, notes=[BAD], lines=lines)
    (run / "config.toml").write_text((run / "config.toml").read_text() + f"# {BAD}\n")
    begun(tmp_path / f"{bad}3", party=BAD, why=BAD, state="failed", waiting_for=[BAD])
    (tmp_path / f"{bad}4").mkdir()
    (tmp_path / f"{bad}4" / "config.toml").write_text(f"{BAD}")
    client, seen = reader(tmp_path, starts=True), ""
    for name in (bad, f"{bad}3", f"{bad}4"):
        for path in ("/run", "/ledger", "/disclosure"):
            answer = client.get(path, params={"folder": name, "kind": BAD, "from": BAD})
            assert answer.status_code == 200
            seen += answer.text
    seen += client.get("/", params={"q": BAD, "state": BAD}).text + client.get("/").text
    seen += client.get("/compare", params={"run": [bad, f"{bad}2"]}).text + client.get(f"/{BAD}").text
    assert seen.count("&lt;script&gt;alert") > 50
    assert not [part for part in seen.split("<script")[1:] if not part.startswith(' src="/static/page.js" defer')]


def test_half_of_a_pair_of_letters_is_shown_as_a_mark(tmp_path: Path) -> None:
    run = scored_run(tmp_path / "run")
    text = (run / "metrics.json").read_text().replace('"fedavg"', '"fed\\ud800avg"')
    (run / "metrics.json").write_text(text)
    assert "fed?avg" in reader(tmp_path).get("/").text


def test_a_run_is_read_again_only_when_its_files_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        scored_run(tmp_path / name)
    runs = ShownRuns(Shelf(tmp_path))
    first, _ = runs.all()
    read: list[str] = []
    monkeypatch.setattr("isthmus.page.shown_runs.read_run", lambda shelf, path, name: read.append(name) or first[0])
    runs.all()
    assert read == []
    (tmp_path / "b" / "metrics.json").write_text(json.dumps({"method": "other", "test": dict(THREE)}))
    runs.all()
    assert read == ["b"]
