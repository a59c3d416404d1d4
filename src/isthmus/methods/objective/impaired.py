"""Graphs of which some nodes are hidden: their neighbours miss them, and a generator can learn what is missing."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.core.random import draw, stream
from isthmus.graph.stack import Adjacency, Stack
from isthmus.sample.neighbours import integer_runs


class Impaired:
    """A stack of which a share of each silo's rows is ``hidden`` [rows], with all edges of these.

    ``missing`` [rows] counts the hidden neighbours of visible rows. ``stack`` is what is left to be seen.
    """

    def __init__(self, stack: Stack, share: float, seed: int) -> None:
        self.hidden = hidden_rows(stack, share, seed)
        source, target = stack.ends
        lost = self.hidden[source] & ~self.hidden[target]
        self._lost: Adjacency = stack.incoming.only(lost)
        self.missing = self._lost.degree
        self.stack = stack.along(~self.hidden[stack.ends].any(0))

    def pairs(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Each of ``nodes`` (stack rows) with each of its hidden neighbours: places in ``nodes``, and stack rows."""
        degree = self.missing[nodes]
        at = integer_runs(self._lost.ptr[nodes], degree)
        each = torch.arange(len(nodes), device=nodes.device)
        return torch.repeat_interleave(each, degree, output_size=len(at)), self._lost.near[at]


def hidden_rows(stack: Stack, share: float, seed: int) -> Tensor:
    """Which rows are hidden: of each silo's, the share with the smallest hashes of their public ids; [rows] bool."""
    hidden = torch.zeros(stack.rows, dtype=torch.bool, device=stack.keys.device)
    drawn = draw(stream(seed, "hidden"), stack.keys)
    for a, b in zip(stack.ptr, stack.ptr[1:], strict=False):
        hidden[a + torch.argsort(drawn[a:b], stable=True)[: int(share * (b - a))]] = True
    return hidden
