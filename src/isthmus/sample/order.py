"""Which seeds are in which batch: every training seed gets a rank in a shuffle, and the rank gives batch and slot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.core.random import draw, order, stream
from isthmus.sample.batches import Seeds
from isthmus.wire.membership import Membership
from isthmus.wire.wire import Wire


@dataclass(frozen=True)
class Pool:
    """The seeds of one purpose on this host, grouped by silo, and how many every silo of the federation has."""

    index: Tensor  # [s] stack rows or edges
    keys: Tensor  # [s] public keys
    ptr: tuple[int, ...]
    counts: Tensor  # [all silos]
    share: Tensor | None = None  # [s] what a seed counts in its silo's mean (None: all alike)

    def among(self, members: Membership, mine: tuple[int, ...]) -> Pool:
        """The seeds of present silos alone; those that live here (``mine``) keep their places."""
        if members.complete:
            return self
        here = torch.zeros(len(self.counts), dtype=torch.bool)
        here[list(members.present)] = True
        stay = here[list(mine)] if mine else torch.zeros(len(self.ptr) - 1, dtype=torch.bool)
        held = torch.tensor(self.ptr).diff()
        kept = stay.repeat_interleave(held).to(self.index.device)
        share = None if self.share is None else self.share[kept]
        ptr = (0, *(held * stay).cumsum(0).tolist())
        return Pool(self.index[kept], self.keys[kept], ptr, self.counts * here, share)

    def all(self, weights: Tensor) -> Seeds:
        """All seeds in one batch."""
        slots = torch.arange(len(self.index), device=self.index.device)
        return Seeds(self.index, slots, self.ptr, int(self.counts.sum()), weights, self.share)


# By what a silo is weighted in a joint loss, given its training nodes and its seeds of the step; 0 without seeds.
WEIGHTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "nodes": lambda nodes, seeds: nodes * (seeds > 0),
    "seeds": lambda nodes, seeds: seeds,
    "silos": lambda nodes, seeds: seeds > 0,
}


@dataclass(frozen=True)
class Local:
    """Each silo shuffles its own seeds and cuts them into batches; one with fewer batches rests at the last steps."""

    weights: str = "nodes"

    def ranks(self, pool: Pool, wire: Wire, key: int) -> Tensor:
        """The place of each seed in its silo's shuffle."""
        rank = torch.empty_like(pool.index)
        for first, last in zip(pool.ptr, pool.ptr[1:], strict=False):
            shuffled = order(key, pool.keys[first:last])
            rank[first:last][shuffled] = torch.arange(last - first, device=rank.device)
        return rank

    def seeds_of(self, pool: Pool, size: int, step: int) -> Tensor:
        """Seeds of each silo at a step of an epoch: [all silos]."""
        return (pool.counts - step * size).clamp(0, size)

    def seeds_per_step(self, pool: Pool, size: int) -> list[int]:
        """Seeds of the whole federation at each step."""
        steps = -(-int(pool.counts.max()) // size)
        return [int(self.seeds_of(pool, size, step).sum()) for step in range(steps)]

    def seed_weights(self, pool: Pool, size: int, step: int) -> Tensor:
        """The weight of one seed of each silo in a loss that silos share: (silo's share / sum of shares) / its seeds.

        By ``nodes`` the share is the silo's training nodes, also at its last step, which may have few seeds.
        """
        left = self.seeds_of(pool, size, step)
        share = WEIGHTS[self.weights](pool.counts, left).double()
        return share / share.sum().clamp(min=1) / left.clamp(min=1)


class Joint:
    """One global shuffle: silos send keyed hashes of their seeds, the server returns to each the ranks of its own."""

    def ranks(self, pool: Pool, wire: Wire, key: int) -> Tensor:
        """The place of each seed in the shuffle of all silos' seeds."""
        hashes = draw(key, pool.keys).cpu()
        parts = hashes.split(torch.tensor(pool.ptr).diff().tolist())
        said = dict(zip(wire.mine, parts, strict=True)) if wire.mine else {}
        answers = wire.consult(Kind.ORDER, said, _ranks)
        return torch.cat([*(answers[silo] for silo in wire.here), hashes[:0]]).to(pool.index.device)

    def seeds_of(self, pool: Pool, size: int, step: int) -> Tensor:
        """Seeds of each silo at a step of an epoch, on average: [all silos]."""
        total = int(pool.counts.sum())
        return pool.counts.double() * (min(size, total - step * size) / max(total, 1))

    def seeds_per_step(self, pool: Pool, size: int) -> list[int]:
        """Seeds of the whole federation at each step."""
        total = int(pool.counts.sum())
        return [min(size, total - first) for first in range(0, total, size)]

    def seed_weights(self, pool: Pool, size: int, step: int) -> Tensor:
        """The weight of one seed of each silo in a loss that silos share: 1 / seeds of the step."""
        total = int(pool.counts.sum())
        return torch.full((len(pool.counts),), 1 / max(min(size, total - step * size), 1), dtype=torch.float64)


def _ranks(said: dict[int, Tensor]) -> dict[int, Tensor]:
    """At the server: for each silo, the ranks of its hashes among those of all silos."""
    ranks = _rank(torch.cat(list(said.values()))).split([len(hashes) for hashes in said.values()])
    return dict(zip(said, ranks, strict=True))


def _rank(hashes: Tensor) -> Tensor:
    shuffled = torch.argsort(hashes)
    ordered = hashes[shuffled]
    if bool((ordered[1:] == ordered[:-1]).any()):
        raise IsthmusError(
            "Two silos sent the same training node; a node has one owner. Check the parts for repeated ids."
        )
    rank = torch.empty_like(hashes)
    rank[shuffled] = torch.arange(len(hashes))
    return rank


def rule_of(how: str, weights: str = "") -> Local | Joint:
    """The rule of ``local`` or ``joint`` batches."""
    if how == "local":
        return Local(weights or "nodes")
    if weights not in ("", "seeds"):
        raise IsthmusError(f"sync.weights={weights} needs train.batches=local; in joint batches all seeds count alike.")
    return Joint()


def draw_batches(
    pool: Pool, wire: Wire, rule: Local | Joint, size: int, seed: int, purpose: str, epoch: int
) -> Iterator[Seeds]:
    """The seeds of each step of an epoch, of present silos alone; ``size`` 0 means all of them in one step.

    An epoch has as many steps without a silo as with it; at the last ones nobody may have seeds.
    """
    steps = len(rule.seeds_per_step(pool, size)) if size else 1
    pool = pool.among(wire.members, wire.mine)
    if size == 0:
        yield pool.all(rule.seed_weights(pool, int(pool.counts.sum()), 0)[list(wire.mine)])
        return
    rank = rule.ranks(pool, wire, stream(seed, f"shuffle/{purpose}", epoch))
    silo = torch.repeat_interleave(torch.arange(len(pool.ptr) - 1), torch.tensor(pool.ptr).diff()).to(rank.device)
    step = rank // size
    by_step = torch.argsort(step, stable=True)
    counts = rule.seeds_per_step(pool, size)
    counts += [0] * (steps - len(counts))
    parts = by_step.split(torch.bincount(step, minlength=len(counts)).tolist())
    for number, (part, count) in enumerate(zip(parts, counts, strict=True)):
        held = torch.bincount(silo[part], minlength=len(pool.ptr) - 1)
        ptr = (0, *held.cumsum(0).tolist())
        weights = rule.seed_weights(pool, size, number)[list(wire.mine)]
        share = None if pool.share is None else pool.share[part]
        yield Seeds(pool.index[part], rank[part] % size, ptr, count, weights, share)
