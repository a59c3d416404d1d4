"""Recipes and ``--set`` overrides as nested dictionaries; keys and values are not checked here."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.files import is_folder, there

PART_KEYS = ("exchange", "schedule", "sync", "objective", "protect")  # keys that name a part of a method

_SHORT_NUMBER = re.compile(r"[+-]?([0-9]+\.|\.[0-9]+)([eE][+-]?[0-9]+)?")


def recipe_names() -> list[str]:
    """Names of the recipes that ship with the package."""
    return sorted(f.name[:-5] for f in resources.files("isthmus.runs.recipes").iterdir() if f.name.endswith(".toml"))


def read_recipe(name: str) -> dict[str, Any]:
    """The content of a shipped recipe, given by name, or of a TOML file, given by path."""
    path = Path(name)
    shadow = name in recipe_names() and is_folder(path)  # a folder that happens to have a recipe's name
    if path.suffix == ".toml" or (there(path) and not shadow):
        if not there(path) or not path.is_file():
            raise IsthmusError(f"There is no recipe file '{name}'. Shipped recipes: {', '.join(recipe_names())}.")
        text = read_text(path)
    elif name in recipe_names():
        text = resources.files("isthmus.runs.recipes").joinpath(f"{name}.toml").read_text()
    else:
        raise unknown("recipe", name, recipe_names())
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise IsthmusError(f"Recipe '{name}' is not valid TOML: {error}.") from error


def read_text(path: Path) -> str:
    """The text of a file; raises a clear error if it cannot be read."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise IsthmusError(f"'{path}' cannot be read as text: {error}.") from error


def parse_set(pairs: Sequence[str]) -> dict[str, Any]:
    """Pairs such as ``["train.lr=0.1", "data.nodes=500"]`` as a nested dictionary."""
    out: dict[str, Any] = {}
    for pair in pairs:
        key, sign, text = pair.partition("=")
        if not sign or not key:
            raise IsthmusError(f"--set takes key=value, like --set train.lr=0.01; got '{pair}'.")
        merge_into(out, nest(full_key(key), _value(text)))
    return out


def full_key(key: str) -> str:
    """The full key of a short one: ``exchange`` is short for ``exchange.name``, and so is every part of a method."""
    return (
        f"{key}.name" if key.rpartition(".")[2] in PART_KEYS and (key in PART_KEYS or key.startswith("phase.")) else key
    )


def nest(key: str, value: Any) -> dict[str, Any]:
    """A dotted key and its value as a nested dictionary: ``train.lr`` and 0.1 give ``{"train": {"lr": 0.1}}``."""
    for part in reversed(key.split(".")):
        value = {part: value}
    nested: dict[str, Any] = value
    return nested


def _value(text: str) -> Any:
    """The value of a text: numbers, booleans and lists as in TOML (also 10,5 for a list), anything else as text.

    Of numbers that TOML has no word for, .5 and 1. are read.
    """
    for attempt in (text, f"[{text}]" if "," in text else text):
        try:
            return tomllib.loads(f"v = {attempt}")["v"]
        except (tomllib.TOMLDecodeError, RecursionError):
            continue
    return float(text) if _SHORT_NUMBER.fullmatch(text) else text


def merge_into(base: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Write the values of ``extra`` into ``base``, table by table; returns ``base``."""
    for key, value in extra.items():
        if isinstance(value, Mapping):
            if key in PART_KEYS and isinstance(base.get(key), str | list):
                base[key] = {"name": base[key]}  # a part by its bare name
            inner = base.setdefault(key, {})
            if not isinstance(inner, dict):
                raise IsthmusError(f"'{key}' is both a value and a table of values in this configuration.")
            merge_into(inner, value)
        else:
            base[key] = value
    return base
