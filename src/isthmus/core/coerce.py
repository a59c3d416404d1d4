"""Values that users wrote, in the types that the program has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from inspect import Parameter
from typing import Any, TypeVar

from isthmus.core.errors import IsthmusError, unknown

_T = TypeVar("_T")


def fill(config: _T, values: Mapping[str, Any], table: str) -> _T:
    """Overwrite fields of a frozen dataclass; unknown keys and wrong types are errors."""
    known = {f.name: getattr(config, f.name) for f in fields(config)}  # type: ignore[arg-type]
    changed = {}
    for key, value in values.items():
        if key not in known:
            raise unknown(f"key in [{table}]", key, known)
        changed[key] = as_type(f"{table}.{key}", value, known[key])
    return replace(config, **changed)  # type: ignore[type-var]


def table_of(recipe: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A copy of the table under ``key``, empty where there is none; raises if it is no table."""
    value = recipe.get(key, {})
    if not isinstance(value, Mapping):
        raise IsthmusError(f"'{key}' is a table of values; set one of its keys, like {key}.… = …, not '{key}' itself.")
    return dict(value)


def as_type(name: str, value: Any, example: Any) -> Any:
    """A value of the type of an example: whole numbers become floats, single values lists; nothing else is bent."""
    for number in value if isinstance(value, list | tuple) else [value]:
        if isinstance(number, int) and abs(number) >= 2**63:
            raise IsthmusError(f"{name} is {number}, which has more than 63 bits; give a smaller number.")
    if isinstance(example, tuple):
        items = value if isinstance(value, list | tuple) else value.split(",") if isinstance(value, str) else [value]
        kind = type(example[0]) if example else str
        if any(not isinstance(item, kind) or isinstance(item, bool) for item in items):
            raise IsthmusError(f"{name} is {value!r}; it must be a list like {list(example) or ['a', 'b']}.")
        return tuple(items)
    if isinstance(example, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    endless = isinstance(example, float) and example == value == math.inf  # where that means: no bound
    if isinstance(example, float) and isinstance(value, float) and not math.isfinite(value) and not endless:
        raise IsthmusError(f"{name} is {value}; it must be a finite number, like {example!r}.")
    if isinstance(example, str) and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, bool) != isinstance(example, bool) or not isinstance(value, type(example)):
        raise IsthmusError(f"{name} is {value!r}; it must be of type {type(example).__name__}, like {example!r}.")
    return value


def as_default(name: str, value: Any, parameter: Parameter | None) -> Any:
    """A value of the type of a parameter's default; without a default to go by, as it is."""
    if parameter is None or parameter.default is Parameter.empty:
        return value
    if parameter.default is None:  # words, or nothing
        return value if isinstance(value, str) and "," not in value else as_type(name, value, ())
    return as_type(name, value, parameter.default)


def whole_number(name: str, value: Any) -> int:
    """A value that must be a whole number, 0 or more; raises, by its name, where it is none."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise IsthmusError(f"{name} is {value!r}; it must be a whole number, 0 or more.")
    return value
