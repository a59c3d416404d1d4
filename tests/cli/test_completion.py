"""The shell completes commands, options and shipped names, without loading PyTorch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import shellingham

from isthmus.cli.completion import PRESETS
from isthmus.nn.model import LAYERS
from isthmus.policy.reading import preset_text
from isthmus.runs.model_names import OFFERED
from tests.helpers.command import succeed

SAID = "import sys; from isthmus.cli import main; sys.argv = ['isthmus']; sys.modules['torch'] = None; main()"


def completed(words: str) -> set[str]:
    """What bash is offered for the last of some words."""
    each = words.split(" ")
    asked = {"_ISTHMUS_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(each), "COMP_CWORD": str(len(each) - 1)}
    command = [sys.executable, "-c", SAID]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **asked})
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "some"),
    [
        ("isthmus ", {"run", "check", "simulate-aml", "policy"}),
        ("isthmus run --me", {"--method", "--meet"}),
        ("isthmus run --plugin mine.py --method fedav", {"fedavg", "fedavg+fwd-bwd-le"}),
        ("isthmus plan --data co", {"cora"}),
        ("isthmus run d", {"demo"}),
        ("isthmus reproduce swi", {"swift-cora"}),
        ("isthmus split cora --split lo", {"louvain"}),
        ("isthmus policy show s", {"strict"}),
    ],
)
def test_bash_is_offered_what_begins_alike(words: str, some: set[str]) -> None:
    offered = completed(words)
    begun = words.split(" ")[-1]
    assert offered >= some and all(word.startswith(begun) for word in offered)


def test_nothing_is_offered_for_a_path_so_that_shells_complete_files() -> None:
    assert completed("isthmus run --data parts/") == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_is_shown_and_installed(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(shellingham, "detect_shell", lambda: (shell, shell))
    script = succeed("--show-completion").out
    assert f"_ISTHMUS_COMPLETE=complete_{shell}" in script
    assert succeed("--install-completion").out.startswith(f"{shell} completion installed in {tmp_path}")
    assert any(script.strip() in path.read_text() for path in tmp_path.rglob("*isthmus*") if path.is_file())
    monkeypatch.setenv("_ISTHMUS_COMPLETE", f"source_{shell}")
    assert succeed().out.strip() == script.strip()


def test_listed_names_are_those_that_there_are() -> None:
    assert {*LAYERS, "mlp", "multi-pna"} >= set(OFFERED) > {"gcn"}
    for name in PRESETS:
        assert preset_text(name)
