"""Boundaries: which rows, or cross edges, of this host's silos others hold; and routes for those that are asked."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from isthmus.federation.handshake import HaloPlan
from isthmus.graph.stack import Stack
from isthmus.wire.route import Asked, Boundary, Lot, Route
from isthmus.wire.wire import Wire


def build_boundary(wire: Wire, plan: HaloPlan, stack: Stack) -> Boundary:
    """The boundary of this host's nodes: the halo plans of its silos, end to end and grouped by host."""
    first = dict(zip(stack.silos, stack.ptr, strict=False))
    device = stack.keys.device
    asks = sorted(plan.fill, key=lambda pair: (wire.members.home(pair[1]), pair[1], pair[0]))  # (silo, owner)
    gives = sorted(plan.send, key=lambda pair: (wire.members.home(pair[1]), pair[0], pair[1]))  # (owner, silo)
    halo = _join([plan.fill[pair] + first[pair[0]] for pair in asks], device)
    place = torch.full((stack.rows,), -1, device=device)
    place[halo] = torch.arange(len(halo), device=device)
    return Boundary(
        halo=halo,
        halo_ptr=_by_host(
            wire, [(wire.members.home(owner), len(plan.fill[silo, owner])) for silo, owner in asks], device
        ),
        halo_pair=_pairs([(s, o, len(plan.fill[s, o])) for s, o in asks], wire.silos, device),
        served=_join([plan.send[pair] + first[pair[0]] for pair in gives], device),
        served_ptr=_by_host(
            wire, [(wire.members.home(peer), len(plan.send[owner, peer])) for owner, peer in gives], device
        ),
        served_pair=_pairs([(o, s, len(plan.send[o, s])) for o, s in gives], wire.silos, device),
        place=place,
    )


def build_edge_boundary(wire: Wire, boundary: Boundary, stack: Stack, alone: Tensor) -> Boundary:
    """The boundary of cross edges: ``halo`` lists those into my silos' nodes, ``served`` those into nodes of others.

    Both silos of a cross edge know it by one public key, so that lists in the order of keys agree without a message.
    Edges that a silo lists ``alone`` [edges] are not in them.
    """
    inward, outward = (
        (stack.owned[stack.ends[to]] & ~stack.owned[stack.ends[1 - to]] & ~alone).nonzero().flatten() for to in (1, 0)
    )
    asks = boundary.halo_pair[boundary.place[stack.ends[0][inward]]]  # by (silo, owner) of the far source
    gives = boundary.halo_pair[boundary.place[stack.ends[1][outward]]]  # by (silo, owner of the far target)
    silos = wire.silos
    mirrored = asks % silos * silos + asks // silos  # ordered by the owner of the source, as the owner orders them
    asked = _ordered(inward, mirrored, stack.edge_keys)
    given = _ordered(outward, gives, stack.edge_keys)
    place = torch.full((stack.ends.shape[1],), -1, device=inward.device)
    homes = torch.tensor([wire.members.home(silo) for silo in range(silos)], device=inward.device)
    by_owner, by_asker = homes[asks[asked] % silos], homes[gives[given] % silos]
    asked, given = asked[torch.argsort(by_owner, stable=True)], given[torch.argsort(by_asker, stable=True)]
    place[inward[asked]] = torch.arange(len(asked), device=inward.device)
    return Boundary(
        halo=inward[asked],
        halo_ptr=_pointers(by_owner, wire.hosts),
        halo_pair=asks[asked],
        served=outward[given],
        served_ptr=_pointers(by_asker, wire.hosts),
        served_pair=gives[given],
        place=place,
    )


def _ordered(edges: Tensor, pair: Tensor, keys: Tensor) -> Tensor:
    """Positions of edges in the order of (pair of silos, key)."""
    by_key = torch.argsort(keys[edges])
    return by_key[torch.argsort(pair[by_key], stable=True)]


def _pointers(host: Tensor, hosts: int) -> Tensor:
    counts = torch.bincount(host, minlength=hosts)
    return torch.cat((counts.new_zeros(1), counts.cumsum(0)))


def make_route(asks: Sequence[Asked], own: Tensor, every: Tensor, wire: Wire) -> Route:
    """The route from owned rows ``own`` to source rows ``every`` (both ascending stack rows) for what was asked."""
    fill = _lot([a.halo for a in asks], [a.halo_pair for a in asks], [a.halo_splits for a in asks], every, wire)
    send = _lot([a.served for a in asks], [a.served_pair for a in asks], [a.served_splits for a in asks], own, wire)
    return Route(len(every), torch.searchsorted(every, own), send, fill)


def _lot(rows: list[Tensor], pairs: list[Tensor], splits: list[list[int]], among: Tensor, wire: Wire) -> Lot:
    """The rows that were asked for at several hops, as one lot grouped by host; both sides keep the order of hops."""
    sizes = torch.tensor(splits, dtype=torch.int64).reshape(-1, wire.hosts)
    host = torch.arange(wire.hosts).repeat(len(sizes)).repeat_interleave(sizes.flatten()).to(among.device)
    order = torch.argsort(host, stable=True)
    row = torch.cat([*rows, among[:0]])[order]
    at = torch.searchsorted(among, row)
    return Lot(at, row, torch.cat([*pairs, among[:0]])[order], sizes.sum(0).tolist(), wire.silos)


def _pairs(triples: list[tuple[int, int, int]], silos: int, device: torch.device) -> Tensor:
    codes = torch.tensor([sender * silos + receiver for sender, receiver, _ in triples], dtype=torch.int64)
    return codes.repeat_interleave(torch.tensor([size for *_, size in triples], dtype=torch.int64)).to(device)


def _join(parts: list[Tensor], device: torch.device) -> Tensor:
    return torch.cat([*parts, torch.zeros(0, dtype=torch.int64)]).to(device)


def _by_host(wire: Wire, sizes: list[tuple[int, int]], device: torch.device) -> Tensor:
    count = [0] * (wire.hosts + 1)
    for host, size in sizes:
        count[host + 1] += size
    return torch.tensor(count).cumsum(0).to(device)
