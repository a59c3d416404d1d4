"""What every silo tells of itself when a run has ended: how large it is, and what parts of the method have measured."""

from __future__ import annotations

import math

import torch

from isthmus.core.kinds import Kind
from isthmus.core.tensors import stacked
from isthmus.graph.graph import TRAIN
from isthmus.train.training import Training

MOST_CURVES = 60  # silos of which metrics.json has every validation; metrics.jsonl has those of all


def silo_sizes(training: Training) -> dict[str, dict[str, int]]:
    """Of every silo by name: nodes, halo nodes, training seeds, and bytes of the tables of rows that it keeps."""
    kept, wire = training.stage.exchange.table_bytes(), training.wire
    mine = [torch.tensor([s.n, s.h, size]) for s, size in zip(training.federation.silos, kept, strict=True)]
    shared = wire.share(Kind.METRICS, stacked(mine, torch.zeros(3, dtype=torch.int64))).tolist()
    seeds = training.stage.layout.pools[TRAIN].counts.tolist()
    names = ("nodes", "halo", "table_bytes")
    return {wire.party(i): {**dict(zip(names, row, strict=True)), "train": seeds[i]} for i, row in enumerate(shared)}


def silo_curves(training: Training) -> dict[str, list[float | None]]:
    """The scores of every silo at all validations, by its name; empty where silos are more than a figure shows."""
    wire = training.wire
    lines = [line["silo_valid"] for line in training.progress.history if "valid" in line]
    if wire.silos > MOST_CURVES or any(len(each) != wire.silos for each in lines):
        return {}
    return {wire.party(place): [each[place] for each in lines] for place in range(wire.silos)}


def silo_figures(training: Training) -> dict[str, dict[str, float | None]]:
    """What exchange and objective of the last phase tell of every silo, by the silo's name; None: nothing to tell."""
    wire, told = training.wire, {**training.stage.exchange.figures(), **training.stage.objective.figures()}
    if not told:
        return {}
    mine = torch.stack([each.double().cpu() for each in told.values()], 1)[: len(wire.mine)]
    shared = wire.share(Kind.METRICS, mine).tolist()
    return {
        wire.party(i): {name: value if math.isfinite(value) else None for name, value in zip(told, row, strict=True)}
        for i, row in enumerate(shared)
    }
