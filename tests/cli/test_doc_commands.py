"""Every command that a page shows is tried, one way or another.

- The tour and the notebook are run from beginning to end, and their output is compared (``test_tour.py``).
- ``isthmus run`` and ``plan``: the command itself, up to the whole configuration. Wrong recipes, options and parts that
  cannot go together are refused; no data is read and nothing is trained.
- What is in ``RUN`` takes no time, and is run.
- All other commands of ``isthmus``: their arguments and options are read as the command reads them; studies exist.
- ``make``, ``pip``, ``python``: targets, extras, files and options exist. Examples are run in ``test_examples.py``, the
  three banks' page from beginning to end in ``test_three_banks.py``, the researcher's in ``test_researcher.py``.
- What leaves something out (``...``) cannot be tried; what is in ``OUTSIDE`` is not, for the reason that stands there.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main

from isthmus.cli import app, take_plugins
from isthmus.cli.listing import listed
from isthmus.core import plugins
from isthmus.methods import catalogue
from isthmus.methods.parts import PARTS
from tests.helpers.command import isthmus, succeed
from tests.helpers.doc_commands import ROOT, Shown, shown

OUTSIDE = {  # by the words that a command begins with
    "isthmus run [RECIPE]": "the synopsis: names of options, no command",
    "isthmus run --out DIR --resume": "needs a run that was begun; resumed in tests/launch/test_starting.py",
    "torchrun": "needs several machines; hosts by rank are started in tests/launch/test_hosts.py",
    "wg": "a tunnel of the machine's, not of this project",
    "ping": "through that tunnel",
    "umask": "of the shell",
    "(umask": "of the shell, and openssl",
    "git": "of the repository, by hand",
}
LEFT_OUT = ("...", "…")
RUN = ("methods", "methods --json", "datasets", "reproduce", "policy show bank", "--version", "--help")
COMMANDS = shown()


class Configured(Exception):  # noqa: N818
    """A configuration is complete; nothing more is wanted of the command."""


def ways(command: Shown) -> str:
    """The way in which a command is tried."""
    first, *rest = command.words
    if any(command.line.startswith(start) for start in OUTSIDE) or any(mark in command.line for mark in LEFT_OUT):
        return "outside"
    if first != "isthmus":
        return Path(first).name
    if command.page == "docs/tour.md":
        return "tour"
    if " ".join(rest) in RUN:
        return "run"
    return "configured" if rest[0] in ("run", "plan") else "parsed"


def among(way: str) -> Any:
    """The commands that are tried in one way, as cases of a test."""
    found = [command for command in COMMANDS if ways(command) == way]
    return pytest.mark.parametrize("command", found, ids=lambda command: command.line[:80])


def test_every_command_is_tried_in_a_way_that_is_known() -> None:
    known = {"outside", "tour", "run", "configured", "parsed", "make", "pip", "python"}
    assert len(COMMANDS) > 100
    assert [command for command in COMMANDS if ways(command) not in known] == []
    assert [start for start in OUTSIDE if not any(each.line.startswith(start) for each in COMMANDS)] == []


def test_pages_of_examples_and_commands_within_sentences_are_tried() -> None:
    pages = {command.page for command in COMMANDS}
    assert {"examples/three-banks/README.md", "examples/researcher/README.md"} <= pages
    lines = [command.line for command in COMMANDS if command.page == "examples/three-banks/README.md"]
    assert len(lines) == 14 and "EX" not in " ".join(lines) and not [line for line in lines if line.endswith("&")]
    within = [command.line for command in COMMANDS if command.page == "examples/researcher/README.md"]
    assert any(line.startswith("isthmus sweep --method fedavg") for line in within)  # it stands in a sentence there


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that pages have the reader write."""
    home = tmp_path_factory.mktemp("pages")
    (home / "examples").symlink_to(ROOT / "examples")
    for recipe in ("bank.toml", "recipe.toml"):
        (home / recipe).write_text('method = "fedavg"\n')
    (home / "token").write_text("0" * 64)
    (home / "token").chmod(0o600)
    text = (ROOT / "docs" / "adding.md").read_text()
    (home / "mine.py").write_text(text.split("```python\n")[1].split("```")[0])
    return home


@pytest.fixture
def own_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods and parts of plug-ins are forgotten again, and loaded anew by the next command that names them."""
    monkeypatch.setattr(catalogue, "_CATALOGUE", dict(catalogue._CATALOGUE))
    monkeypatch.setattr(plugins, "_loaded", set(plugins._loaded))
    for axis, known in PARTS.items():
        monkeypatch.setitem(PARTS, axis, dict(known))


@among("configured")
@pytest.mark.usefixtures("own_catalogue")
def test_a_run_can_be_configured(command: Shown, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from isthmus.commands.run import configure

    def stop(*given: Any) -> None:
        raise Configured

    monkeypatch.chdir(folder)
    monkeypatch.setattr("isthmus.commands.run.run_request", lambda request: stop(configure(request)))
    monkeypatch.setattr("isthmus.plan.plan.make_plan", stop)
    monkeypatch.setattr("isthmus.wire.meeting.place_of", lambda name, *place: None)  # asks the machine for wg0
    with pytest.raises(Configured):
        outcome = isthmus(*command.words[1:])
        pytest.fail(outcome.err)


@among("run")
def test_a_quick_command_runs(command: Shown) -> None:
    assert succeed(*command.words[1:]).out


@among("parsed")
def test_arguments_and_options_exist(command: Shown) -> None:
    words, _ = take_plugins(list(command.words[1:]))
    group: Any = typer.main.get_command(app)
    while hasattr(group, "commands"):
        group = group.commands[words.pop(0)]
    read = group.make_context(group.name, words)
    if group.name == "reproduce":
        assert read.params["name"] in {study["name"] for study in listed("studies")}


@among("make")
def test_targets_exist(command: Shown) -> None:
    assert re.search(rf"^{command.words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@among("pip")
def test_extras_exist(command: Shown) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert command.words[1] == "install"
    for extra in re.findall(r"\[(\w+)\]", command.line):
        assert extra in extras


@among("python")
def test_scripts_and_their_options_exist(command: Shown, capsys: pytest.CaptureFixture[str]) -> None:
    _, first, *rest = command.words
    if first == "-c":
        exec(rest[0], {})
        assert capsys.readouterr().out
        return
    module = rest.pop(0).replace(".", "/") if first == "-m" else ""
    if module == "pytest":
        assert all((ROOT / path).is_file() for path in rest)
        return
    code = (ROOT / (f"{module}.py" if module else first)).read_text()
    assert [word for word in rest if word.startswith("--") and word not in code] == []
