"""The walks of ``docs/architecture.md`` list the files that a row really passes."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import isthmus
from isthmus.core.kinds import Kind
from isthmus.wire.door import Door
from tests.helpers.command import SMALL, succeed

ROOT = Path(isthmus.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
LINE = re.compile(r"^ ?\d+  (\S+\.py) +(\+ )?", re.MULTILINE)
NOISE = ("--set", "protect.clip=5", "--set", "protect.sigma=1", "--set", "sync.local_steps=2")


def listed(title: str) -> dict[str, bool]:
    """The files of the walk under a title, and whether each is marked as not on the stack."""
    walk = PAGE.read_text().split(f"**{title}**")[1].split("```")[1]
    return {path: bool(mark) for path, mark in LINE.findall(walk)}


def stack(frame: FrameType | None) -> Iterator[str]:
    """Files of the package on a call stack, innermost first."""
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(ROOT):
            yield str(path.relative_to(ROOT))
        frame = frame.f_back


def walked(monkeypatch: pytest.MonkeyPatch, kind: Kind, *command: str | int | Path) -> list[str]:
    """Files that the first rows of a kind pass from the command line on, in the order in which they are entered."""
    found: list[str] = []
    leave = Door.leave

    def watched(self: Door, of: Kind, parcels: Any, *rest: Any) -> Any:
        if of is not kind or found or not any(len(parcel.rows) for parcel in parcels.values()):
            return leave(self, of, parcels, *rest)
        found.extend(list(stack(sys._getframe(1)))[::-1])
        sys.setprofile(lambda frame, event, _: found.extend(list(stack(frame))[:1]) if event == "call" else None)
        try:
            return leave(self, of, parcels, *rest)
        finally:
            sys.setprofile(None)

    monkeypatch.setattr(Door, "leave", watched)
    succeed(*SMALL, *command)
    return list(dict.fromkeys(found))


@pytest.mark.usefixtures("no_report")
@pytest.mark.parametrize(
    ("title", "most", "kind", "method", "start"),
    [
        ("One row from silo A to silo B", 20, Kind.EMBEDDINGS, ("sync-sgd+fwd-bwd-le",), "cli/__init__.py"),
        ("Swift's aggregate", 15, Kind.PARTIALS, ("swift-fedgnn",), "train/loop.py"),
        ("A released moving average with noise", 12, Kind.EMBEDDINGS, ("ce-fedgnn", *NOISE), "train/loop.py"),
    ],
)
def test_a_walk_lists_the_files_of_the_call_stack(
    title: str, most: int, kind: Kind, method: tuple[str, ...], start: str, monkeypatch: Any, tmp_path: Path
) -> None:
    told = listed(title)
    passed = walked(monkeypatch, kind, "--method", *method, "--out", tmp_path / "run")
    assert set(passed[passed.index(start) :]) == {path for path, marked in told.items() if not marked}
    assert len(told) <= most and all((ROOT / path).is_file() for path in told)
