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
from isthmus.methods.exchange.prototypes import FAR, MERGED, OF, OWN, WHOSE
from isthmus.methods.missing_neighbours import GENERATOR, GeneratorPass, NeighbourGenerator
from isthmus.methods.objective.base import LiveObjective, NodeLosses, Objective
from isthmus.methods.objective.row_figures import RowFigures, apart
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
        silos = len(stack.ptr) - 1
        self.state = {OWN: none, OF: nobody, FAR: none, WHOSE: nobody[:0].reshape(0, 2)}
        self.state[MERGED] = torch.zeros(silos, dtype=torch.int64, device=site.device)
        self._figures = RowFigures(silos, site.device)

    def round_begin(self, learner: Learner) -> None:
        """Figures are those of a round."""
        self._figures.begin()

    def node_losses(self, batches: Sequence[Batch], active: Tensor) -> NodeLosses:
        """The losses of the generator on visible nodes of silos that have seeds in this step."""
        step, at = batches[0].step, self._visible(batches, active)
        every, generator = self._pass.encode(at, step), self._pass.generator
        count, missing = generator.count(every.code, every.rows), self.missing[at]
        some = (missing > 0).nonzero().flatten()
        codes = every.at(some)
        made = generator.generate(codes.code + self._pass.noise(codes, step), codes.rows)
        wanted = (torch.arange(generator.most, device=at.device) < missing[some, None]).to(made.dtype)
        losses = self.spec.count * F.smooth_l1_loss(count, missing.to(count.dtype), reduction="none")
        own, others = self._own(at[some], made, wanted), self._others(at[some], made, wanted)
        self._figures.add(self._pass.stack.silo_of(at), nodes=torch.ones_like(at), hidden=missing, predicted=count)
        away = self.spec.own * own + self.spec.others * others
        return NodeLosses(at, every.rows.ptr, losses.index_add(0, some, away))

    def _visible(self, batches: Sequence[Batch], active: Tensor) -> Tensor:
        """Visible rows for which neighbours are generated: all (full batch) or the seeds, of active silos: [n]."""
        stack = self._pass.stack
        if self._site.train.batch:
            at = torch.cat([batch.seeds.index for batch in batches]).sort().values
        else:
            at = torch.arange(stack.rows, device=self.hidden.device)
        at = at[~self.hidden[at]]
        return at[active.to(at.device)[stack.silo_of(at)]] if len(active) else at[:0]

    def _own(self, at: Tensor, made: Tensor, wanted: Tensor) -> Tensor:
        """Squared distances of the rows ``made`` for nodes ``at`` to the nearest group of a hidden neighbour: [n].

        ``wanted`` [n, most] is 1 for rows that stand for a hidden neighbour, else 0; distances of these are added up.
        """
        own, stack, total, had = self.state[OWN], self._pass.stack, [made.new_zeros(0)], [wanted.new_zeros(0)]
        for a, b in _parts(stack.segments(at)):  # silo after silo, whose groups are few
            near = self._allowed(at[a:b], len(own))
            used = near.any(0).nonzero().flatten()
            away = _squared(made[a:b], own[used]).masked_fill(~near[:, None, used], torch.inf)
            total.append(_least(away).mul(wanted[a:b]).sum(1))
            had.append(near.any(1).to(wanted.dtype))
        found = torch.cat(total)
        self._figures.add(stack.silo_of(at), near=wanted.sum(1) * torch.cat(had), own=found)
        return found

    def _others(self, at: Tensor, made: Tensor, wanted: Tensor) -> Tensor:
        """Squared distances of the rows ``made`` for nodes ``at`` to the nearest prototype of each other silo: [n].

        ``wanted`` is that of :meth:`_own`; distances are added up over these rows and over silos.
        """
        whose, stack, total, senders = self.state[WHOSE], self._pass.stack, [made.new_zeros(0)], [wanted.new_zeros(0)]
        for place, (a, b) in enumerate(_parts(stack.segments(at))):
            mine, away = (whose[:, 0] == place).nonzero().flatten(), made.new_zeros(b - a)
            groups = grouped_by(whose[mine, 1].cpu()).values()  # the prototypes of one sender after the other
            for some in groups:
                least = _least(_squared(made[a:b], self.state[FAR][mine[some.to(mine.device)]]))
                away = away + least.mul(wanted[a:b]).sum(1)
            total.append(away)
            senders.append(wanted.new_full((b - a,), float(len(groups))))
        found = torch.cat(total)
        self._figures.add(stack.silo_of(at), compared=wanted.sum(1) * torch.cat(senders), others=found)
        return found

    def figures(self) -> dict[str, Tensor]:
        """Prototypes of every silo, and how its generated rows did in the last round."""
        of, own = self.state[OF], self.state[OWN]
        groups = [of[a:b][of[a:b] >= 0].unique(return_counts=True) for a, b in _parts(self._pass.stack.ptr)]
        received = torch.bincount(self.state[WHOSE][:, 0], minlength=len(groups))
        return {
            "prototypes": torch.tensor([float(len(names)) for names, _ in groups]),
            "merged_groups": self.state[MERGED],
            "smallest_group": torch.tensor([float(min(sizes.tolist(), default=torch.nan)) for _, sizes in groups]),
            "prototypes_received": received,
            "prototypes_apart": torch.tensor([apart(own[names]) for names, _ in groups]),
            **self._figures.told(),
        }

    def _allowed(self, at: Tensor, groups: int) -> Tensor:
        """Which own groups the hidden neighbours of stack rows ``at`` (ascending) belong to: [n, groups] bool."""
        allowed = torch.zeros(len(at), groups, dtype=torch.bool, device=at.device)
        if len(at):
            source, target = self._pass.stack.ends[:, self._lost]
            group = self.state[OF][source]
            line = torch.searchsorted(at, target).clamp(max=len(at) - 1)
            good = (at[line] == target) & (group >= 0)
            allowed[line[good], group[good]] = True
        return allowed


def _parts(ptr: Sequence[int]) -> list[tuple[int, int]]:
    """Where the rows of each silo begin and end."""
    return list(zip(ptr, ptr[1:], strict=False))


def hidden_rows(stack: Stack, share: float, seed: int) -> Tensor:
    """Which rows are hidden: of each silo's, the share with the smallest hashes of their public ids; [rows] bool."""
    hidden = torch.zeros(stack.rows, dtype=torch.bool, device=stack.keys.device)
    drawn = draw(stream(seed, "hidden"), stack.keys)
    for a, b in _parts(stack.ptr):
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


def _least(away: Tensor) -> Tensor:
    """The least of distances [n, most, prototypes] that are finite: [n, most]; 0 where there is none."""
    if not away.shape[2]:
        return away.new_zeros(away.shape[:2])
    least = away.amin(2)
    return torch.where(least.isfinite(), least, 0.0)
