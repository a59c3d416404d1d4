"""The constant predictor, which gives every node the same score: the lowest reference point of a ranking score."""

from __future__ import annotations

import time
from typing import Any

import torch

from isthmus import data
from isthmus.graph.graph import TEST, TRAIN
from isthmus.runs.config import RunConfig
from isthmus.train.metrics import metric_names, score_silos


def constant_predictor(config: RunConfig) -> dict[str, Any]:
    """The metrics of a predictor that scores all test nodes equally; a task's PR-AUC is its rarer class's share."""
    started = time.perf_counter()
    source = config.data
    graph = data.load(source.name, seed=source.seed, folder=source.folder or None, **source.options)
    assert graph.y is not None and graph.split is not None and graph.schema.task == "tasks"
    seen, asked = graph.y[graph.split == TRAIN], graph.y[graph.split == TEST]
    minority = ((seen == 1).sum(0) <= (seen == 0).sum(0)).long()
    row = score_silos(torch.zeros(asked.shape), asked, (0, len(asked)), graph.schema, minority)[0].tolist()
    scores = dict(zip(metric_names(graph.schema), row, strict=True))
    seconds = time.perf_counter() - started
    return {"method": "constant", "test": scores, "test_pooled": scores, "seconds": seconds}
