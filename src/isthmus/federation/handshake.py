"""The handshake: before training, silos agree on a schema, on who owns each node, and on which rows each will send."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import BELOW, SERVER_NAME, Kind
from isthmus.core.random import draw, stream
from isthmus.federation.cross_edges import check_keys, check_owners, grouped_by
from isthmus.federation.encodings import (
    OF_NODES,
    TABLES,
    agree_columns,
    agree_fills,
    described_columns,
    is_told_columns,
    with_agreed_columns,
)
from isthmus.graph.encoding import Encoding, as_columns, feature_names, told_columns
from isthmus.graph.graph import Schema, natural, one_spelling, spelt_alike
from isthmus.graph.silo import Silo, changed
from isthmus.wire.wire import Wire


@dataclass(frozen=True)
class HaloPlan:
    """For each (silo of mine, peer): which owned rows to send, and which halo rows the peer's rows fill.

    ``send[i, j]`` on silo i's side and ``fill[j, i]`` on silo j's side name the same nodes in the same order.
    """

    send: dict[tuple[int, int], Tensor]  # (mine, peer) -> owned rows of mine that lie in the peer's halo
    fill: dict[tuple[int, int], Tensor]  # (mine, peer) -> halo rows of mine that the peer owns


@dataclass(frozen=True)
class Agreement:
    """My silos with the labels and features that all have, one schema, and the columns that features come from."""

    silos: list[Silo]
    schema: Schema
    columns: dict[str, Encoding]  # by table, of tables whose columns are not simply numbers


def agree_schema(wire: Wire, silos: Sequence[Silo]) -> tuple[list[Silo], Schema]:
    """My silos with the labels and features that all agreed on, and the schema."""
    agreed = agree_on_data(wire, silos)
    return agreed.silos, agreed.schema


def agree_on_data(wire: Wire, silos: Sequence[Silo], categories: int = 20, fills: bool = True) -> Agreement:
    """Agree on one schema, or raise with the names of silos that differ; class names become the union of all.

    Columns of words get a feature for each word that a silo has, up to ``categories`` of them, and gaps of numbers are
    filled with the mean of all silos where they agree on ``fills``, else with each one's own. A server without silos
    learns the schema too.
    """
    heard: list[dict[str, Any]] = []

    def judge(said: dict[int, Tensor]) -> Tensor:
        for number, words in said.items():
            told = _decoded_schema(words)
            if told is None:
                return _encode({"error": f"Silo {number} sent something else than its schema.", "labels": []})
            heard.append(told)
        return _encode(_judge(heard, categories))

    verdict = json.loads(
        _decode(wire.settle(Kind.SCHEMA, {silo.number: _encode(_describe(silo)) for silo in silos}, judge))
    )
    if verdict["error"]:
        raise IsthmusError(verdict["error"])
    wire.ledger.names |= dict(enumerate(verdict["names"]))
    columns = {table: verdict.get(table, []) for table in TABLES}
    alike = [with_agreed_columns(_relabel(silo, verdict), columns) for silo in silos]
    alike, known = agree_fills(wire, alike, columns, fills)
    schema = alike[0].schema if alike else _schema(heard[0], tuple(verdict["labels"]), columns)
    return Agreement(alike, schema, known)


def _decoded_schema(words: Tensor) -> dict[str, Any] | None:
    """Decode the description of a schema that a silo sent; None where it is not one."""
    try:
        told = json.loads(_decode(words)) if words.dtype == torch.uint8 and words.dim() == 1 else None
    except ValueError:
        told = None
    wanted = {"name", "ids", *(f.name for f in fields(Schema))}
    if not isinstance(told, dict) or set(told) - {*TABLES} != wanted or not isinstance(told["labels"], list):
        return None
    return told if all(is_told_columns(told[table]) for table in TABLES if table in told) else None


def _schema(described: Mapping[str, Any], labels: tuple[str, ...], columns: Mapping[str, Any]) -> Schema:
    """A schema from a silo's description of it, with the class names and the columns that all silos agreed on."""
    known = {f.name: described[f.name] for f in fields(Schema)}
    for table, names in TABLES.items():
        if columns[table]:
            known[names] = feature_names(as_columns(columns[table])) or (("one",) if table == OF_NODES else ())
            known[names.replace("_names", "s")] = len(known[names])
    plain = {name: tuple(value) if isinstance(value, list) else value for name, value in known.items()}
    return replace(Schema(**plain), labels=labels)  # type: ignore[arg-type]


def _describe(silo: Silo) -> dict[str, object]:
    ids = "integer" if np.issubdtype(silo.ids.dtype, np.integer) else "text"
    return {"name": silo.name, "ids": ids if silo.n else "", **asdict(silo.schema), **described_columns(silo)}


def _judge(schemas: list[dict[str, Any]], categories: int) -> dict[str, Any]:
    """The server's verdict on all schemas: errors in words, or else the class names, the silos' names and columns.

    Every schema is compared with the first; silos without labels or nodes agree with any labels.
    """
    names, first = [str(s["name"]) for s in schemas], schemas[0]
    errors = [*_ill_named(names), *_differences(schemas)]
    columns: dict[str, list[dict[str, Any]]] = {}
    for table in TABLES:
        error, agreed = agree_columns(schemas, table, categories)
        errors += [error] if error else []
        columns |= {table: told_columns(agreed)} if agreed else {}
    spelling = one_spelling(str(name) for schema in schemas for name in schema["labels"])
    each = [list(dict.fromkeys(spelling.get(name, name) for name in schema["labels"])) for schema in schemas]
    labels: list[str] = []
    for schema, given in zip(schemas, each, strict=True):
        if first["task"] == "tasks" and labels and given and given != labels:
            errors.append(_differ("labels", first, schema))
        labels = labels if set(given) <= set(labels) else sorted({*labels, *given}, key=natural) if labels else given
    errors += _unlearnable(labels, str(first["task"]))
    apart = _spelt_apart(schemas)
    errors += [apart] if apart else []
    if errors:
        return {"error": " ".join(dict.fromkeys(errors)), "labels": []}
    return {"error": "", "labels": labels, "names": names, **({"spelling": spelling} if spelling else {}), **columns}


def _ill_named(names: Sequence[str]) -> Iterator[str]:
    """Errors about names of silos that stand for another party, or for two silos."""
    if SERVER_NAME in names:
        yield f"A silo is called '{SERVER_NAME}', which is another party; rename it."
    below = next((name for name in names if name.startswith(BELOW)), None)
    if below is not None:
        yield f"A silo is called '{below}', which names devices in ledgers; rename it."
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        yield f"Two silos are called '{twice}'; silo names must differ."


def _differences(schemas: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Errors about silos whose schemas differ from that of the first one, one for each key."""
    first = schemas[0]
    encoded = {table for table in TABLES if any(table in schema for schema in schemas)}
    keys = ["task", "target", "timed"]
    for table, names in TABLES.items():
        keys += [] if table in encoded else [names.replace("_names", "s"), names]
    for schema in schemas[1:]:
        told = next((key for key in keys if schema[key] != first[key]), None)
        if told is not None:
            yield _differ(told, first, schema)
        if schema["ids"] and first["ids"] and schema["ids"] != first["ids"]:
            yield _differ("ids", first, schema)


def _unlearnable(labels: Sequence[str], task: str) -> Iterator[str]:
    """Errors about labels of which nothing can be learnt: there are none, or all are of one class."""
    if not labels:
        yield "No silo has a label, so there is nothing to learn; add a label column."
    elif len(labels) == 1 and task == "classes":
        yield (
            f"Every label of all silos is '{labels[0]}', and one class alone cannot be learnt; add labels of another "
            "class, or declare both as labels in silo.toml."
        )


def _spelt_apart(schemas: list[dict[str, object]]) -> str:
    """The error for a class that two silos spell in two ways; empty if there is none, or a silo has both as classes."""
    spelling: dict[str, tuple[str, object]] = {}
    for schema in schemas:
        given = list(schema["labels"])  # type: ignore[call-overload]
        if spelt_alike(given):
            return ""
        for name in given:
            first, silo = spelling.setdefault(name.strip().casefold(), (name, schema["name"]))
            if first != name:
                return (
                    f"Silos spell a label in two ways: {silo} has {first!r}, {schema['name']} has {name!r}. Write it "
                    "in one way, or declare both as labels in silo.toml if they are two classes."
                )
    return ""


def _differ(key: str, a: dict[str, object], b: dict[str, object]) -> str:
    each = ", ".join(f"{silo['name']} has {_short(silo[key])}" for silo in (a, b))
    return f"Silos disagree on {key.replace('_', ' ')}: {each}. One model needs one schema; make the columns equal."


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else text[:117] + "..."


def _relabel(silo: Silo, verdict: Mapping[str, Any]) -> Silo:
    """The silo with the class names of all silos, in the one spelling that these have."""
    labels, spelling = tuple(verdict["labels"]), verdict.get("spelling", {})
    schema: Schema = replace(silo.schema, labels=labels)
    if silo.schema.task != "classes" or silo.schema.labels == labels or not silo.schema.labels:
        return changed(silo, schema=schema)
    place = torch.tensor([labels.index(spelling.get(name, name)) for name in silo.schema.labels] + [-1])  # -1: unknown
    edge_y = None if silo.edge_y is None else place[silo.edge_y.long()]
    return changed(silo, schema=schema, y=place[silo.y.long()], edge_y=edge_y)


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


def raise_together(wire: Wire, problem: str, kind: Kind = Kind.SCHEMA) -> None:
    """Raise on every host when one host has a ``problem``, so that nobody waits for a host that has stopped."""
    mine = _encode_text(problem)
    said = dict.fromkeys(wire.mine, mine)
    first = wire.settle(kind, said, lambda all_: next((w for w in all_.values() if len(w)), mine))
    verdict = _decode(first)
    if verdict:
        raise IsthmusError(verdict)


def _encode(value: dict[str, object]) -> Tensor:
    return _encode_text(json.dumps(value))


def _encode_text(text: str) -> Tensor:
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


def _decode(payload: Tensor) -> str:
    return bytes(payload.tolist()).decode()
