"""The handshake: what silos settle with each other before training, over the wire and without a global table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import SERVER_NAME, Kind
from isthmus.core.random import draw, stream
from isthmus.graph.graph import Schema, natural
from isthmus.graph.silo import Silo
from isthmus.wire.wire import Wire


@dataclass(frozen=True)
class HaloPlan:
    """For each (silo of mine, peer): which owned rows to send, and which halo rows the peer's rows fill.

    The lists mirror: ``send[i, j]`` on i's side and ``fill[j, i]`` on j's side name the same nodes in the same order.
    """

    send: dict[tuple[int, int], Tensor]  # (mine, peer) -> owned rows of mine that lie in the peer's halo
    fill: dict[tuple[int, int], Tensor]  # (mine, peer) -> halo rows of mine that the peer owns


def agree_schema(wire: Wire, silos: Sequence[Silo]) -> tuple[list[Silo], Schema]:
    """One schema for all, or an error that names the silos that differ; class names become the union of all.

    Returns my silos with the labels that all agreed on, and the schema, which a server without silos learns too.
    """
    heard: list[dict[str, object]] = []

    def judge(said: dict[int, Tensor]) -> Tensor:
        heard.extend(json.loads(_decode(words)) for words in said.values())
        return _encode(_judge(heard))

    verdict = json.loads(
        _decode(wire.settle(Kind.SCHEMA, {silo.number: _encode(_describe(silo)) for silo in silos}, judge))
    )
    if verdict["error"]:
        raise IsthmusError(verdict["error"])
    wire.ledger.names |= dict(enumerate(verdict["names"]))
    labels = tuple(verdict["labels"])
    agreed = [_relabel(silo, labels) for silo in silos]
    return agreed, agreed[0].schema if agreed else _schema(heard[0], labels)


def _schema(described: dict[str, object], labels: tuple[str, ...]) -> Schema:
    """A schema from a silo's description of it, with the labels of all."""
    known = {f.name: described[f.name] for f in fields(Schema)}
    plain = {name: tuple(value) if isinstance(value, list) else value for name, value in known.items()}
    return replace(Schema(**plain), labels=labels)  # type: ignore[arg-type]


def _describe(silo: Silo) -> dict[str, object]:
    ids = "integer" if np.issubdtype(silo.ids.dtype, np.integer) else "text"
    return {"name": silo.name, "ids": ids if silo.n else "", **asdict(silo.schema)}


def _judge(schemas: list[dict[str, object]]) -> dict[str, object]:
    """Compare every silo's schema with the first's; unlabelled and empty silos agree with any labels."""
    names = [str(s["name"]) for s in schemas]
    if SERVER_NAME in names:
        return {"error": f"A silo is called '{SERVER_NAME}', which is another party; rename it.", "labels": []}
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        return {"error": f"Two silos are called '{twice}'; silo names must differ.", "labels": []}
    first = schemas[0]
    for schema in schemas[1:]:
        for key in (
            "features",
            "feature_names",
            "edge_features",
            "edge_feature_names",
            "task",
            "target",
            "timed",
        ):
            if schema[key] != first[key]:
                return {"error": _differ(key, first, schema), "labels": []}
        if schema["ids"] and first["ids"] and schema["ids"] != first["ids"]:
            return {"error": _differ("ids", first, schema), "labels": []}
    labels: list[str] = []
    for schema in schemas:
        given = list(schema["labels"])  # type: ignore[call-overload]
        if first["task"] == "tasks" and labels and given and given != labels:
            return {"error": _differ("labels", first, schema), "labels": []}
        labels = labels if set(given) <= set(labels) else sorted({*labels, *given}, key=natural) if labels else given
    if not labels:
        return {
            "error": "No silo has a label, so there is nothing to learn; add a label column.",
            "labels": [],
        }
    return {"error": "", "labels": labels, "names": names}


def _differ(key: str, a: dict[str, object], b: dict[str, object]) -> str:
    each = ", ".join(f"{silo['name']} has {_short(silo[key])}" for silo in (a, b))
    return f"Silos disagree on {key.replace('_', ' ')}: {each}. One model needs one schema; make the columns equal."


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else text[:117] + "..."


def _relabel(silo: Silo, labels: tuple[str, ...]) -> Silo:
    schema: Schema = replace(silo.schema, labels=labels)
    if silo.schema.task != "classes" or silo.schema.labels == labels or not silo.schema.labels:
        return replace(silo, schema=schema)
    place = torch.tensor([labels.index(name) for name in silo.schema.labels] + [-1])  # -1 stays unknown
    edge_y = None if silo.edge_y is None else place[silo.edge_y.long()]
    return replace(silo, schema=schema, y=place[silo.y.long()], edge_y=edge_y)


def check_single_owner(wire: Wire, silos: Sequence[Silo], seed: int) -> None:
    """Every node has one owner: silos send keyed hashes of their ids to the server, which looks for repeats."""
    key = stream(seed, "ownership")
    said = {silo.number: draw(key, silo.keys[: silo.n]) for silo in silos}
    clash = wire.settle(Kind.IDS, said, _repeats)
    if len(clash):
        hashed, a, b = clash[0].tolist()
        name = next(
            (repr(s.ids[at].item()) for s in silos if (at := _where(draw(key, s.keys[: s.n]), hashed)) >= 0),
            "a node",
        )
        raise IsthmusError(
            f"{len(clash)} nodes have two owners: {wire.party(a)} and {wire.party(b)} both own {name}. "
            "Keep the node in one silo; the other lists it only as the far end of its edges."
        )


def _repeats(said: dict[int, Tensor]) -> Tensor:
    """Hashes that two silos sent, and who they are: [repeats, 3]."""
    hashes = torch.cat(list(said.values()))
    holder = torch.repeat_interleave(torch.tensor(list(said)), torch.tensor([len(each) for each in said.values()]))
    order = torch.argsort(hashes, stable=True)
    same = (hashes[order][1:] == hashes[order][:-1]).nonzero().flatten()
    return torch.stack([hashes[order][same], holder[order][same], holder[order][same + 1]], 1)


def _where(values: Tensor, wanted: int) -> int:
    hit = (values == wanted).nonzero()
    return int(hit[0]) if len(hit) else -1


def plan_halo(wire: Wire, silos: Sequence[Silo]) -> HaloPlan:
    """Each silo asks the owners for the ids it refers to; an id that its owner denies is an error."""
    fill = {(s.number, peer): rows for s in silos for peer, rows in _halo_by_owner(s, wire.silos).items()}
    by_number = {s.number: s for s in silos}
    asked = wire.post(Kind.IDS, {(i, j): by_number[i].keys[rows] for (i, j), rows in fill.items()})
    send: dict[tuple[int, int], Tensor] = {}
    denied: dict[tuple[int, int], Tensor] = {}
    for (peer, mine), keys in asked.items():
        owned = by_number[mine].keys[: by_number[mine].n]
        order = torch.argsort(owned)
        place = torch.searchsorted(owned[order], keys).clamp_(max=max(len(owned) - 1, 0))
        known = owned[order][place] == keys if len(owned) else torch.zeros(len(keys), dtype=torch.bool)
        send[mine, peer] = order[place][known] if len(owned) else place[:0]
        denied[mine, peer] = (~known).nonzero().flatten()
    replies = wire.post(Kind.IDS, denied)
    problem = ""
    for (owner, mine), wrong in replies.items():
        if len(wrong) and not problem:
            silo = by_number[mine]
            name = silo.halo_ids[int(fill[mine, owner][wrong[0]]) - silo.n]
            far = f"{len(wrong)} nodes of {wire.party(owner)} that it does not own"
            problem = f"{silo.name} has edges to {far}, for example {name!r}."
    _raise_together(wire, problem, "Correct the owner of the far end, or drop the edge.")
    return HaloPlan(send, fill)


def _halo_by_owner(silo: Silo, silos: int) -> dict[int, Tensor]:
    if len(silo.halo_owner) and not 0 <= int(silo.halo_owner.min()) <= int(silo.halo_owner.max()) < silos:
        raise IsthmusError(f"{silo.name} names an owner outside 0..{silos - 1} for a far end; there are {silos} silos.")
    return {
        int(peer): (silo.halo_owner == peer).nonzero().flatten() + silo.n
        for peer in torch.unique(silo.halo_owner).tolist()
    }


def _raise_together(wire: Wire, problem: str, advice: str) -> None:
    """Every host raises when one has a problem, so that nobody waits for a host that has stopped."""
    said = {silo: _encode_text(problem) for silo in wire.mine}
    first = wire.settle(Kind.SCHEMA, said, lambda all_: next((w for w in all_.values() if len(w)), _encode_text("")))
    verdict = _decode(first)
    if verdict:
        raise IsthmusError(f"{verdict} {advice}")


def compare_edges(wire: Wire, silos: Sequence[Silo]) -> tuple[list[str], list[Tensor]]:
    """Cross edges that only one of the two silos lists: sentences with counts and an example, and which ones.

    For each silo [edges] bool: listed by it alone.
    """
    by_number = {s.number: s for s in silos}
    mine = {(s.number, peer): edges for s in silos for peer, edges in cross_by_peer(s).items()}
    got = wire.post(Kind.IDS, {(i, j): by_number[i].edge_keys[edges] for (i, j), edges in mine.items()})
    notes = []
    marks = {s.number: torch.zeros(s.edge_index.shape[1], dtype=torch.bool) for s in silos}
    for i, j in sorted(set(mine) | {(b, a) for a, b in got}):
        silo, edges = by_number[i], mine.get((i, j), torch.zeros(0, dtype=torch.int64))
        theirs = got.get((j, i), torch.zeros(0, dtype=torch.int64))
        alone = edges[~torch.isin(silo.edge_keys[edges], theirs)]
        marks[i][alone] = True
        unheard = int((~torch.isin(theirs, silo.edge_keys[edges])).sum())
        if len(alone):
            notes.append(
                f"{silo.name} lists {len(alone)} edges that {wire.party(j)} does not list, "
                f"e.g. {_edge(silo, int(alone[0]))}."
            )
        if unheard and j not in by_number:
            notes.append(f"{wire.party(j)} lists {unheard} edges that {silo.name} does not list.")
    return notes, list(marks.values())


def cross_by_peer(silo: Silo) -> dict[int, Tensor]:
    """The cross edges of a silo by the silo at the far end."""
    edges = silo.crosses.nonzero().flatten()
    far = silo.edge_index[:, edges].max(0).values - silo.n
    owner = silo.halo_owner[far]
    return {int(peer): edges[owner == peer] for peer in torch.unique(owner).tolist()}


def _edge(silo: Silo, edge: int) -> str:
    ids = np.concatenate([silo.ids, silo.halo_ids])
    source, target = silo.edge_index[:, edge].tolist()
    return f"{ids[source]} -> {ids[target]}"


def _encode(value: dict[str, object]) -> Tensor:
    return _encode_text(json.dumps(value))


def _encode_text(text: str) -> Tensor:
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


def _decode(payload: Tensor) -> str:
    return bytes(payload.tolist()).decode()
