"""Statistics that a centralised run would compute on the whole graph: agreed through the server, or each silo's own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from isthmus.core.kinds import Kind
from isthmus.federation.cross_edges import tell_other_ends
from isthmus.graph.silo import Silo
from isthmus.graph.stack import Stack
from isthmus.wire.route import Boundary
from isthmus.wire.wire import Wire


def summed(wire: Wire, x: Tensor, agreed: bool) -> Tensor:
    """Sums ``x`` [mine, ...] of each silo; where ``agreed``, each row is the sum over all silos of the federation."""
    return wire.total(Kind.STATISTICS, x).expand_as(x) if agreed else x


def mean_log_degree(wire: Wire, stack: Stack, agreed: bool) -> tuple[Tensor, Tensor]:
    """Mean of log(degree + 1) over owned nodes, incoming and outgoing: [mine] each (PNA's constant)."""
    sums = []
    for degree in (stack.in_degree, stack.out_degree):
        log = torch.log(degree.double() + 1) * stack.owned
        sums.append(_by_silo(stack, log))
    counts = _by_silo(stack, stack.owned.double())
    total = summed(wire, torch.stack([*sums, counts], 1), agreed)
    return total[:, 0] / total[:, 2].clamp(min=1), total[:, 1] / total[:, 2].clamp(min=1)


def positive_weights(wire: Wire, counts: Tensor, agreed: bool) -> Tensor:
    """Negatives / positives of each task over training seeds, from [mine, T, 2] counts of no and yes: [mine, T].

    Where all labels of a task are equal the weight is 1.
    """
    total = summed(wire, counts, agreed)
    return torch.where((total > 0).all(-1), total[..., 0] / total[..., 1].clamp(min=1), 1.0)


def _by_silo(stack: Stack, values: Tensor) -> Tensor:
    """The sum of values [rows] over each silo: [mine]."""
    return torch.stack([values[a:b].sum() for a, b in zip(stack.ptr, stack.ptr[1:], strict=False)])


def agree_far_degrees(wire: Wire, stack: Stack, boundary: Boundary) -> None:
    """Owners tell the degrees of boundary nodes to silos that hold them as halo, which write them into their stack."""
    asked = wire.ask(boundary, boundary.halo)
    leaving, arriving = asked.lots(wire.silos)
    for degree in (stack.in_degree, stack.out_degree):
        degree[asked.halo] = wire.move(Kind.STATISTICS, degree[asked.served], leaving, arriving)


def agree_far_ports(wire: Wire, silos: Sequence[Silo], alone: Tensor, stack: Stack) -> None:
    """The two silos of a cross edge tell each other its ports, and write them into their stack.

    The owner of the target knows the in-port, the owner of the source the out-port. Edges that a silo lists ``alone``
    are left out.
    """
    inward = [silo.edge_index[1] < silo.n for silo in silos]  # my end is the target
    mine = [torch.where(to, silo.ports[:, 0], silo.ports[:, 1]) for silo, to in zip(silos, inward, strict=True)]
    far = torch.cat([to.long() for to in inward]) if inward else torch.zeros(0, dtype=torch.int64)
    assert stack.ports is not None
    device = stack.ports.device
    for _, edges, theirs in tell_other_ends(wire, Kind.PORTS, silos, mine, alone):
        stack.ports[edges.to(device), far[edges].to(device)] = theirs.to(device)
