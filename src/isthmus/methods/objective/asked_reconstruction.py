"""Losses of a generator that learns from other silos' nodes: they are asked at every step (FedSage+)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.engine.site import Site
from isthmus.graph.features import Features, take
from isthmus.methods.exchange.prototypes import ROWS
from isthmus.methods.nearest_rows import ask_others
from isthmus.methods.objective.base import LiveObjective
from isthmus.methods.objective.reconstruction import LiveReconstruction, Reconstruction, sizes_of


@dataclass(frozen=True)
class AskedReconstruction(Reconstruction):
    r"""The task loss, and losses of the generator, part of which other silos compute (equation 4 of FedSage+).

    To the task loss is added the mean over visible nodes v of
    count L(n~_v - n_v) + own sum_p min_u ||z_p - x_u||^2 + others sum_j sum_p min_w ||z_p - x_w||^2,
    where u are hidden neighbours of v, of which there are n_v, and w are all nodes of another silo j. A share ``hide``
    of each silo's nodes is hidden, and L is the smooth L1 loss. x are features, or the rows that the phase before has
    handed over. Generated rows z_p go to every other silo at every step, which answers with the gradient of its
    distance.
    """

    name: ClassVar[str] = "asked-reconstruction"
    needs_all: ClassVar[str] = "rows of every other silo are asked for at every step"

    def open(self, site: Site) -> LiveObjective:
        """The live objective, which hides nodes of my silos."""
        return LiveAskedReconstruction(self, site)


class LiveAskedReconstruction(LiveReconstruction):
    """Keeps the rows that stand for my silos' nodes, which never leave, and asks others for distances to theirs."""

    spec: AskedReconstruction

    def __init__(self, spec: AskedReconstruction, site: Site) -> None:
        if site.layout.view != "drop":
            raise IsthmusError(
                f"objective={spec.name} is for silos that know their own nodes alone, but the exchange of this phase "
                "keeps far ends of edges too; use an exchange such as mended, generated or nothing."
            )
        super().__init__(spec, site)
        self._cut: tuple[Features, list[Features]] | None = None  # a table, and its part of each silo

    def nothing_handed_over(self) -> dict[str, Tensor]:
        """The state before another phase has handed anything over: nothing, so that features stand for nodes."""
        return {}

    def own_table(self) -> tuple[Features, Tensor]:
        """What stands for my silos' nodes, a row for each stack row."""
        stack, width = self._pass.stack, self._pass.generator.width
        table: Features = self.state.get(ROWS, stack.x)
        if table.shape[1] != width:
            raise IsthmusError(
                f"Generated rows have {width} numbers, but {table.shape[1]} stand for a node; let the phase before "
                "hand over its rows (exchange=embeddings), or use a method without an encoder."
            )
        return table, torch.arange(stack.rows, device=self._site.device)

    def _others(self, rows: Tensor, nodes: Tensor) -> Tensor:
        """Squared distances of the rows made for ``nodes`` to the nearest row of each other silo, summed: [rows].

        Their value and their derivative are what other silos answered.
        """
        stack, constant = self._pass.stack, rows.detach()
        told = ask_others(self._site.wire, constant.split(sizes_of(stack.segments(nodes))), self._tables())
        gradient, away, silos = (torch.cat(parts) for parts in zip(*told, strict=True))
        self._figures.add(stack.silo_of(nodes), compared=silos, others=away)
        return away + ((rows - constant) * gradient).sum(1)

    def figures(self) -> dict[str, Tensor]:
        """How the generated rows of every silo did in the last round."""
        return self._figures.told()

    def _tables(self) -> list[Features]:
        """What stands for the nodes of each of my silos."""
        table, every = self.own_table()
        if self._cut is None or self._cut[0] is not table:
            self._cut = table, [take(table, part) for part in every.split(sizes_of(self._pass.stack.ptr))]
        return self._cut[1]
