"""A sweep: the grid of one method's settings, from options of the command line, of which validation chooses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from isthmus.core.errors import IsthmusError
from isthmus.methods import catalogue
from isthmus.runs.recipe import merge_into, nest, parse_set, read_recipe
from isthmus.studies.grid import grid_study
from isthmus.studies.study import Study

_WHOLE = ("score",)  # keys whose value may have commas of its own
_ALONE = re.compile(r"""(?:[^,\[\]"']|\[[^\[\]]*\]|"[^"]*"|'[^']*')+""")  # between commas; a list is in brackets


@dataclass(frozen=True)
class SweepRequest:
    """What the user asks of a sweep: recipe, options by dotted key, ``--set`` with several values, and methods."""

    recipe: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    sets: Sequence[str] = ()
    methods: Sequence[str] = ()
    seeds: int = 1
    vary_data: bool = False


def sweep_study(request: SweepRequest) -> Study:
    """The study of a sweep: keys of ``data`` with several values are places, any others are chosen by validation."""
    if request.seeds < 1:
        raise IsthmusError(f"--seeds is {request.seeds}; it must be at least 1.")
    base = read_recipe(request.recipe) if request.recipe else {}
    for option, value in request.options.items():
        merge_into(base, nest(option, value))
    axes: dict[str, dict[str, Any]] = {}
    for pair in request.sets:
        key, sign, text = pair.partition("=")
        if not sign:
            parse_set([pair])  # says what it takes
        values = [text] if key in _WHOLE else _values(key, text)
        if len(values) == 1:
            merge_into(base, {key: text} if key in _WHOLE else parse_set([f"{key}={values[0]}"]))
        else:
            axes[key] = _named(key, values)
    methods = list(request.methods or [str(base.pop("method", "fedavg"))])
    base.pop("method", None)
    if not axes:
        raise IsthmusError(
            "There is one setting alone. Give a key several values, like --set train.lr=0.1,0.01 (a value that is a "
            "list in brackets: train.fanout=[10,5],[5,5]), or use isthmus run."
        )
    return _study(request, base, axes, methods)


def _study(request: SweepRequest, base: dict[str, Any], axes: Mapping[str, Any], methods: Sequence[str]) -> Study:
    """The grid: axes of data, then of what is chosen, then of methods; scores are those that each run is known by."""
    for method in methods:
        catalogue.get(method)
    chosen = [key for key in axes if not key.startswith("data.")]
    places = {key: values for key, values in axes.items() if key not in chosen}
    name = " and ".join(methods)
    of_method = {each: {"method": each} for each in methods}
    said: dict[str, Any] = {
        "title": f"Sweep of {name}",
        "metric": "",
        "summary": f"{', '.join(axes)} of {name}",
        "seeds": request.seeds,
        "vary_data": request.vary_data,
        "base": base,
        "choose": chosen,
        "axes": {
            **places,
            **{key: axes[key] for key in chosen},
            "method": of_method,
        },
    }
    return grid_study("sweep", said)


def _values(key: str, text: str) -> list[str]:
    """The values between the commas of a key's text; those in brackets or quotes are one."""
    values = [value.strip() for value in _ALONE.findall(text)]
    if not key or "=" in key or not values or ",".join(values).replace(" ", "") != text.replace(" ", ""):
        raise IsthmusError(f"--set takes key=value or key=value,value; got '{key}={text}'.")
    return values


def _named(key: str, texts: Sequence[str]) -> dict[str, Any]:
    """The setting of each value of a key, by the value as text; refuses a value that is there twice, also as 0.10."""
    settings: dict[str, Any] = {}
    found: list[Any] = []
    for text in texts:
        value = parse_set([f"value={text}"])["value"]
        name = _value_text(value)
        if name in settings or any(
            value == other and isinstance(value, bool) == isinstance(other, bool) for other in found
        ):
            raise IsthmusError(f"--set {key} has the value {name} twice.")
        found.append(value)
        settings[name] = parse_set([f"{key}={text}"])
    return settings


def _value_text(value: Any) -> str:
    """A value as the name of a place: 0.1 for .1, 0.10 and 1e-1, and text without its quotes."""
    if isinstance(value, list):
        return f"[{','.join(map(_value_text, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value) or "empty"
