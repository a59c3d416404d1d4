"""The handshake, once the schema is agreed: who owns each node, and which rows each silo will send to whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.core.random import draw, stream
from isthmus.federation.cross_edges import check_keys, check_owners, grouped_by
from isthmus.federation.text_on_wire import raise_together
from isthmus.graph.silo import Silo
from isthmus.wire.wire import Wire


@dataclass(frozen=True)
class HaloPlan:
    """For each (silo of mine, peer): which owned rows to send, and which halo rows the peer's rows fill.

    ``send[i, j]`` on silo i's side and ``fill[j, i]`` on silo j's side name the same nodes in the same order.
    """

    send: dict[tuple[int, int], Tensor]  # (mine, peer) -> owned rows of mine that lie in the peer's halo
    fill: dict[tuple[int, int], Tensor]  # (mine, peer) -> halo rows of mine that the peer owns


def check_single_owner(wire: Wire, silos: Sequence[Silo], seed: int) -> None:
    """Raise where a node has two owners: silos send keyed hashes of ids to the server, which looks for repeats."""
    key = stream(seed, "ownership")
    said = {silo.number: draw(key, silo.keys[: silo.n]) for silo in silos}

    def judge(told: dict[int, Tensor]) -> Tensor:
        for silo, hashes in told.items():
            check_keys(hashes, wire.party(silo))
        return _repeats(told)

    clash = wire.settle(Kind.IDS, said, judge)
    if len(clash):
        hashed, a, b = clash[0].tolist()
        name = next(
            (repr(s.ids[at].item()) for s in silos if (at := _place_of(draw(key, s.keys[: s.n]), hashed)) >= 0),
            "a node",
        )
        raise IsthmusError(
            f"{len(clash)} nodes have two owners: {wire.party(a)} and {wire.party(b)} both own {name}. "
            "Keep the node in one silo; the other lists it only as the far end of its edges."
        )


def _repeats(said: dict[int, Tensor]) -> Tensor:
    """Hashes that two silos sent, each with the numbers of the two: [repeats, 3]."""
    hashes = torch.cat(list(said.values()))
    holder = torch.repeat_interleave(torch.tensor(list(said)), torch.tensor([len(each) for each in said.values()]))
    order = torch.argsort(hashes, stable=True)
    same = (hashes[order][1:] == hashes[order][:-1]).nonzero().flatten()
    return torch.stack([hashes[order][same], holder[order][same], holder[order][same + 1]], 1)


def _place_of(values: Tensor, wanted: int) -> int:
    hit = (values == wanted).nonzero()
    return int(hit[0]) if len(hit) else -1


def plan_halo(wire: Wire, silos: Sequence[Silo], claimed: bool = False) -> HaloPlan:
    """The halo plan: each silo asks the owners for the nodes at the far ends of its edges, by key.

    An owner grants nodes at the end of edges that both list, and all hosts raise if it is asked for others. With
    ``claimed`` it grants any node that it owns, and all hosts raise if it is asked for one that it does not own.
    """
    fill = {(s.number, peer): rows for s in silos for peer, rows in _halo_by_owner(s, wire.silos).items()}
    by_number = {s.number: s for s in silos}
    asked = wire.post_together(Kind.IDS, {(i, j): by_number[i].keys[rows] for (i, j), rows in fill.items()})
    by_owner: dict[int, dict[int, Tensor]] = {silo.number: {} for silo in silos}
    for (peer, mine), keys in asked.items():
        check_keys(keys, wire.party(peer))
        by_owner[mine][peer] = keys
    send: dict[tuple[int, int], Tensor] = {}
    denied: dict[tuple[int, int], Tensor] = {}
    for silo in silos:
        for peer, (rows, wrong) in _look_up(silo, by_owner[silo.number], claimed).items():
            send[silo.number, peer], denied[silo.number, peer] = rows, wrong
    problem = _error_if_denied(wire, by_number, fill, denied) if claimed else _error_if_uninvited(wire, denied)
    raise_together(wire, problem)
    return HaloPlan(send, fill)


def _look_up(silo: Silo, asked: Mapping[int, Tensor], claimed: bool) -> dict[int, tuple[Tensor, Tensor]]:
    """{peer: (rows with the keys that it asks for, places of keys that it is denied)}.

    A peer is granted nodes at the end of common edges; where edges are ``claimed``, any node of this silo.
    """
    keys = torch.cat([*asked.values(), torch.zeros(0, dtype=torch.int64)])
    lengths = [len(each) for each in asked.values()]
    owned, order = silo.keys[: silo.n].sort()
    place = torch.searchsorted(owned, keys).clamp_(max=max(silo.n - 1, 0))
    known = owned[place] == keys if silo.n else torch.zeros(len(keys), dtype=torch.bool)
    rows = order[place] if silo.n else place
    if silo.n and not claimed:
        known &= _near(silo, list(asked)).take(_numbered(lengths) * silo.n + rows)
    found = zip(rows.split(lengths), known.split(lengths), strict=True)
    each = [(rows[known], (~known).nonzero().flatten()) for rows, known in found]
    return dict(zip(asked, each, strict=True))


def _near(silo: Silo, peers: list[int]) -> Tensor:
    """For each of some peers which nodes of a silo are the near end of an edge to it: [peers, n] bool."""
    near = torch.zeros(len(peers), silo.n, dtype=torch.bool)
    for place, peer in enumerate(peers):
        if peer in silo.cross_by_peer:
            source, target = (end.index_select(0, silo.cross_by_peer[peer].edges) for end in silo.edge_index)
            near[place].index_fill_(0, torch.minimum(source, target), True)
    return near


def _numbered(lengths: list[int]) -> Tensor:
    """Which of several lists, of these lengths, each place of all lists end to end is in."""
    return torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths, dtype=torch.int64))


def _error_if_uninvited(wire: Wire, denied: Mapping[tuple[int, int], Tensor]) -> str:
    """An error that names the first silo which asked for nodes at the end of no common edge; empty if none did."""
    for (mine, peer), wrong in denied.items():
        if len(wrong):
            return (
                f"{wire.party(peer)} asked {wire.party(mine)} for {len(wrong)} nodes at the end of no edge that both "
                "list; is it a member of this version?"
            )
    return ""


def _error_if_denied(
    wire: Wire,
    by_number: Mapping[int, Silo],
    fill: Mapping[tuple[int, int], Tensor],
    denied: Mapping[tuple[int, int], Tensor],
) -> str:
    """Owners tell peers which nodes they do not own; returns an error on the first that my silos asked for, or ""."""
    for (owner, mine), wrong in wire.post_together(Kind.IDS, denied).items():
        if len(wrong):
            silo = by_number[mine]
            name = silo.halo_ids[int(fill[mine, owner][wrong[0]]) - silo.n]
            return (
                f"{silo.name} has edges to {len(wrong)} nodes of {wire.party(owner)} that it does not own, for example "
                f"{name!r}. Correct the owner of the far end, or drop the edge."
            )
    return ""


def _halo_by_owner(silo: Silo, silos: int) -> dict[int, Tensor]:
    """The halo rows of a silo, ascending, by their owner."""
    check_owners(silo, silos)
    return {peer: places + silo.n for peer, places in grouped_by(silo.halo_owner).items()}
