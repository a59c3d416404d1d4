"""Attribute inference from prototypes: what the mean of a group of nodes tells of the group, and of its members."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.audit.attacks import FROM_OWN, Scene
from isthmus.audit.findings import ERROR, FEATURES, MEANS, Finding
from isthmus.audit.journal import GroupedNodes
from isthmus.audit.ridge import regress
from isthmus.core.kinds import Kind
from isthmus.runs.text import count_text

BANDS = (1, 2, 5, 10, 50, 250)  # nodes of the smallest groups of each line


@dataclass(frozen=True)
class Inferred:
    """Groups of all silos: true means of their members' features, what was inferred, what a guess is.

    ``member`` are rows of the merged graph and ``of`` the group of each.
    """

    true: Tensor  # [groups, f]
    found: Tensor  # [groups, f]
    guess: Tensor  # [groups, f]
    member: Tensor  # [nodes]
    of: Tensor  # [nodes]

    @property
    def sizes(self) -> Tensor:
        """Nodes of each group: [groups]."""
        return torch.bincount(self.of, minlength=len(self.true))


def features_from_prototypes(scene: Scene) -> Iterator[Finding]:
    """Features of groups, and of their members by the size of the group, from the prototypes that silos sent."""
    grouped, told = scene.journal.grouped, scene.journal.prototypes
    if grouped is None or not told:
        return
    inferred = infer(scene, grouped, told)
    if not len(inferred.true):
        return
    got, guess = ((each - inferred.true).square().mean() for each in (inferred.found, inferred.guess))
    groups = len(inferred.true)
    note = f"{_range(inferred.sizes)}, {FROM_OWN}"
    yield Finding(
        MEANS, Kind.PROTOTYPES.value, ERROR, float(got), float(guess), None, 1.0, groups, note=note, unit="groups"
    )
    yield from _members(scene, inferred)


def infer(scene: Scene, grouped: GroupedNodes, told: dict[int, Tensor]) -> Inferred:
    """Infer the mean features of every group from its prototype, by ridge regression from rows to features.

    Who attacks a silo knows the rows that the encoders of all others made of their own nodes, and these nodes'
    features.
    """
    node = scene.owned(torch.arange(len(grouped.rows)))
    owner, features = scene.context.owner[node], scene.context.features(node)
    order = torch.randperm(len(node), generator=torch.Generator().manual_seed(scene.request.seed))
    true, found, guess, member, of = [], [], [], [], []
    first = 0
    for silo, prototypes in sorted(told.items()):
        mine, others = (owner == silo) & (grouped.of >= 0), order[owner[order] != silo]
        if len(others) < 2:
            continue
        inside, x = grouped.of[mine], features[mine]
        sizes = torch.bincount(inside, minlength=len(prototypes))
        totals = torch.zeros(len(prototypes), x.shape[1], dtype=torch.float64).index_add_(0, inside, x.double())
        true.append(totals / sizes[:, None])
        found.append(regress(grouped.rows[others], features[others], prototypes))
        guess.append(scene.adversary.guess(node[mine][:1]).expand(len(prototypes), -1))
        member.append(node[mine])
        of.append(inside + first)
        first += len(prototypes)
    whole = (torch.cat([features[:0].double(), *each]) for each in (true, found, guess))
    return Inferred(next(whole), next(whole), next(whole), _joined(member), _joined(of))


def _members(scene: Scene, inferred: Inferred) -> Iterator[Finding]:
    """Features of single nodes, for which what was inferred of their group stands; by the size of the group."""
    true, sizes = scene.context.features(inferred.member), inferred.sizes
    errors = [(each[inferred.of] - true).square().mean(1) for each in (inferred.found, inferred.guess)]
    for least, beyond in zip(BANDS, (*BANDS[1:], math.inf), strict=True):
        groups = (sizes >= least) & (sizes < beyond)
        at = groups[inferred.of].nonzero().flatten()
        if len(at):
            got, guess = (float(each[at].mean()) for each in errors)
            note = f"in {_range(sizes[groups])}, {FROM_OWN}"
            yield Finding(
                FEATURES, Kind.PROTOTYPES.value, ERROR, got, guess, None, 1.0, len(at), note=note,
                details={"smallest": float(sizes[groups].min()), "largest": float(sizes[groups].max())},
            )  # fmt: skip


def _range(sizes: Tensor) -> str:
    """The sizes of groups in words: ``groups of 5 to 12 nodes``."""
    low, high = int(sizes.min()), int(sizes.max())
    return f"groups of {count_text(high, 'node')}" if low == high else f"groups of {low:,} to {high:,} nodes"


def _joined(parts: list[Tensor]) -> Tensor:
    """Whole numbers one after the other: [n]."""
    return torch.cat([*parts, torch.zeros(0, dtype=torch.int64)])
