"""Gradients of single seeds for DP-SGD: bounded one by one, summed, perturbed, and handed to the optimisers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.engine.learner import Learned
from isthmus.engine.site import Site
from isthmus.methods.objective.base import LiveObjective
from isthmus.protect.events import NoisyGradients
from isthmus.sample.batches import Seeds


def bounded_backward(
    site: Site, learned: Sequence[Learned], losses: Sequence[Tensor], dealt: Sequence[Seeds], counts: Tensor
) -> None:
    """Set the gradients of the models that learn to the mean over seeds, bounded and perturbed by ``protect``.

    ``losses`` holds for each pass the losses of its seeds, ``dealt`` these seeds; ``counts`` [my silos] are the seeds
    of all passes.
    """
    wire = site.wire
    parameters = [p for model in learned for p in model.sets.parameters.values()]
    sums = torch.zeros(len(counts), sum(p[0].numel() for p in parameters), dtype=losses[0].dtype, device=counts.device)
    for each, seeds in zip(losses, dealt, strict=True):
        for gradients, silos in seed_gradients(each, seeds, parameters):
            sums[silos] += wire.protect.bound_each(gradients[silos])
    active = (counts > 0).nonzero().flatten()
    mine = [wire.mine[place] for place in active.tolist()] if wire.mine else []
    rows, events = wire.protect.perturb(sums[active], mine, wire.noise)
    means = torch.zeros_like(sums).index_copy_(0, active, rows / counts[active, None])
    for model, part in zip(learned, means.split([_size(m.sets.parameters) for m in learned], 1), strict=True):
        model.sets.load_gradients(part)
    index, held = torch.cat([seeds.index for seeds in dealt]), torch.stack([seeds.counts() for seeds in dealt]).sum(0)
    for event in events:
        if isinstance(event, NoisyGradients):
            site.federation.learnt.record(site.stack.ptr, index, held, event)


def seed_gradients(losses: Tensor, seeds: Seeds, parameters: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield gradients [sets, numbers] of the first seed of each silo, then of the second, ..., and the silos with one.

    A silo's loss depends on its own parameter set alone, so that one backward pass serves a seed of every silo.
    """
    first, counts = torch.tensor(seeds.ptr[:-1]), seeds.counts()
    for place in range(int(counts.max()) if len(counts) else 0):
        silos = (counts > place).nonzero().flatten()
        at = (first[silos] + place).to(losses.device)
        found = torch.autograd.grad(losses[at].sum(), parameters, retain_graph=True, allow_unused=True)
        flat = [
            (torch.zeros_like(p) if g is None else g).reshape(len(p), -1)
            for p, g in zip(parameters, found, strict=True)
        ]
        yield torch.cat(flat, 1), silos.to(losses.device)


def check_bounded(site: Site, objective: LiveObjective) -> None:
    """Refuse tasks, losses and models under which a label changes more than the gradient of its own seed."""
    if site.schema.target == "edge":
        raise IsthmusError("protect=dp-sgd bounds what the label of a node moves, but labels lie on edges here.")
    if objective.positive_weight is not None or objective.spec.minority_weight != 1:
        raise IsthmusError(
            "protect=dp-sgd bounds what one label moves, but weights of rare labels follow from all labels; use "
            "classes, and objective.minority_weight=1."
        )
    if site.model.norm == "batch":
        raise IsthmusError(
            "protect=dp-sgd needs gradients of single seeds, but batch normalisation mixes them; use model.norm=layer."
        )


def _size(parameters: dict[str, torch.nn.Parameter]) -> int:
    return sum(p[0].numel() for p in parameters.values())
