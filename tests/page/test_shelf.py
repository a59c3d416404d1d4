"""Which runs a folder holds for the page, and that nothing outside it is read."""

import os
from pathlib import Path

import pytest

from isthmus.core.errors import IsthmusError
from isthmus.page.shelf import Shelf, bounded


def run_at(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "config.toml").write_text("method = 'fedavg'\n")
    return path


def test_runs_are_found_below_but_not_within_each_other(tmp_path: Path) -> None:
    run_at(tmp_path / "b" / "inner")
    run_at(tmp_path / "a")
    run_at(tmp_path / "a" / "seed-0")
    run_at(tmp_path / ".hidden")
    (tmp_path / "empty").mkdir()
    shelf = Shelf(tmp_path)
    assert shelf.find().names == ["a", "b/inner"] and shelf.find().notes == []
    assert shelf.open("b/inner") == tmp_path / "b" / "inner"
    assert Shelf(tmp_path / "a").find().names == ["."] and Shelf(tmp_path / "a").open(".") == tmp_path / "a"


def test_a_run_that_is_only_begun_is_found(tmp_path: Path) -> None:
    for folder, sign in {"a": ".lock", "b": "metrics.jsonl", "c": "status-host-3.json", "d": "notes.txt"}.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / sign).touch()
    assert Shelf(tmp_path).find().names == ["a", "b", "c"]


@pytest.mark.parametrize(
    "name",
    ["..", "../other", "run/../../other", "/etc", "run/", "", "./run", "run\0", ".hidden", "a" * 5000, "nothing"],
)
def test_a_name_cannot_lead_outside(name: str, tmp_path: Path) -> None:
    run_at(tmp_path / "other")
    run_at(tmp_path / "shown" / "run")
    run_at(tmp_path / "shown" / ".hidden")
    with pytest.raises(IsthmusError, match="no run of that name"):
        Shelf(tmp_path / "shown").open(name)


def test_links_are_not_followed_and_counted(tmp_path: Path) -> None:
    outside = run_at(tmp_path / "outside")
    run_at(tmp_path / "shown" / "run")
    (tmp_path / "shown" / "away").symlink_to(outside)
    shelf = Shelf(tmp_path / "shown")
    assert shelf.find().names == ["run"] and "Not followed: 1 link to folders" in shelf.find().notes[0]
    with pytest.raises(IsthmusError, match="over a link"):
        shelf.open("away")


@pytest.mark.parametrize("name", ["metrics.json", "checkpoint/epoch-000001/host-0.json", "seed-0/ledger.parquet"])
def test_a_file_that_is_a_link_out_of_the_folder_is_not_read(name: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("{}")
    run = run_at(tmp_path / "shown" / "run")
    (run / name).parent.mkdir(parents=True, exist_ok=True)
    (run / name).symlink_to(tmp_path / "secret")
    with pytest.raises(IsthmusError, match="leads out of the folder"):
        Shelf(tmp_path / "shown").open("run")
    (run / name).unlink()
    (run / name).symlink_to(run / "config.toml")
    assert Shelf(tmp_path / "shown").open("run") == run


def test_names_that_are_no_text_are_counted(tmp_path: Path) -> None:
    os.mkdir(os.fsencode(tmp_path) + b"/\xff")
    assert "Names that are no text: 1 folder" in Shelf(tmp_path).find().notes[0]


def test_a_shelf_needs_a_folder_and_files_have_bounds(tmp_path: Path) -> None:
    with pytest.raises(IsthmusError, match="is no folder; give one that holds runs"):
        Shelf(tmp_path / "nothing")
    (tmp_path / "large").write_bytes(b"12345")
    assert bounded(tmp_path / "large", 5) == tmp_path / "large"
    with pytest.raises(IsthmusError, match="'large' has 0 MB, more than"):
        bounded(tmp_path / "large", 4)
