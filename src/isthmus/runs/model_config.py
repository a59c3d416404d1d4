"""The model of a run: its name, the default settings that suit it and its data, and what a recipe overrides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from inspect import signature
from typing import Any

from isthmus.core.coerce import as_default, fill, table_of
from isthmus.core.errors import IsthmusError, unknown
from isthmus.methods.method import Method
from isthmus.nn.model import LAYERS, MODELS, ModelConfig, options_of

# Default settings of some models, for all data and for single data sets. multi-pna has ego ids, which mark the seeds of
# a batch, so it needs batches; patterns has cycles of six nodes, which take six layers to see.
SUITED: dict[str, dict[str, dict[str, Any]]] = {
    "multi-pna": {
        "model": {"layers": 2},
        "train": {"batch": 1024, "fanout": [10], "lr": 3e-3, "weight_decay": 1e-4},
    }
}
SUITED_TO: dict[tuple[str, str], dict[str, dict[str, Any]]] = {
    ("multi-pna", "patterns"): {
        "model": {"layers": 6},
        "train": {"batch": 32, "fanout": [10], "lr": 1e-3, "weight_decay": 1e-4},
    }
}


def suited_defaults(model: str, data: str) -> dict[str, dict[str, Any]]:
    """The default settings of a model on a data set."""
    return SUITED_TO.get((model, data), SUITED.get(model, {}))


def model_name(table: Mapping[str, Any], method: Method, data: str) -> str:
    """The name of the model: the one that the method prescribes, else the user's, else the data set's default."""
    from isthmus.data import DATASETS

    suggested = DATASETS[data].default_model if data in DATASETS else "sage"
    name = str(table.get("name", method.model or suggested))
    if method.model and name not in (method.model, *method.instead):
        which = " or ".join(f"'{each}'" for each in (method.model, *method.instead))
        raise IsthmusError(f"Method '{method.name}' has the model {which}; leave --model out, not '{name}'.")
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    return name


def read_model(table: dict[str, Any], method: Method, data: str) -> ModelConfig:
    """The settings of the named model with what ``[model]`` overrides."""
    preset = MODELS[model_name(table, method, data)]
    options = table_of(table, "options")
    table.pop("options", None)
    for key in [key for key in table if key in options_of(LAYERS[preset.name])]:
        options[key] = table.pop(key)
    takes = signature(LAYERS[preset.name]).parameters
    options = {k: as_default(f"model.{k}", v, takes.get(k)) for k, v in options.items()}
    table.pop("name", None)
    for key in table:
        if not hasattr(preset, key):
            keys = [f.name for f in fields(ModelConfig)] + options_of(LAYERS[preset.name])
            raise unknown("key in [model]", key, keys)
    return replace(fill(preset, table, "model"), options={**preset.options, **options}).check()
