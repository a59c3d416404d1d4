"""A list of silos names folders beside it, and nothing else that could be read."""

from pathlib import Path

import pytest
import tomli_w

from isthmus.core.errors import IsthmusError
from isthmus.data.members import member_names
from isthmus.data.parts import read_part
from tests.helpers.command import isthmus

NODES, EDGES = "id,label,age\na1,0,1\na2,1,2\n", "source,target\na1,a2\n"


def part(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "silo.toml").write_text("")
    (folder / "nodes.csv").write_text(NODES)
    (folder / "edges.csv").write_text(EDGES)


def listing(root: Path, *names: str) -> None:
    root.mkdir(exist_ok=True)
    (root / "federation.toml").write_text(tomli_w.dumps({"silos": list(names)}))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("../away", "'../away', which is no name of a folder"),
        ("/etc", "'/etc', which is no name"),
        ("..", "'..', which is no name"),
        (".", "'.', which is no name"),
        ("", "'', which is no name"),
        ("a/b", "'a/b', which is no name"),
        (" a", "' a', which is no name"),
        ("a\tb", r"'a\tb', which is no name"),
        ("n" * 201, "has 201 bytes"),
        ("A", "'a' and 'A' differ in case or accents alone"),
    ],
)
@pytest.mark.parametrize("command", ["check", "run"])
def test_names_that_lead_elsewhere_are_refused(name: str, says: str, command: str, tmp_path: Path) -> None:
    part(tmp_path / "away")
    part(tmp_path / "parts" / "a")
    listing(tmp_path / "parts", "a", name)
    with pytest.raises(IsthmusError) as caught:
        member_names(tmp_path / "parts")
    assert "federation.toml: " in str(caught.value) and says in str(caught.value)
    given = ["--data", tmp_path / "parts"] if command == "run" else [tmp_path / "parts", "--json"]
    outcome = isthmus(command, *given)
    assert outcome.code and "federation.toml" in outcome.out + outcome.err


@pytest.mark.parametrize("names", [["a", "b"], []])
def test_links_that_lead_out_of_the_folder_are_refused(names: list[str], tmp_path: Path) -> None:
    part(tmp_path / "away")
    part(tmp_path / "parts" / "a")
    (tmp_path / "parts" / "b").symlink_to(tmp_path / "away")
    if names:
        listing(tmp_path / "parts", *names)
    with pytest.raises(IsthmusError, match="parts/b leads out of .*parts, to .*away; .*put the files there"):
        member_names(tmp_path / "parts")


@pytest.mark.parametrize("file", ["nodes.csv", "silo.toml"])
def test_files_that_lie_elsewhere_are_refused(file: str, tmp_path: Path) -> None:
    part(tmp_path / "away")
    part(tmp_path / "parts" / "a")
    (tmp_path / "parts" / "a" / file).unlink()
    (tmp_path / "parts" / "a" / file).symlink_to(tmp_path / "away" / file)
    with pytest.raises(IsthmusError, match=f"parts/a/{file} leads out of"):
        read_part(tmp_path / "parts", ["a"], 0)


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "a")
    listing(tmp_path, "a")
    with pytest.raises(IsthmusError, match="leads out of .*, to itself"):
        member_names(tmp_path)


@pytest.mark.parametrize("name", ["con", ".hidden", "Zürich 8001", "🏦", "n" * 200, "-x", "a:b"])
def test_odd_names_of_folders_are_names(name: str, tmp_path: Path) -> None:
    part(tmp_path / "parts" / name)
    listing(tmp_path / "parts", name)
    assert member_names(tmp_path / "parts") == [name]


def test_a_folder_of_parts_may_itself_be_a_link(tmp_path: Path) -> None:
    part(tmp_path / "parts" / "a")
    (tmp_path / "shortcut").symlink_to(tmp_path / "parts")
    assert member_names(tmp_path / "shortcut") == ["a"]
    assert read_part(tmp_path / "shortcut", ["a"], 0).n == 2
