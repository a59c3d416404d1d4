"""Plug-ins: installed packages by entry point, files by name; each is loaded once."""

import os
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from isthmus.core import plugins
from isthmus.core.errors import IsthmusError
from isthmus.core.plugins import VARIABLE, add_plugins, load_plugins


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """As in a process that has loaded none."""
    before = set(plugins._loaded)
    plugins._loaded.clear()
    yield
    plugins._loaded.clear()
    plugins._loaded.update(before)


@pytest.mark.parametrize("group", plugins.GROUPS)
def test_installed_packages_bring_theirs_by_entry_point(
    group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"brought_for_{group.rpartition('.')[2]}"
    (tmp_path / f"{name}.py").write_text("import os\nos.environ['BROUGHT'] = os.environ.get('BROUGHT', '') + 'x'")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("BROUGHT", "")
    point = EntryPoint("mine", name, group)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point] if group == point.group else [])
    load_plugins()
    load_plugins()
    assert os.environ["BROUGHT"] == "x"


def test_files_are_loaded_once_and_passed_on_by_their_full_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("import os\nos.environ['MINE'] = os.environ.get('MINE', '') + 'x'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINE", "")
    add_plugins(["mine.py"])
    add_plugins(["mine.py"])
    assert os.environ[VARIABLE] == str(tmp_path / "mine.py")
    load_plugins()
    load_plugins()
    assert os.environ["MINE"] == "x"


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(IsthmusError, match="no plug-in 'nowhere.py'"):
        add_plugins(["nowhere.py"])
