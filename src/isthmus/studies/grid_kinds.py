"""What the keys of a grid's file must be: one table of kinds, by which a file is checked before it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from isthmus.core.errors import IsthmusError, unknown


@dataclass(frozen=True)
class ValueKind:
    """What a value must be, in ``words``. Of a table: kinds of its ``keys``, and of all ``others``, which may be any.

    A ``closed`` table has no others. ``each``: the kind of the entries of a list.
    """

    words: str
    fits: Callable[[Any], bool]
    keys: Mapping[str, ValueKind] = field(default_factory=dict)
    others: ValueKind | None = None
    closed: bool = False
    each: ValueKind | None = None


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_filled(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _are_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_text, value))


def _are_names(value: Any) -> bool:
    return _is_text(value) or (_are_texts(value) and bool(value))


def _are_some(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value)


TEXT = ValueKind("a text", _is_text)
REASON = ValueKind("a text that says why", lambda value: _is_text(value) and bool(value))
SWITCH = ValueKind("true or false", lambda value: isinstance(value, bool))
COUNT = ValueKind("a whole number, 1 or more", _is_count)
TEXTS = ValueKind("a list of texts", _are_texts)
NAMES = ValueKind("a name or a list of names", _are_names)
CHOSEN = ValueKind("the name of an axis or a list of them", lambda value: _is_text(value) or _are_texts(value))
VALUES = ValueKind("a list of values, with the dotted key in quotes: 'train.lr' = [0.01, 0.03]", _are_some)
TRIED = ValueKind("a table of keys and lists of values, like 'train.lr' = [0.01, 0.03]", _is_table, others=VALUES)
SETTINGS = ValueKind('a table of settings, like { method = "fedavg" }', _is_table, {"tune": TRIED})
AXIS = ValueKind("a table of names, and for each name the settings that it stands for", _is_filled, others=SETTINGS)
AXES = ValueKind("a table of axes, each with names and their settings", _is_filled, others=AXIS)
BASE = ValueKind("a table of settings, as a recipe has them", _is_table, {"score": TEXT})
TUNE = ValueKind("a table with a grid", _is_table, {"grid": TRIED, "seeds": COUNT, "changes": BASE}, closed=True)
PLACES = ValueKind("a place: axes and their names, and because", _is_table, {"because": REASON}, NAMES)
LEFT_OUT = ValueKind(
    "a list of tables, each headed [[leave_out]]", lambda value: isinstance(value, list | tuple), each=PLACES
)
KEPT = ValueKind(
    "a list of names, or a table of names and their settings",
    lambda value: _is_filled(value) or (_are_texts(value) and bool(value)),
    others=SETTINGS,
)
QUICK = ValueKind(
    "a table of settings and axes", _is_table, {"axes": ValueKind("a table of axes", _is_table, others=KEPT)}
)
GRID = ValueKind(
    "a table",
    _is_table,
    {
        "title": TEXT,
        "summary": TEXT,
        "metric": TEXT,
        "seeds": COUNT,
        "vary_data": SWITCH,
        "against": TEXT,
        "pivot": TEXT,
        "choose": CHOSEN,
        "notes": TEXTS,
        "base": BASE,
        "axes": AXES,
        "tune": TUNE,
        "leave_out": LEFT_OUT,
        "quick": QUICK,
    },
    closed=True,
)


def check_grid(said: Mapping[str, Any]) -> None:
    """Raise for the first key of a grid's file that does not exist or is not what it must be, and say what it is."""
    _check(said, GRID, "")


def _check(value: Any, kind: ValueKind, name: str) -> None:
    """Raise where the value of the dotted key ``name``, or anything in it, is of another kind."""
    if not kind.fits(value):
        raise IsthmusError(f"{name} is {_value_text(value)}; it must be {kind.words}.")
    if isinstance(value, Mapping):
        for key, inner in value.items():
            expected = kind.keys.get(key, kind.others)
            if expected is None and kind.closed:
                raise unknown(f"key in [{name}]" if name else "key of a study", key, kind.keys)
            if expected is not None:
                _check(inner, expected, f"{name}.{key}" if name else key)
    if kind.each is not None:
        for entry in value:
            _check(entry, kind.each, name)


def _value_text(value: Any) -> str:
    """A value as it is named in an error: tables without their content."""
    if isinstance(value, Mapping):
        return "a table" if value else "an empty table"
    return str(value).lower() if isinstance(value, bool) else repr(value)
