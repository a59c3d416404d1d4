"""Where everything lies on this host: the stack of its silos, their boundary, and the seeds of every split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.core.name_lists import some_of
from isthmus.federation.boundary import build_boundary
from isthmus.federation.federation import Federation
from isthmus.graph.graph import SPLIT_NAMES, TEST, TRAIN, VALID, labelled
from isthmus.graph.silo import BY_BOTH, BY_SOURCE, Silo
from isthmus.graph.stack import Stack, build_stack
from isthmus.sample.order import Joint, Local, Pool
from isthmus.wire.route import Boundary

SPLITS = (TRAIN, VALID, TEST)


@dataclass(frozen=True)
class Layout:
    """One view of the silos of this host (see ``graph/stack.py``), and which of its nodes or edges carry labels.

    ``order`` is the rule by which seeds are dealt to steps.
    """

    federation: Federation
    view: str
    stack: Stack
    labels: Tensor  # of rows, or of edges where these carry the labels
    pools: Mapping[int, Pool]  # by split
    order: Local | Joint

    @cached_property
    def boundary(self) -> Boundary:
        """Which rows of this host's silos other silos hold, and which rows of other silos they hold."""
        return build_boundary(self.federation.wire, self.federation.plan, self.stack)

    @cached_property
    def edge_time(self) -> Tensor | None:
        """The time of every edge of the stack, as the data has it: [edges]; None where it has none."""
        parts = [silo.edge_time for silo in self.federation.silos]
        if not self.federation.schema.timed or any(part is None for part in parts):
            return None
        kept = [~silo.crosses if self.view == "drop" else slice(None) for silo in self.federation.silos]
        times = [part[k] for part, k in zip(parts, kept, strict=True) if part is not None]
        return torch.cat([*times, torch.zeros(0, dtype=torch.int64)])

    @property
    def learn(self) -> Tensor:
        """Which silos of the federation have something to learn from: [silos] bool."""
        return self.pools[TRAIN].counts > 0

    def steps_per_epoch(self, size: int) -> int:
        """How many batches of ``size`` seeds an epoch has (0: one batch of all)."""
        return len(self.order.seeds_per_step(self.pools[TRAIN], size)) if size else 1


def lay_out(
    federation: Federation,
    view: str,
    order: Local | Joint,
    doubles: bool,
    device: torch.device,
    dtype: torch.dtype,
    ports: bool = False,
) -> Layout:
    """Stack my silos in a view, and find the seeds of every split.

    ``doubles``: both silos of a labelled cross edge learn from it, each by half. ``ports``: the model reads them.
    """
    stack = build_stack(federation.silos, view, dtype, federation.schema, ports).to(device)
    labels = stack.y if federation.schema.target == "node" else stack.edge_y
    assert labels is not None
    pools = {split: _pool(federation, stack, labels, split, doubles and split == TRAIN, dtype) for split in SPLITS}
    return Layout(federation, view, stack, labels, pools, order)


def _pool(federation: Federation, stack: Stack, labels: Tensor, split: int, double: bool, dtype: torch.dtype) -> Pool:
    """Labelled, owned seeds of a split.

    An edge is a seed of its target's owner, or of its source's where that one alone has the label; ``double``: of both,
    where both have it.
    """
    known, share = labelled(labels), None
    if federation.schema.target == "node":
        index = ((stack.split == split) & known & stack.owned).nonzero().flatten()
        at, keys = index, stack.keys
    else:
        assert stack.edge_split is not None
        every = torch.arange(len(known), device=known.device)
        mine = stack.owned[stack.ends].any(0) if double else stack.owned[stack.seed_end(every)]
        index = ((stack.edge_split == split) & known & mine).nonzero().flatten()
        at, keys = stack.ends[1][index], stack.edge_keys
        share = _shares(stack, index, dtype) if double else None
    held = torch.bincount(stack.silo_of(at), minlength=len(stack.ptr) - 1).cpu()
    counts = federation.wire.share(Kind.STATISTICS, held)
    return Pool(index, keys[index], (0, *held.cumsum(0).tolist()), counts, share)


def _shares(stack: Stack, edges: Tensor, dtype: torch.dtype) -> Tensor:
    """What each of ``edges`` counts in its silo's loss: 1/2 for a cross edge whose label both silos have, else 1."""
    crosses = ~stack.owned[stack.ends[:, edges]].all(0)
    both = crosses if stack.edge_teacher is None else crosses & (stack.edge_teacher[edges] == BY_BOTH)
    return torch.where(both, 0.5, 1.0).to(dtype)


def labels_taught(silos: Sequence[Silo], split: int) -> int:
    """How many labelled edges of a split these silos teach, those that lead to another silo included."""
    found = 0
    for silo in silos:
        assert silo.edge_y is not None and silo.edge_split is not None
        end = silo.edge_index[1]
        if silo.edge_teacher is not None:
            end = torch.where(silo.edge_teacher == BY_SOURCE, silo.edge_index[0], end)
        found += int((labelled(silo.edge_y) & (silo.edge_split == split) & (end < silo.n)).sum())
    return found


def _note_unlearnt(layout: Layout) -> None:
    """Count in a note the labelled edges of this host's silos that a layout without far ends cannot learn from."""
    federation, here = layout.federation, len(layout.pools[TRAIN].index)
    if federation.schema.target != "edge" or here >= (there := labels_taught(federation.silos, TRAIN)):
        return
    federation.note(
        f"{here:,} of {there:,} labelled train edges were learnt from: the others lead to another silo, of whose nodes "
        "this method reads nothing."
    )


def check_seeds(layout: Layout) -> None:
    """Refuse a federation with nothing to learn from; note silos, and edges, that cannot be learnt from or scored."""
    _note_unlearnt(layout)
    federation, wire = layout.federation, layout.federation.wire
    if not bool(layout.learn.any()):
        raise IsthmusError("No silo has a labelled training node; set 'split' to 'train' for some labelled nodes.")
    for split in SPLITS:
        empty = [i for i, count in enumerate(layout.pools[split].counts.tolist()) if not count]
        if empty:
            nobody = len(empty) == wire.silos
            who = "No silo" if nobody else some_of([wire.party(i) for i in empty])
            verb = "has" if len(empty) == 1 or nobody else "have"
            what = f"{'any' if nobody else 'no'} labelled {SPLIT_NAMES[split]} {federation.schema.target}s"
            federation.note(f"{who} {verb} {what}.")
