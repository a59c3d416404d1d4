"""What ``isthmus.fit`` is given, looked at before anything runs: method, settings and parts of the right kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isthmus.core.coerce import table_of
from isthmus.core.errors import IsthmusError, unknown
from isthmus.methods.exchange.base import Exchange
from isthmus.methods.method import Method
from isthmus.methods.objective.base import Objective
from isthmus.methods.schedule import Schedule
from isthmus.methods.sync.base import Sync
from isthmus.protect.base import Mechanism
from isthmus.runs.recipe import merge_into, nest

_BASES: dict[str, type] = {"exchange": Exchange, "schedule": Schedule, "sync": Sync, "objective": Objective}
_SWAPPED = (*_BASES, "protect", "score")


def check_arguments(method: object, settings: object, parts: Mapping[str, object]) -> None:
    """Raise for a method, settings or parts that are of the wrong kind, and for settings that ``fit`` does not read."""
    if not isinstance(method, str | Method):
        raise IsthmusError(f"method is {method!r}; give the name of a method, like 'fedavg', or a Method.")
    if settings is not None:
        _check_settings(settings)
    for axis, part in parts.items():
        _check_part(axis, part)


def _check_settings(settings: object) -> None:
    """Raise for settings that say which graph to load, how to split it or where to run it, or repeat an argument."""
    if not isinstance(settings, Mapping) or not all(isinstance(key, str) for key in settings):
        raise IsthmusError(f"settings is {settings!r}; give keys and values, like {{'train.epochs': 50}}.")
    told: dict[str, Any] = {}
    for key, value in settings.items():
        merge_into(told, nest(key, value))
    for key in ("method", "seed"):
        if key in told:
            raise IsthmusError(f"{key} is an argument of fit and no setting; give it as fit(silos, {key}=...).")
    asked = [f"data.{key}" for key in table_of(told, "data") if key not in ("scale", "edges", "cross", "seed")]
    asked += ["system.hosts"] if table_of(told, "system").get("hosts", 1) != 1 else []
    if asked:
        raise IsthmusError(
            f"{asked[0]} means nothing to fit, which trains over the silos that it is given; leave it out."
        )


def _check_part(axis: str, part: object) -> None:
    """Raise for a part on an axis that there is not, or of another kind than the axis takes; names are not read."""
    if axis not in _SWAPPED:
        raise unknown("part", axis, _SWAPPED)
    if isinstance(part, str):
        return
    several = list(part) if isinstance(part, list | tuple) else [part]
    if axis == "score":
        if not isinstance(part, list | tuple):
            raise IsthmusError(f"score is {part!r}; give a name, or several, like 'own,across'.")
    elif axis == "protect":
        if not all(isinstance(each, Mechanism) for each in several):
            raise IsthmusError(
                f"protect is {part!r}; give names in one text, like 'gaussian,int8', a mechanism, or a list of "
                "mechanisms."
            )
    elif not isinstance(part, _BASES[axis]):
        raise IsthmusError(
            f"{axis} is {part!r}; give the name of a part, or a part of the kind {_BASES[axis].__name__}."
        )
