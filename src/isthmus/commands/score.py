"""What ``isthmus score`` does: predictions of a trained model for new data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.files import writing
from isthmus.engine.learner import ModelSpec
from isthmus.federation.handshake import agree_schema
from isthmus.federation.scaling import scaled_again
from isthmus.graph.graph import TEST, TRAIN, UNUSED
from isthmus.graph.merged import merge
from isthmus.graph.silo import Silo
from isthmus.launch.host import check_device, load_silos, open_run
from isthmus.methods import catalogue
from isthmus.methods.compose import TABLES, compose
from isthmus.nn.masks import is_mask
from isthmus.runs.config import RunConfig, resolve
from isthmus.runs.folder import RunFolder
from isthmus.runs.recipe import merge_into, parse_set
from isthmus.train.training import Training
from isthmus.wire.local import LocalWire


def score_command(
    run_folder: str, data: str, sets: tuple[str, ...], out: Path | None, silo: int | None
) -> tuple[Path, int]:
    """Score every node (or edge) of new data with a run's model; returns the file and how many rows it has.

    Labels in the data are not needed.
    """
    import pyarrow.parquet as pq

    folder = RunFolder.open(run_folder)
    config = _configure(folder, data, sets)
    model = _model_file(folder, silo)
    trained = _trained_with(folder)
    silos = [_without_labels(silo, trained, data) for silo in load_silos(config.data, merged=False)]
    part = _to_score(merge(agree_schema(LocalWire(len(silos)), silos)[0]), data)
    part = scaled_again(part, folder.metrics.get("scale", {}))
    training = open_run(replace(config, data=replace(config.data, scale="none")), LocalWire(1), [part])
    _load(training, model)
    logits, index = _predict_all(training)
    path = out or folder.path / "predictions.parquet"
    table = _table(training, part, logits, index)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)
    return path, len(index)


def _configure(folder: RunFolder, data: str, sets: tuple[str, ...]) -> RunConfig:
    """The run's configuration, changed for one party that predicts on new data: no exchange, no split into silos."""
    recipe = {key: value for key, value in folder.config.items() if key not in (*TABLES, "score")}
    trained_on = recipe.get("data", {})
    kept = {key: trained_on[key] for key in ("scale", "folder") if key in trained_on}
    recipe |= {"method": "centralised", "data": {"name": data, "silos": 1, "split": "random", **kept}}
    alone = replace(catalogue.get("centralised"), models=_models(folder.config))
    config = resolve(merge_into(recipe, parse_set(sets)), alone)
    check_device(config.system.device)
    return config


def _models(config: Mapping[str, Any]) -> Mapping[str, ModelSpec]:
    """The models of a run's method with their options; the usual classifier where the method has none of its own."""
    if "models" not in config:
        return catalogue.get("centralised").models
    return compose(catalogue.get(str(config["method"])), {"models": config["models"]}).models


def _model_file(folder: RunFolder, silo: int | None) -> Path:
    own = sorted(folder.path.glob("model-silo-*.safetensors"))
    if own and silo is None:
        raise IsthmusError(f"Silos of {folder.path} have models of their own; choose one, like --silo 0.")
    path = folder.path / ("model.safetensors" if silo is None else f"model-silo-{silo}.safetensors")
    if not path.is_file():
        have = f"there are {len(own)} of them" if own else "runs leave them where silos end with models of their own"
        raise IsthmusError(f"{folder.path} has no {path.name}; {have}.")
    return path


def _trained_with(folder: RunFolder) -> Mapping[str, Any]:
    """The schema that the model was trained with, kept beside its weights."""
    schema = folder.metrics.get("schema")
    if not isinstance(schema, Mapping):
        raise IsthmusError(f"{folder.path}/metrics.json does not say what the model was trained with; run it again.")
    return schema


def _without_labels(silo: Silo, trained: Mapping[str, Any], data: str) -> Silo:
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


def _to_score(part: Silo, data: str) -> Silo:
    """Data with every row in the test split but the first, which is in training: a run needs a training seed."""
    field = "split" if part.schema.target == "node" else "edge_split"
    rows = len(getattr(part, field))
    if not rows:
        raise IsthmusError(f"{data} has no {part.schema.target}s, so there is nothing to score.")
    split = torch.full((rows,), TEST, dtype=torch.int8)
    split[0] = TRAIN
    changed: dict[str, Any] = {field: split}
    return replace(part, **changed)


def _load(training: Training, path: Path) -> None:
    try:
        stored = load_file(path)
    except (OSError, SafetensorError) as error:
        raise IsthmusError(f"'{path}' is damaged ({error}); resume or repeat the run.") from error
    for key, live in training.learner.classifier.sets.everything().items():
        if is_mask(key):  # files hold weights that masks are multiplied into
            live.fill_(1)
            continue
        if key not in stored or stored[key].shape != live.shape:
            raise IsthmusError(f"'{path}' does not fit the configuration beside it ({key}); repeat the run.")
        live.copy_(stored[key])


def _predict_all(training: Training) -> tuple[Tensor, Tensor]:
    """Logits and row number of every node (or edge), in the order of the data."""
    parts = [training.stage.scorer.logits(split) for split in (TRAIN, TEST)]
    logits, index = torch.cat([part[0] for part in parts]), torch.cat([part[2] for part in parts])
    order = torch.argsort(index)
    return logits[order].cpu(), index[order].cpu()


def _table(training: Training, part: Silo, logits: Tensor, index: Tensor) -> Any:
    import pyarrow as pa

    columns: dict[str, Any] = {}
    schema = training.federation.schema
    if schema.target == "node":
        columns["id"] = part.ids[index.numpy()].tolist()
    else:
        ids, ends = np.asarray(part.ids), training.stage.layout.stack.ends.cpu()[:, index].numpy()
        columns |= {"source": ids[ends[0]].tolist(), "target": ids[ends[1]].tolist()}
    if schema.task == "tasks":
        columns |= {f"probability:{n}": p.numpy() for n, p in zip(schema.labels, logits.sigmoid().T, strict=True)}
    else:
        chance = logits.softmax(1)
        columns["prediction"] = [schema.labels[i] for i in chance.argmax(1).tolist()]
        columns |= {f"probability:{n}": p.numpy() for n, p in zip(schema.labels, chance.T, strict=True)}
    return pa.table(columns)
