"""Aggregates of messages whose parts merge, so that silos can aggregate their own edges and join the results."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from isthmus.core.errors import IsthmusError
from isthmus.kernels import compiled
from isthmus.kernels.messages import Messages
from isthmus.nn.block import Block
from isthmus.nn.fused import fused_moments
from isthmus.nn.maps import Lookup, gather, gather_targets, sum_edges, sum_rows

State = dict[str, Tensor]  # the parts of an unfinished aggregate: each [targets, d], or [targets, 1] for counts
JOINS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"sum": torch.add, "amax": torch.maximum, "amin": torch.minimum}


@dataclass(frozen=True)
class Message:
    """The message of edge e: ``weight[e] * rows[src(e)] + values[e] + lookup[e]``; each part may be absent.

    A layer that maps rows (or tables) before they are gathered gives them as ``rows`` (or ``lookup``); then an
    aggregate need not make an [E, d] matrix.
    """

    rows: Tensor | None = None  # [sources, d]
    values: Tensor | None = None  # [E, d]
    weight: Tensor | None = None  # [E]
    lookup: Lookup | None = None

    def __post_init__(self) -> None:
        if self.rows is None and (self.values is None or self.weight is not None):
            raise IsthmusError("A message needs rows or values, and a weight only has meaning with rows.")

    def each(self, block: Block) -> Tensor:
        """The messages one by one: [E, d]."""
        if self.rows is None:
            assert self.values is not None
            out = self.values
        else:
            out = gather(self.rows, block)
            out = out if self.weight is None else self.weight[:, None] * out
            out = out if self.values is None else out + self.values
        return out if self.lookup is None else out + self.lookup.each()

    def total(self, block: Block) -> Tensor:
        """The sum of the messages at each target: [targets, d]."""
        if self.rows is None or self.lookup is not None or (self.weight is not None and self.weight.requires_grad):
            return sum_edges(self.each(block), block)
        out = sum_rows(self.rows, block, self.weight)
        return out if self.values is None else out + sum_edges(self.values, block)


@dataclass(frozen=True)
class Aggregate:
    """The finished aggregate of each target's messages."""

    value: Tensor  # what the monoid's finish gives: [targets, d] for all but moments
    count: Tensor | None = None  # [targets, 1] edges, here and beyond, where the monoid counts them


class Monoid(ABC):
    """An aggregate with ``reduce(all edges) = merge(reduce(some), reduce(the others))`` for every split of the edges.

    ``joins`` says how each part of two states is merged: ``sum``, ``amax`` or ``amin``.
    """

    joins: ClassVar[dict[str, str]]

    @abstractmethod
    def reduce(self, message: Message, block: Block) -> State:
        """The state of a block's messages; a target without edges has the neutral element."""

    def merge(self, a: State, b: State) -> State:
        """The state of two disjoint sets of edges, from the state of each."""
        return {name: JOINS[how](a[name], b[name]) for name, how in self.joins.items()}

    @abstractmethod
    def finish(self, state: State) -> Tensor:
        """The aggregate that a layer reads, from a state; 0 for a target without edges."""

    def collect(
        self, message: Message, block: Block, beyond: State | None = None, common: Tensor | None = None
    ) -> Aggregate:
        """The finished aggregate of a block's messages, merged with the state ``beyond`` of other silos' edges.

        ``common`` [targets, d] is added to every message of a target, here and beyond.
        """
        if common is not None:
            raise IsthmusError(f"{type(self).__name__} takes no part that is common to all messages of a target.")
        state = self.reduce(message, block)
        if beyond is not None:
            state = self.merge(state, beyond)
        return Aggregate(self.finish(state), state.get("count"))


class Sum(Monoid):
    """Sum of the messages."""

    joins: ClassVar[dict[str, str]] = {"sum": "sum"}

    def reduce(self, message: Message, block: Block) -> State:
        """The sum at each target."""
        return {"sum": message.total(block)}

    def finish(self, state: State) -> Tensor:
        """The sum: [targets, d]."""
        return state["sum"]


class Mean(Sum):
    """Mean of the messages, kept as sum and count."""

    joins: ClassVar[dict[str, str]] = {"sum": "sum", "count": "sum"}

    def reduce(self, message: Message, block: Block) -> State:
        """The sum and the count at each target."""
        total = message.total(block)
        return {"sum": total, "count": _count(block, total)}

    def finish(self, state: State) -> Tensor:
        """The mean: [targets, d]."""
        return state["sum"] / state["count"].clamp(min=1)


class Max(Monoid):
    """Largest message, entry by entry; -inf is its neutral element."""

    joins: ClassVar[dict[str, str]] = {"max": "amax"}

    def reduce(self, message: Message, block: Block) -> State:
        """The maximum at each target."""
        return {"max": _extreme(message.each(block), block, "amax")}

    def finish(self, state: State) -> Tensor:
        """The maximum: [targets, d]."""
        return state["max"].masked_fill(state["max"] == -math.inf, 0.0)


class Moments(Monoid):
    """Count, sum, sum of squares, minimum and maximum: everything that mean, deviation and extremes need.

    Finished: [groups, targets, 4, d / groups], the mean, minimum, maximum and deviation of each group of channels.
    """

    joins: ClassVar[dict[str, str]] = {"count": "sum", "sum": "sum", "square": "sum", "min": "amin", "max": "amax"}

    def __init__(self, groups: int = 1) -> None:
        self.groups = groups

    def collect(
        self, message: Message, block: Block, beyond: State | None = None, common: Tensor | None = None
    ) -> Aggregate:
        """The finished aggregate; by one compiled pass over the edges where a kernel exists and nothing is merged."""
        rows, lookup = message.rows, message.lookup
        kernels = None if rows is None else compiled(rows.device, rows.dtype)
        if rows is None or kernels is None or message.weight is not None or beyond is not None:
            return self._shifted(super().collect(message, block, beyond), common)
        table, at = (None, None) if lookup is None else (lookup.table, lookup.at)
        of = Messages(rows, block.src, block.dst_ptr, self.groups, message.values, table, at, common)
        return Aggregate(fused_moments(of, block, kernels), _count(block, rows))

    def _shifted(self, found: Aggregate, common: Tensor | None) -> Aggregate:
        """The aggregate after ``common`` is added to all messages, which moves all but the deviation."""
        if common is None or found.count is None:
            return found
        shape = len(common), self.groups, 1, common.shape[1] // self.groups
        shift = (common * (found.count > 0)).view(shape).transpose(0, 1)
        three, std = found.value.split((3, 1), 2)
        return Aggregate(torch.cat((three + shift, std), 2), found.count)

    def reduce(self, message: Message, block: Block) -> State:
        """The five aggregates at each target, from one [E, d] matrix."""
        each = message.each(block)
        return {
            "count": _count(block, each),
            "sum": sum_edges(each, block),
            "square": sum_edges(each * each, block),
            "min": _extreme(each, block, "amin"),
            "max": _extreme(each, block, "amax"),
        }

    def finish(self, state: State) -> Tensor:
        """Mean, minimum, maximum and deviation: [groups, targets, 4, d / groups]; a variance under 1e-5 counts as 0."""
        count = state["count"].clamp(min=1)
        mean = state["sum"] / count
        # The root has no gradient at 0; PyG's StdAggregation has the same floor, and returns 0 below it.
        std = (state["square"] / count - mean * mean).clamp(min=1e-5).sqrt()
        std = std.masked_fill(std <= math.sqrt(1e-5), 0.0)
        alone = state["count"] == 0
        low, high = state["min"].masked_fill(alone, 0.0), state["max"].masked_fill(alone, 0.0)
        shape = len(mean), 4, self.groups, mean.shape[1] // self.groups
        return torch.stack((mean, low, high, std), 1).view(shape).movedim(2, 0)


SUM, MEAN, MAX, MOMENTS = Sum(), Mean(), Max(), Moments()


def _count(block: Block, like: Tensor) -> Tensor:
    """The number of edges of each target, in the number format of ``like``: [targets, 1]."""
    key = f"count {like.dtype}"
    if key not in block.cache:
        block.cache[key] = block.count.to(like.dtype)[:, None]
    found: Tensor = block.cache[key]
    return found


class _Extreme(torch.autograd.Function):
    """The largest or smallest value at each target; tied edges share the gradient equally.

    Equal shares do not depend on the order of the edges, hence not on which silo owns which node. Torch's own backward
    gives equal numbers but is more than ten times slower on a CPU.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, block: Block, reduce: str) -> Tensor:
        ctx.block = block
        shape = (len(block.targets), values.shape[1])
        out = values.new_full(shape, -math.inf if reduce == "amax" else math.inf)
        out.scatter_reduce_(0, block.dst[:, None].expand_as(values), values, reduce)
        ctx.save_for_backward(values, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        values, out = ctx.saved_tensors
        reached = (values == gather_targets(out, ctx.block)).to(grad.dtype)
        share = grad / sum_edges(reached, ctx.block).clamp(min=1)
        return reached * gather_targets(share, ctx.block), None, None


def _extreme(values: Tensor, block: Block, reduce: str) -> Tensor:
    out: Tensor = _Extreme.apply(values, block, reduce)  # type: ignore[no-untyped-call]
    return out


def largest(values: Tensor, block: Block) -> Tensor:
    """The maximum of [E, d] at each target, -inf where there is no edge."""
    return _extreme(values, block, "amax")
