"""One class name has one meaning, wherever in the package it is read."""

import ast
from collections import defaultdict
from pathlib import Path

import isthmus

ROOT = Path(isthmus.__file__).parent


def test_no_two_classes_have_one_name() -> None:
    """A leading underscore makes no other name of it."""
    homes = defaultdict[str, list[str]](list)
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                homes[node.name.lstrip("_")].append(str(path.relative_to(ROOT)))
    assert len(homes) > 200
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}
