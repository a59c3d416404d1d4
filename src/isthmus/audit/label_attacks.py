"""The attack on labels, from all derivatives that silos returned for rows that crossed the boundary."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from isthmus.audit.attacks import Scene, treatment
from isthmus.audit.findings import ACCURACY, AREA, LABELS, NOT_TRIED, Finding
from isthmus.audit.journal import Totals
from isthmus.audit.labels import Parts, label_scores, unmixed
from isthmus.audit.links import area
from isthmus.core.kinds import Kind
from isthmus.graph.graph import TRAIN
from isthmus.graph.stack import Stack


def labels_from_adjoints(scene: Scene) -> Iterator[Finding]:
    """Labels of training nodes, or edges, from the derivatives that their silos returned at the last layer."""
    if not scene.journal.adjoints:
        return
    schema, layer = scene.training.federation.schema, max(scene.journal.adjoints)
    kind, sigma = Kind.ADJOINTS.value, treatment(scene.training.wire.protect, Kind.ADJOINTS)[1]
    if schema.task != "classes":
        yield Finding(LABELS, kind, NOT_TRIED, layer=layer, note="nodes have several labels at once")
        return
    totals = scene.journal.adjoints[layer]
    stack = scene.training.stage.site.stack.to(torch.device("cpu"))
    seeds = scene.training.stage.layout.pools[TRAIN].index.cpu()
    parts = single_parts(stack, totals, seeds, schema.target, scene.training.stage.site.model.directed)
    scores, guess = label_scores(parts, len(schema.labels))
    known = guess >= 0
    label = parts.label[known]
    if not len(label):
        yield Finding(LABELS, kind, NOT_TRIED, layer=layer, note="no silo has labelled ones to learn from")
        return
    releases = float(totals.counts[totals.counts > 0].mean())
    if len(schema.labels) == 2 and 0 < int(label.sum()) < len(label):
        ranked = scores[known, 1]
        measure, got, guessed = AREA, area(ranked[label == 1], ranked[label == 0]), 0.5
    else:
        right = torch.stack([scores[known].argmax(1) == label, guess[known] == label])
        measure, (got, guessed) = ACCURACY, right.double().mean(1).tolist()
    unit = f"training {schema.target}s"
    yield Finding(LABELS, kind, measure, got, guessed, layer, releases, len(label), sigma, unit=unit)


def single_parts(stack: Stack, totals: Totals, seeds: Tensor, target: str, directed: bool) -> Parts:
    """The parts of single ``seeds`` (training nodes or edges, ``target``), solved from all derivatives together.

    A silo that received the row of a far node uses it for its own neighbours of that node, or for its edges with it;
    where it received one aggregate for each of its nodes, a derivative belongs to one node.
    """
    there = totals.counts > 0
    source, end = stack.ends
    if target == "edge":
        edges = torch.arange(stack.ends.shape[1])
        row, unit = _joined([(source, edges), (end, edges)], there & ~stack.owned)
        label = stack.edge_y
        assert label is not None
    else:
        own = stack.owned.nonzero().flatten()
        ways = [(source, end), (end, source)][: 1 + directed]
        row, unit = _joined([(a[stack.owned[b]], b[stack.owned[b]]) for a, b in ways], there & ~stack.owned)
        direct = own[there[own]]
        row, unit = torch.cat([row, direct]), torch.cat([unit, direct])
        label = stack.y
    rows, at = row.unique(return_inverse=True)
    units, place = unit.unique(return_inverse=True)
    found = unmixed(totals.mean[rows], at, place, len(units))
    learnt = torch.isin(units, seeds)
    used = units[learnt]
    owner = stack.silo_of(source[used] if target == "edge" else used)
    return Parts(owner, label[used].long(), found[learnt])


def _joined(ways: list[tuple[Tensor, Tensor]], kept: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs of a row and what uses it, each once, of the rows that are ``kept`` [rows]."""
    row, unit = torch.cat([row for row, _ in ways]), torch.cat([unit for _, unit in ways])
    size = int(unit.max()) + 1 if len(unit) else 1
    pairs: Tensor = (row[kept[row]] * size + unit[kept[row]]).unique()
    return pairs // size, pairs % size
