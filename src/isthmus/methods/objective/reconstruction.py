"""FedDEP's objective: the task loss, and losses of the generator, which must predict neighbours that were hidden."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.random import draw, stream
from isthmus.engine.learner import Learner, ModelSpec
from isthmus.engine.site import Site
from isthmus.federation.cross_edges import grouped_by
from isthmus.graph.stack import Stack
from isthmus.methods.exchange.prototypes import FAR, OF, OWN, WHOSE
from isthmus.methods.missing_neighbours import GENERATOR, GeneratorPass, NeighbourGenerator
from isthmus.methods.objective.base import LiveObjective, Objective
from isthmus.nn.block import Rows
from isthmus.sample.batches import Batch


@dataclass(frozen=True)
class Reconstruction(Objective):
    r"""The task loss, and losses of the generator on a graph of which some nodes are hidden (the paper's equation 3.1).

    To the task loss is added the mean over visible nodes v of
    count L(n~_v - n_v) + own sum_p min_u ||z_p - z'_u||^2 + others sum_j sum_p min_c ||z_p - Z'_jc||^2.
    A share ``hide`` of each silo's nodes is hidden with all its edges. n_v counts the hidden neighbours of v, L is the
    smooth L1 loss, z_p are rows generated for v, as many as it has hidden neighbours; z'_u is the prototype of a hidden
    neighbour u's group, Z'_j are the prototypes of another silo j. Without hidden neighbours only the first is left.
    """

    hide: float = 0.5
    count: float = 1.0
    own: float = 1.0
    others: float = 1.0
    name: ClassVar[str] = "reconstruction"
    needs: ClassVar[Mapping[str, ModelSpec]] = {GENERATOR: NeighbourGenerator()}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.hide < 1:
            raise IsthmusError(f"objective.hide is {self.hide}; it must lie between 0 and 1.")
        if min(self.count, self.own, self.others) < 0:
            raise IsthmusError(
                f"objective.count is {self.count}, objective.own {self.own} and objective.others {self.others}; none "
                "may be negative."
            )

    def open(self, site: Site) -> LiveObjective:
        """The live objective, which hides nodes of my silos."""
        return LiveReconstruction(self, site)


class LiveReconstruction(LiveObjective):
    """Keeps which nodes are hidden from the generator, and the prototypes that the phase before has handed over.

    Where it has handed over none, the number of missing neighbours is all that is learnt.
    """

    spec: Reconstruction

    def __init__(self, spec: Reconstruction, site: Site) -> None:
        super().__init__(spec, site)
        self._site = site
        stack = site.train_stack
        self.hidden = hidden_rows(stack, spec.hide, site.seed)
        source, target = stack.ends
        self._lost = (self.hidden[source] & ~self.hidden[target] & _kept(stack)).nonzero().flatten()
        self.missing = torch.bincount(target[self._lost], minlength=stack.rows)  # [stack rows]
        visible = ~self.hidden[stack.ends].any(0)
        self._pass = GeneratorPass(site, stack.along(visible), "reconstruction")
        none = torch.zeros(0, self._pass.generator.width, dtype=site.dtype, device=site.device)
        nobody = torch.full((stack.rows,), -1, device=site.device)
        self.state = {OWN: none, OF: nobody, FAR: none, WHOSE: nobody[:0].reshape(0, 2)}

    def penalty(self, learner: Learner, batches: Sequence[Batch], active: Tensor) -> Tensor:
        """The losses of the generator, for silos that have seeds in this step."""
        step, at = batches[0].step, self._visible(batches, active)
        every, generator = self._pass.encode(at, step), self._pass.generator
        count, missing = generator.count(every.code, every.rows), self.missing[at]
        some = (missing > 0).nonzero().flatten()
        codes = every.at(some)
        made = generator.generate(codes.code + self._pass.noise(codes, step), codes.rows)
        wanted = torch.arange(generator.most, device=at.device) < missing[some, None]
        losses = self.spec.count * F.smooth_l1_loss(count, missing.to(count.dtype), reduction="none")
        total = count.new_zeros(())
        for place, ((a, b), (c, d)) in enumerate(zip(_parts(every.rows), _parts(codes.rows), strict=True)):
            if b > a:
                away = self._distances(place, at[some[c:d]], made[c:d], wanted[c:d].to(made.dtype))
                total = total + (losses[a:b].sum() + away) / (b - a)
        return total

    def _visible(self, batches: Sequence[Batch], active: Tensor) -> Tensor:
        """Visible rows for which neighbours are generated: all (full batch) or the seeds, of active silos: [n]."""
        stack = self._pass.stack
        if self._site.train.batch:
            at = torch.cat([batch.seeds.index for batch in batches]).sort().values
        else:
            at = torch.arange(stack.rows, device=self.hidden.device)
        at = at[~self.hidden[at]]
        return at[active.to(at.device)[stack.silo_of(at)]] if len(active) else at[:0]

    def _distances(self, place: int, at: Tensor, made: Tensor, wanted: Tensor) -> Tensor:
        """Squared distances of the rows ``made`` for one silo's nodes ``at`` to the nearest prototypes, summed.

        ``wanted`` [n, most] is 1 for rows that stand for a hidden neighbour, else 0.
        """
        own, whose = self.state[OWN], self.state[WHOSE]
        total = made.new_zeros(())
        if not len(at):
            return total
        near = self._allowed(at, len(own))
        used = near.any(0).nonzero().flatten()
        if len(used):
            away = _squared(made, own[used]).masked_fill(~near[:, None, used], torch.inf).amin(2)
            total = total + self.spec.own * torch.where(away.isfinite(), away, 0.0).mul(wanted).sum()
        mine = (whose[:, 0] == place).nonzero().flatten()
        for some in grouped_by(whose[mine, 1].cpu()).values():  # the prototypes of one sender after the other
            away = _squared(made, self.state[FAR][mine[some.to(mine.device)]]).amin(2)
            total = total + self.spec.others * away.mul(wanted).sum()
        return total

    def _allowed(self, at: Tensor, groups: int) -> Tensor:
        """Which own groups the hidden neighbours of stack rows ``at`` (ascending) belong to: [n, groups] bool."""
        source, target = self._pass.stack.ends[:, self._lost]
        group = self.state[OF][source]
        line = torch.searchsorted(at, target).clamp(max=len(at) - 1)
        good = (at[line] == target) & (group >= 0)
        allowed = torch.zeros(len(at), groups, dtype=torch.bool, device=at.device)
        allowed[line[good], group[good]] = True
        return allowed


def _parts(rows: Rows) -> list[tuple[int, int]]:
    """Where the rows of each silo begin and end."""
    return list(zip(rows.ptr, rows.ptr[1:], strict=False))


def hidden_rows(stack: Stack, share: float, seed: int) -> Tensor:
    """Which rows are hidden: of each silo's, the share with the smallest hashes of their public ids; [rows] bool."""
    hidden = torch.zeros(stack.rows, dtype=torch.bool, device=stack.keys.device)
    drawn = draw(stream(seed, "hidden"), stack.keys)
    for a, b in zip(stack.ptr, stack.ptr[1:], strict=False):
        hidden[a + torch.argsort(drawn[a:b], stable=True)[: int(share * (b - a))]] = True
    return hidden


def _kept(stack: Stack) -> Tensor:
    """Which edges are among the neighbours of a stack: [edges] bool."""
    kept = torch.zeros(stack.ends.shape[1], dtype=torch.bool, device=stack.keys.device)
    kept[stack.incoming.edge] = True
    return kept


def _squared(rows: Tensor, prototypes: Tensor) -> Tensor:
    """Squared distances of rows [n, most, width] to prototypes [p, width]: [n, most, p]."""
    lengths = rows.square().sum(2, keepdim=True) + prototypes.square().sum(1)
    return (lengths - 2 * rows @ prototypes.T).clamp(min=0)
