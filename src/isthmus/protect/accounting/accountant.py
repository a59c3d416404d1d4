"""From charges and noise to guarantees: a release moves between any two values by at most twice the clipping norm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from isthmus.core.kinds import Kind
from isthmus.protect.accounting.charges import OF_ROWS, Charge
from isthmus.protect.accounting.guarantee import ASSUMED, DP, EDGE, EVERYTHING, NODE, ROW, ROWS_ALONE, Guarantee
from isthmus.protect.accounting.metric_dp import composed_epsilon
from isthmus.protect.events import GaussianNoise

# By kind that left, and by the name of each silo that sent it: what it is charged, and its noise (None: without).
Spent = Mapping[Kind, Mapping[str, tuple[Charge, GaussianNoise | None]]]


def guarantees(spent: Spent, bare: Sequence[str], apart: Sequence[str], edges: bool) -> list[Guarantee]:
    """The guarantees of a run: first that of everything together, then those of each kind that left.

    ``spent`` has the kinds that can get noise; ``bare`` names others that carried data of nodes, ``apart`` those that
    no epsilon covers. ``edges``: edges carry attributes or labels, which both silos of a cross edge hold.
    """
    found = [_everything(spent, bare, apart, edges)]
    for kind, silos in spent.items():
        found.append(_one_kind(kind, NODE, {name: (each.node, noise) for name, (each, noise) in silos.items()}))
        if kind in OF_ROWS:
            found.append(_one_kind(kind, ROW, {name: (each.row, noise) for name, (each, noise) in silos.items()}))
    return found


def loss_of(releases: int, noise: GaussianNoise | None) -> float:
    """What ``releases`` lose between any two values, releases (2 clip)^2 / (2 sigma^2); infinite without noise."""
    if noise is None:
        return math.inf
    return releases * (2 * noise.clip / noise.sigma) ** 2 / 2 if releases else 0.0


def _everything(spent: Spent, bare: Sequence[str], apart: Sequence[str], edges: bool) -> Guarantee:
    """All kinds composed: losses of one node add up over kinds, and those of a cross edge over both of its silos."""
    names = list(dict.fromkeys(name for silos in spent.values() for name in silos))
    noises = [noise for silos in spent.values() for _, noise in silos.values()]
    delta = min((noise.delta for noise in noises if noise is not None), default=0.0)
    each = {name: [silos[name] for silos in spent.values() if name in silos] for name in names}
    losses = {name: sum(loss_of(one.node, noise) for one, noise in paid) for name, paid in each.items()}
    counts = {name: sum(one.node for one, _ in paid) for name, paid in each.items()}
    unbounded = [kind.value for kind, silos in spent.items() if _unbounded(silos)]
    worst = sorted(losses, key=lambda name: losses[name], reverse=True)[: 2 if edges else 1]
    total, *each_epsilon = _epsilons([sum(losses[name] for name in worst), *losses.values()], delta)
    return Guarantee(
        EVERYTHING,
        EDGE if edges else NODE,
        DP,
        math.inf if bare else total,
        delta,
        sum(counts[name] for name in worst),
        ASSUMED,
        (*unbounded, *bare),
        tuple(apart),
        _told(counts, each_epsilon),
    )


def _unbounded(silos: Mapping[str, tuple[Charge, GaussianNoise | None]]) -> bool:
    return any(loss_of(one.node, noise) == math.inf for one, noise in silos.values())


def _one_kind(kind: Kind, unit: str, paid: Mapping[str, tuple[int, GaussianNoise | None]]) -> Guarantee:
    """The guarantee of one kind by itself, by the silo that lost most: how often a unit left, and with which noise."""
    delta = min((noise.delta for _, noise in paid.values() if noise is not None), default=0.0)
    counts = {name: releases for name, (releases, _) in paid.items()}
    each = _epsilons([loss_of(*each) for each in paid.values()], delta)
    assumed = (*ASSUMED, ROWS_ALONE) if unit == ROW else ASSUMED
    most = max(counts.values(), default=0)
    return Guarantee(kind.value, unit, DP, max(each, default=0.0), delta, most, assumed, silos=_told(counts, each))


def _told(counts: Mapping[str, int], each: Sequence[float]) -> dict[str, dict[str, float]]:
    """The figures of each silo."""
    return {
        name: {"releases": releases, "epsilon": spent}
        for (name, releases), spent in zip(counts.items(), each, strict=True)
    }


def _epsilons(losses: Sequence[float], delta: float) -> list[float]:
    """Epsilon of each composed loss; without any noise, and so without delta, it is 0 or infinite."""
    if not delta:
        return [math.inf if loss else 0.0 for loss in losses]
    found: list[float] = composed_epsilon(torch.tensor(losses, dtype=torch.float64), delta).tolist()
    return found
