"""Gradients of single nodes for DP-SGD: bounded one by one, summed, perturbed, and handed to the optimisers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.engine.learner import Learned
from isthmus.engine.site import Site
from isthmus.graph.stack import Stack
from isthmus.methods.objective.base import LiveObjective, NodeLosses
from isthmus.protect.events import NoisyGradients
from isthmus.sample.batches import Seeds


def bounded_backward(
    site: Site,
    learned: Sequence[Learned],
    losses: Sequence[Tensor],
    dealt: Sequence[Seeds],
    counts: Tensor,
    nodes: NodeLosses | None = None,
) -> None:
    """Set the gradients of the models that learn to the mean over seeds, bounded and perturbed by ``protect``.

    ``losses`` holds for each pass the losses of its seeds, ``dealt`` these seeds; ``counts`` [my silos] are the seeds
    of all passes. What ``nodes`` add to the loss beside is bounded with it, node by node.
    """
    wire = site.wire
    parameters = [p for model in learned for p in model.sets.parameters.values()]
    sums = torch.zeros(len(counts), sum(p[0].numel() for p in parameters), dtype=losses[0].dtype, device=counts.device)
    added, ptr = added_by_node(site.stack, losses, dealt, counts, nodes)
    for gradients, silos in node_gradients(added, ptr, parameters):
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


def added_by_node(
    stack: Stack, losses: Sequence[Tensor], dealt: Sequence[Seeds], counts: Tensor, nodes: NodeLosses | None
) -> tuple[Tensor, tuple[int, ...]]:
    """What each node adds to its silo's loss, times the silo's seeds: [nodes], and where those of each silo begin.

    A seed v of a silo with n seeds and m further losses adds l_v + (n / m) l'_v, other nodes the second term alone.
    """
    rows, values = [seeds.index for seeds in dealt], list(losses)
    if nodes is not None:
        weight = counts / nodes.counts().clamp(min=1)
        rows, values = [*rows, nodes.at], [*values, weight.repeat_interleave(nodes.counts()) * nodes.losses]
    every, place = torch.cat(rows).unique(return_inverse=True)
    added = losses[0].new_zeros(len(every)).index_add(0, place, torch.cat(values))
    return added, stack.segments(every)


def node_gradients(losses: Tensor, ptr: Sequence[int], parameters: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield gradients [sets, numbers] of the first node of each silo, then of the second, ..., and the silos with one.

    ``ptr`` says where the losses of each silo begin. A silo's loss depends on its own parameter set alone, so that one
    backward pass serves a node of every silo.
    """
    first, counts = torch.tensor(ptr[:-1]), torch.tensor(ptr).diff()
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
