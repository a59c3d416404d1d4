"""What a silo minimises: the task loss, which is also the base class of every objective."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.engine.learner import Learner, ModelSpec
from isthmus.engine.site import Site
from isthmus.federation.statistics import positive_weights
from isthmus.graph.graph import TRAIN
from isthmus.sample.batches import Batch


@dataclass(frozen=True)
class Objective:
    """The task loss alone: cross-entropy for classes, weighted binary cross-entropy averaged over tasks.

    ``minority_weight``, for classes alone: how many times a seed of the class that is rarest in training counts.
    ``needs``: models that a method with this objective must have, by name, as they are by default.
    ``holds``: it holds each silo's own parameters back by a penalty, so that all silos cannot have one set of them.
    """

    minority_weight: float = 1.0
    name: ClassVar[str] = "task"
    needs: ClassVar[Mapping[str, ModelSpec]] = {}
    holds: ClassVar[bool] = False
    needs_all: ClassVar[str] = ""  # why it cannot go on without a member; empty: it can

    def __post_init__(self) -> None:
        if not 0 < self.minority_weight < math.inf:
            raise IsthmusError(f"objective.minority_weight is {self.minority_weight}; it must be a positive number.")

    def open(self, site: Site) -> LiveObjective:
        """The live objective of one host; here silos add up how many training labels of each class they have."""
        return LiveObjective(self, site)


@dataclass(frozen=True)
class NodeLosses:
    """Losses of single nodes beside those of seeds: stack rows ``at`` (ascending), by silo from ``ptr``.

    A silo's loss is the mean over its seeds and the mean over these.
    """

    at: Tensor  # [n]
    ptr: tuple[int, ...]
    losses: Tensor  # [n]

    def total(self) -> Tensor:
        """The means of all silos, added up; a silo without such nodes adds nothing."""
        return (self.losses / self.counts().clamp(min=1).repeat_interleave(self.counts())).sum()

    def counts(self) -> Tensor:
        """How many such nodes each silo has: [my silos]."""
        return torch.tensor(self.ptr, device=self.at.device).diff()


class LiveObjective:
    """An objective at work on one host; ``state`` is checkpointed.

    ``minority`` is the class that is rarest among training seeds (one for each task); ``positive_weight``
    [my silos, tasks] is negatives / positives of each task, None where labels are classes.
    """

    def __init__(self, spec: Objective, site: Site) -> None:
        self.spec, self.state = spec, dict[str, Tensor]()
        if site.schema.task != "classes" and spec.minority_weight != 1:
            raise IsthmusError("objective.minority_weight is for classes; tasks weigh positives by themselves.")
        self.positive_weight, self.minority = _label_weights(site)

    def seed_losses(self, logits: Tensor, batch: Batch) -> Tensor:
        """The loss of each seed: [seeds]. Unknown labels of a task (-1) do not count."""
        y = batch.y
        if y.dim() == 1:
            each = F.cross_entropy(logits, y.long(), reduction="none")
            return torch.where(y == self.minority.to(y.device), self.spec.minority_weight * each, each)
        known = (y >= 0).to(logits.dtype)
        target = y.clamp(min=0).to(logits.dtype)
        each = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
        if self.positive_weight is not None:
            each = each * (1 + (self.positive_weight[batch.seed_rows.silo] - 1) * target)
        return (each * known).sum(1) / known.sum(1).clamp(min=1)

    def round_begin(self, learner: Learner) -> None:
        """Called when a round of local training starts."""

    def node_losses(self, batches: Sequence[Batch], active: Tensor) -> NodeLosses | None:
        """What single nodes add beside the losses of seeds, of silos that are ``active`` [my silos] in this step.

        None: nothing. Where gradients of single seeds are bounded, so are those of these nodes.
        """
        return None

    def figures(self) -> dict[str, Tensor]:
        """Numbers for the report, by name: one of each of my silos [my silos]; called when a run has ended."""
        return {}

    def penalty(self, learner: Learner, batches: Sequence[Batch], active: Tensor) -> Tensor | None:
        """A term that belongs to no node, summed over the silos that are ``active`` [my silos] in a step; or None."""
        return None


def _label_weights(site: Site) -> tuple[Tensor | None, Tensor]:
    """Weights of positive labels (None: labels are classes), and which class is rare: from training labels only."""
    width, pool = len(site.schema.labels), site.layout.pools[TRAIN]
    y = site.layout.labels[pool.index].cpu()
    parts = [y[a:b] for a, b in zip(pool.ptr, pool.ptr[1:], strict=False)]
    weight: Tensor | None = None
    if site.schema.task == "classes":
        counts = torch.stack([torch.bincount(part.long(), minlength=width) for part in parts]).double()
    else:
        counts = torch.stack([torch.stack([(part == 0).sum(0), (part == 1).sum(0)], 1) for part in parts]).double()
        weight = positive_weights(site.wire, counts, site.agreed).to(site.device, site.dtype)
    total = site.wire.total(Kind.STATISTICS, counts)
    return weight, total.flip(-1).argmin(-1).neg() + total.shape[-1] - 1  # of equals, the later class
