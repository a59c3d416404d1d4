"""FedDEP's objective: the task loss, and losses of the generator, which must predict neighbours that were hidden."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.name_lists import some_of
from isthmus.engine.learner import Learner, ModelSpec
from isthmus.engine.site import Site
from isthmus.federation.cross_edges import grouped_by
from isthmus.graph.features import Features
from isthmus.methods.exchange.prototypes import FAR, MERGED, OF, OWN, WHOSE
from isthmus.methods.missing_neighbours import GENERATOR, GeneratorPass, NeighbourGenerator
from isthmus.methods.nearest_rows import differences, distances_to_groups, nearest_of_pairs
from isthmus.methods.objective.base import LiveObjective, NodeLosses, Objective
from isthmus.methods.objective.impaired import Impaired
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
        self.impaired = Impaired(site.train_stack, spec.hide, site.seed)
        self._pass = GeneratorPass(site, self.impaired.stack, "reconstruction")
        self._figures = RowFigures(self)
        self._by_sender: tuple[Tensor, list[tuple[Tensor, Tensor]]] | None = None  # prototypes, and those of each silo
        self._note_nothing_hidden()
        self.state = {**self.nothing_handed_over(), **RowFigures.nothing(len(site.stack.ptr) - 1, site.device)}

    def nothing_handed_over(self) -> dict[str, Tensor]:
        """The state before another phase has handed anything over: no prototypes."""
        site, silos = self._site, len(self._site.stack.ptr) - 1
        none = torch.zeros(0, self._pass.generator.width, dtype=site.dtype, device=site.device)
        nobody = torch.full((site.stack.rows,), -1, device=site.device)
        merged = torch.zeros(silos, dtype=torch.int64, device=site.device)
        return {OWN: none, OF: nobody, FAR: none, WHOSE: nobody[:0].reshape(0, 2), MERGED: merged}

    def round_begin(self, learner: Learner) -> None:
        """Begin the figures anew, which are those of one round."""
        self._figures.begin()

    def node_losses(self, batches: Sequence[Batch], active: Tensor) -> NodeLosses:
        """The losses of the generator on visible nodes of silos that have seeds in this step."""
        step, at = batches[0].step, self._visible(batches, active)
        every, generator = self._pass.encode(at, step), self._pass.generator
        count, missing = generator.count(every.code, every.rows), self.impaired.missing[at]
        made = self._pass.make(every, torch.arange(generator.most, device=at.device) < missing[:, None], step, True)
        losses = self.spec.count * F.smooth_l1_loss(count, missing.to(count.dtype), reduction="none")
        own, others = self._own(made.rows, at[made.node]), self._others(made.rows, at[made.node])
        self._figures.add(self._pass.stack.silo_of(at), nodes=torch.ones_like(at), hidden=missing, predicted=count)
        away = self.spec.own * own + self.spec.others * others
        return NodeLosses(at, every.rows.ptr, losses.index_add(0, made.node, away))

    def _visible(self, batches: Sequence[Batch], active: Tensor) -> Tensor:
        """Visible rows for which neighbours are generated: all (full batch) or the seeds, of active silos: [n]."""
        stack, hidden = self._pass.stack, self.impaired.hidden
        if self._site.train.batch:
            at = torch.cat([batch.seeds.index for batch in batches]).sort().values
        else:
            at = torch.arange(stack.rows, device=hidden.device)
        at = at[~hidden[at]]
        return at[active.to(at.device)[stack.silo_of(at)]] if len(active) else at[:0]

    def _own(self, rows: Tensor, nodes: Tensor) -> Tensor:
        """Squared distances of the rows made for ``nodes`` to the nearest row of their hidden neighbours: [rows].

        A node of which no hidden neighbour has a row has 0.
        """
        table, of = self.own_table()
        row, neighbour = self.impaired.pairs(nodes)
        entry = of[neighbour]
        some, near = nearest_of_pairs(rows, table, row[entry >= 0], entry[entry >= 0])
        away = differences(rows[some], table, near).square().sum(1)
        self._figures.add(self._pass.stack.silo_of(nodes[some]), near=torch.ones_like(away), own=away)
        return rows.new_zeros(len(rows)).index_copy(0, some, away)

    def own_table(self) -> tuple[Features, Tensor]:
        """Rows for my silos' nodes to be compared with, and the place there of each stack row (-1: none)."""
        return self.state[OWN], self.state[OF]

    def _others(self, rows: Tensor, nodes: Tensor) -> Tensor:
        """Squared distances of the rows made for ``nodes`` to the nearest prototype of each other silo, summed."""
        stack = self._pass.stack
        parts = rows.split(sizes_of(stack.segments(nodes)))
        found = torch.cat([distances_to_groups(part, *told) for part, told in zip(parts, self._told(), strict=True)])
        senders = [part.new_full((len(part),), len(told[1])) for part, told in zip(parts, self._told(), strict=True)]
        self._figures.add(stack.silo_of(nodes), compared=torch.cat(senders), others=found)
        return found

    def _told(self) -> list[tuple[Tensor, Tensor]]:
        """What each of my silos was told: prototypes [n, width], and where those of each sender are, [senders, most].

        Senders of fewer prototypes than others have their first one more than once.
        """
        far, whose = self.state[FAR], self.state[WHOSE]
        if self._by_sender is None or self._by_sender[0] is not far:
            each = list[tuple[Tensor, Tensor]]()
            for silo in range(len(self._pass.stack.ptr) - 1):
                mine = (whose[:, 0] == silo).nonzero().flatten()
                senders = grouped_by(whose[mine, 1].cpu()).values()
                most = max(map(len, senders), default=0)
                places = [torch.cat([some, some[:1].expand(most - len(some))]) for some in senders]
                groups = torch.stack(places) if places else torch.zeros(0, 0, dtype=torch.int64)
                each.append((far[mine], groups.to(far.device)))
            self._by_sender = far, each
        return self._by_sender[1]

    def figures(self) -> dict[str, Tensor]:
        """Prototypes of every silo, and how its generated rows did in the last round."""
        of, own = self.state[OF], self.state[OWN]
        parts = of.split(sizes_of(self._pass.stack.ptr))
        groups = [part[part >= 0].unique(return_counts=True) for part in parts]
        received = torch.bincount(self.state[WHOSE][:, 0], minlength=len(groups))
        return {
            "prototypes": torch.tensor([float(len(names)) for names, _ in groups]),
            "merged_groups": self.state[MERGED],
            "smallest_group": torch.tensor([float(min(sizes.tolist(), default=torch.nan)) for _, sizes in groups]),
            "prototypes_received": received,
            "prototypes_apart": torch.tensor([apart(own[names]) for names, _ in groups]),
            **self._figures.told(),
        }

    def _note_nothing_hidden(self) -> None:
        """Say which silos have no node with a hidden neighbour, so that their generators see no row to learn from."""
        site, ptr = self._site, self._pass.stack.ptr
        alone = [
            f"{silo.name} ({silo.n:,} nodes)"
            for silo, a, b in zip(site.federation.silos, ptr, ptr[1:], strict=False)
            if silo.n and not bool(self.impaired.missing[a:b].any())
        ]
        if alone:
            site.federation.note(
                f"No visible node has a hidden neighbour (objective.hide={self.spec.hide}) in {some_of(alone)}: "
                "generators there learn of no row by themselves."
            )


def sizes_of(ptr: Sequence[int]) -> list[int]:
    """How many rows each silo has, given where its rows begin and end."""
    return [b - a for a, b in zip(ptr, ptr[1:], strict=False)]
