"""Methods, layers and data sets that live outside the package: installed ones by entry point, others by file.

A plug-in registers what it brings when it is imported. Installed packages name theirs under the entry point groups
``isthmus.methods``, ``isthmus.layers`` and ``isthmus.datasets``; a file is named by ``--plugin FILE.py``. Files are
passed on to the processes that a run starts through the environment variable ``ISTHMUS_PLUGINS``.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path

from isthmus.core.errors import IsthmusError

GROUPS = ("isthmus.methods", "isthmus.layers", "isthmus.datasets")
VARIABLE = "ISTHMUS_PLUGINS"
_loaded: set[str] = set()


def add_plugins(files: Sequence[str]) -> None:
    """Name files that this process, and those that it starts, load before they look anything up."""
    known = [path for path in os.environ.get(VARIABLE, "").split(os.pathsep) if path]
    for file in files:
        path = str(Path(file).resolve())
        if not Path(path).is_file():
            raise IsthmusError(f"There is no plug-in '{file}'; --plugin takes a Python file.")
        known += [path] if path not in known else []
    os.environ[VARIABLE] = os.pathsep.join(known)


def load_plugins() -> None:
    """Import every plug-in that was not imported yet."""
    if GROUPS[0] not in _loaded:
        _loaded.update(GROUPS)
        for group in GROUPS:
            for point in entry_points(group=group):
                point.load()
    for path in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        if path not in _loaded:
            _loaded.add(path)
            _import_file(Path(path))


def _import_file(path: Path) -> None:
    """Run a Python file as a module of its own."""
    name = f"isthmus_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise IsthmusError(f"The plug-in '{path}' is no Python file; --plugin takes one, like --plugin scaffold.py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except IsthmusError:
        raise
    except Exception as error:
        raise IsthmusError(f"The plug-in '{path}' failed: {type(error).__name__}: {error}") from error
