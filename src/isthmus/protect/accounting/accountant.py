"""The accountant: guarantees (epsilon, delta) of a run from what each silo is charged and the noise it added.

A payload of norm at most clip moves by at most 2 clip when a node's data changes from any value to any other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from isthmus.core.kinds import Kind
from isthmus.protect.accounting.charges import OF_ROWS, Charge
from isthmus.protect.accounting.guarantee import ASSUMED, DP, EDGE, EVERYTHING, NODE, ROW, ROWS_ALONE, Guarantee
from isthmus.protect.accounting.privacy_loss import Loss, Noised, epsilons, loss_of
from isthmus.protect.events import GaussianNoise

# {kind of message: {name of the silo that sent it: (what it is charged, its noise or None)}}
Spent = Mapping[Kind, Mapping[str, tuple[Charge, Noised | None]]]


def guarantees(spent: Spent, bare: Sequence[str], apart: Sequence[str], edges: bool) -> list[Guarantee]:
    """The guarantees of a run: first that of everything together, then those of each kind that left.

    ``spent`` has the kinds that can get noise; ``bare`` names others that carried data of nodes, ``apart`` those that
    no epsilon covers. ``edges``: edges carry attributes or labels, which both silos of a cross edge hold.
    """
    found = [_everything(spent, bare, apart, edges)]
    for kind, silos in spent.items():
        noises = [noise for _, noise in silos.values()]
        nodes = {name: (each.node, _loss(each, noise)) for name, (each, noise) in silos.items()}
        found.append(_one_kind(kind, NODE, nodes, noises))
        if kind in OF_ROWS:
            rows = {name: (each.row, loss_of(each.row, each.width, noise)) for name, (each, noise) in silos.items()}
            found.append(_one_kind(kind, ROW, rows, noises))
    return found


def _loss(charge: Charge, noise: Noised | None) -> Loss:
    """The privacy loss of one node: over all releases that its data may be inside."""
    return loss_of(charge.node, charge.width, noise)


def _delta(noises: Sequence[Noised | None]) -> float:
    """The delta for which epsilon is stated: the smallest of Gaussian noises; 0 without one (Laplace needs none)."""
    return min((noise.delta for noise in noises if isinstance(noise, GaussianNoise)), default=0.0)


def _everything(spent: Spent, bare: Sequence[str], apart: Sequence[str], edges: bool) -> Guarantee:
    """The guarantee of all kinds composed: a node's losses add up over kinds, a cross edge's over its two silos too."""
    names = list(dict.fromkeys(name for silos in spent.values() for name in silos))
    delta = _delta([noise for silos in spent.values() for _, noise in silos.values()])
    each = {name: [silos[name] for silos in spent.values() if name in silos] for name in names}
    losses = {name: Loss.total(_loss(one, noise) for one, noise in paid) for name, paid in each.items()}
    counts = {name: sum(one.node for one, _ in paid) for name, paid in each.items()}
    unbounded = [kind.value for kind, silos in spent.items() if _unbounded(silos)]
    alone = dict(zip(losses, epsilons(list(losses.values()), delta), strict=True))
    worst = sorted(losses, key=lambda name: alone[name], reverse=True)[: 2 if edges else 1]
    [total] = epsilons([Loss.total(losses[name] for name in worst)], delta)
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
        _by_silo(counts, list(alone.values())),
    )


def _unbounded(silos: Mapping[str, tuple[Charge, Noised | None]]) -> bool:
    return any(_loss(one, noise).renyi == math.inf for one, noise in silos.values())


def _one_kind(
    kind: Kind, unit: str, paid: Mapping[str, tuple[int, Loss]], noises: Sequence[Noised | None]
) -> Guarantee:
    """The guarantee of one kind of message, as strong as for the worst silo; ``paid``: (releases, loss) by silo."""
    delta = _delta(noises)
    counts = {name: releases for name, (releases, _) in paid.items()}
    each = epsilons([loss for _, loss in paid.values()], delta)
    assumed = (*ASSUMED, ROWS_ALONE) if unit == ROW else ASSUMED
    most = max(counts.values(), default=0)
    return Guarantee(kind.value, unit, DP, max(each, default=0.0), delta, most, assumed, silos=_by_silo(counts, each))


def _by_silo(counts: Mapping[str, int], each: Sequence[float]) -> dict[str, dict[str, float]]:
    """Releases and epsilon of each silo, by its name."""
    return {
        name: {"releases": releases, "epsilon": spent}
        for (name, releases), spent in zip(counts.items(), each, strict=True)
    }
