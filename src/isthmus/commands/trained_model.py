"""The model of a finished run, and new data made to fit it: columns compared, labels set aside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from isthmus.commands.predictions import refuse_nothing
from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.name_lists import some_of
from isthmus.data import is_own
from isthmus.data.members import is_parts
from isthmus.engine.learner import ModelSpec
from isthmus.federation.trained_columns import recoded_again
from isthmus.graph.encoding import WORDS
from isthmus.graph.graph import TEST, TRAIN, UNUSED
from isthmus.graph.partition import attribute_of
from isthmus.graph.silo import Silo
from isthmus.launch.host import check_device
from isthmus.launch.silos import READING
from isthmus.methods import catalogue
from isthmus.methods.compose import TABLES, compose
from isthmus.nn.masks import is_mask
from isthmus.runs.config import RunConfig, resolve
from isthmus.runs.folder import RunFolder
from isthmus.runs.recipe import merge_into, parse_set
from isthmus.train.training import Training


def configure(folder: RunFolder, data: str, sets: tuple[str, ...], together: bool = False) -> RunConfig:
    """The run's configuration, changed for predictions on new data: of one party, or of silos ``together``.

    One party has no exchange. Silos together get fresh rows of far ends, which leave under the run's own protection.
    """
    asked = parse_set(sets)
    if "method" in asked:
        raise IsthmusError("method means nothing to score, which takes the model that the run trained; leave it out.")
    recipe = {key: value for key, value in folder.config.items() if key not in (*TABLES, "score")}
    trained_on = recipe.get("data", {})
    kept = {key: trained_on[key] for key in ("scale", "folder", "edges", *READING) if key in trained_on}
    kept.pop("rarest", None)  # nothing is told of words any more, and few rows are no reason to overlook one
    attributes = [*trained_on.get("attributes", ()), *filter(None, [attribute_of(str(trained_on.get("split", "")))])]
    if attributes and is_own(data) and not is_parts(data):
        kept["attributes"] = attributes
    told = [column for table in folder.metrics.get("columns", {}).values() for column in table]
    words = [column["name"] for column in told if column["kind"] == WORDS]
    if words and is_own(data):
        kept["words"] = words  # also where so few rows are scored that nearly each has a word of its own
    method = "fedavg" if together else "centralised"
    recipe |= {"method": method, "data": {"name": data, **kept}}
    if together:
        on_edges = folder.metrics.get("schema", {}).get("target") == "edge"
        recipe |= {"exchange": {"halo": "placeholder"}} if on_edges else {}  # edges to other silos are scored too
        recipe |= {"score": "across", **{key: folder.config[key] for key in ("protect",) if key in folder.config}}
    else:
        recipe["data"] |= {"silos": 1, "split": "random"}
    recipe["system"] = {**recipe.get("system", {}), "hosts": 1}
    alone = replace(catalogue.get(method), models=_models(folder.config))
    config = resolve(merge_into(recipe, asked), alone)
    check_device(config.system.device)
    return config


def _models(config: Mapping[str, Any]) -> Mapping[str, ModelSpec]:
    """The models of a run's method with their options; the usual classifier where the method has none of its own."""
    if "models" not in config:
        return catalogue.get("centralised").models
    return compose(catalogue.get(str(config["method"])), {"models": config["models"]}).models


def model_file(folder: RunFolder, silo: str | None, own_alone: bool = False) -> Path:
    """The file of the model to score with: the common one, or the one of a silo (by name or number) with its own.

    ``own_alone``: a silo was named only to choose its model, which is refused where silos have none of their own.
    """
    own = sorted(folder.path.glob("model-silo-*.safetensors"))
    common = folder.path / "model.safetensors"
    if not own:
        if not common.is_file():
            raise IsthmusError(f"{folder.path} has no {common.name}; resume or repeat the run.")
        if silo is not None and own_alone:
            number = silo_number(_silos_of(folder), silo)
            raise IsthmusError(
                f"{folder.path} has no model-silo-{number}.safetensors; runs leave them where silos end with models of "
                "their own."
            )
        return common
    if silo is None and len(own) > 1:
        raise IsthmusError(f"Silos of {folder.path} have models of their own; choose one, like --silo 0.")
    path = (
        own[0] if silo is None else own[0].with_name(f"model-silo-{silo_number(_silos_of(folder), silo)}.safetensors")
    )
    if not path.is_file():
        raise IsthmusError(f"{folder.path} has no {path.name}; there are {len(own)} of them.")
    return path


def _silos_of(folder: RunFolder) -> list[str]:
    """Names of all silos of a run, in order."""
    told = folder.metrics.get("party", {}).get("federation") or folder.metrics.get("silo_nodes", {})
    return [str(name) for name in told]


def silo_number(names: Sequence[str], silo: str) -> int:
    """The number of a silo that was named, or given by its number."""
    if silo in names:
        return list(names).index(silo)
    if silo.isdecimal():
        return int(silo)
    raise unknown("silo", silo, names)


def part_number(names: Sequence[str], silo: str) -> int:
    """The number of a silo that was named, or given by its number, and that there is a part of."""
    number = silo_number(names, silo)
    if number >= len(names):
        raise IsthmusError(
            f"There is no part of silo {number}; there are {len(names)}, numbered from 0: {some_of(names)}."
        )
    return number


def trained_with(folder: RunFolder) -> Mapping[str, Any]:
    """The schema that the model was trained with, kept beside its weights."""
    schema = folder.metrics.get("schema")
    if not isinstance(schema, Mapping):
        raise IsthmusError(f"{folder.path}/metrics.json does not say what the model was trained with; run it again.")
    return schema


def fitted(silos: Sequence[Silo], folder: RunFolder, data: str) -> tuple[list[Silo], list[str]]:
    """Parts of new data with the features and the schema of a run, and sentences on what its model has never seen."""
    trained, told = trained_with(folder), folder.metrics.get("columns", {})
    found, notes = list[Silo](), list[str]()
    for silo in silos:
        again, unseen = recoded_again(silo, told, trained, data if len(silos) == 1 else f"{data}/{silo.name}")
        found, notes = [*found, without_labels(again, trained, data)], [*notes, *unseen]
    return found, notes


def without_labels(silo: Silo, trained: Mapping[str, Any], data: str) -> Silo:
    """A part with the schema that the model was trained with; the labels and splits of the new data are set aside."""
    for what, names in (("features", "feature_names"), ("edge_features", "edge_feature_names")):
        have, want = getattr(silo.schema, what), trained[what]
        named, wanted = list(getattr(silo.schema, names)), list(trained[names])
        if have != want or (named and wanted and named != wanted):
            raise IsthmusError(
                f"The model was trained with {want} {what.replace('_', ' ')} {_list(wanted)}, "
                f"and {data} has {have} {_list(named)}; give it the same columns in the same order."
            )
    labels, task = tuple(trained["labels"]), trained["task"]
    schema = replace(silo.schema, labels=labels, task=task, target=trained["target"])
    wide = (silo.n, len(labels)) if task == "tasks" else (silo.n,)
    m = silo.edge_index.shape[1]
    return replace(
        silo,
        schema=schema,
        y=torch.zeros(wide, dtype=torch.int64),
        split=torch.full((silo.n,), UNUSED, dtype=torch.int8),
        edge_y=torch.zeros(m, dtype=torch.int64),
        edge_split=torch.full((m,), UNUSED, dtype=torch.int8),
    )


def _list(names: list[str]) -> str:
    text = f"({', '.join(names)})" if names else ""
    return text if len(text) <= 120 else text[:117] + "..."


def to_score(part: Silo, data: str) -> Silo:
    """Data with every row in the test split but one, which is in training: a run needs a training seed.

    Of edges it is the first that ends here, since the owner of its target says what split an edge is in.
    """
    field = "split" if part.schema.target == "node" else "edge_split"
    rows = len(getattr(part, field))
    refuse_nothing(rows, data, part.schema.target)
    split = torch.full((rows,), TEST, dtype=torch.int8)
    ends_here = part.edge_index[1] < part.n if field == "edge_split" else torch.ones(rows, dtype=torch.bool)
    split[ends_here.nonzero().flatten()[:1]] = TRAIN
    changed: dict[str, Any] = {field: split}
    return replace(part, **changed)


def load_parameters(training: Training, path: Path) -> None:
    """Put the parameters of a file into every parameter set of a training; raise where they do not fit."""
    try:
        stored = load_file(path)
    except (OSError, SafetensorError) as error:
        raise IsthmusError(f"'{path}' is damaged ({error}); resume or repeat the run.") from error
    for key, live in training.learner.classifier.sets.everything().items():
        if is_mask(key):  # files hold weights that masks are multiplied into
            live.fill_(1)
            continue
        if key not in stored or stored[key].shape[1:] != live.shape[1:]:
            raise IsthmusError(f"'{path}' does not fit the configuration beside it ({key}); repeat the run.")
        live.copy_(stored[key])
