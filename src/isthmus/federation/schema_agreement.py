"""Agreement on one schema: silos tell the server columns and class names; it answers what all have, or who differs."""

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
from isthmus.federation.constant_columns import without_constants
from isthmus.federation.encodings import (
    OF_NODES,
    TABLES,
    agree_columns,
    agree_fills,
    described_columns,
    is_told_columns,
    with_agreed_columns,
)
from isthmus.federation.text_on_wire import decode_text, encode_json
from isthmus.graph.encoding import Encoding, as_columns, feature_names, told_columns
from isthmus.graph.graph import Schema, natural, one_spelling, spelt_alike
from isthmus.graph.silo import Silo, changed
from isthmus.wire.wire import Wire


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
                return encode_json({"error": f"Silo {number} sent something else than its schema.", "labels": []})
            heard.append(told)
        return encode_json(_judge(heard, categories))

    verdict = json.loads(
        decode_text(wire.settle(Kind.SCHEMA, {silo.number: encode_json(_describe(silo)) for silo in silos}, judge))
    )
    if verdict["error"]:
        raise IsthmusError(verdict["error"])
    wire.ledger.names |= dict(enumerate(verdict["names"]))
    columns = without_constants(wire, silos, {table: verdict.get(table, []) for table in TABLES})
    alike = [with_agreed_columns(_relabel(silo, verdict), columns) for silo in silos]
    alike, known = agree_fills(wire, alike, columns, fills)
    schema = alike[0].schema if alike else _schema(heard[0], tuple(verdict["labels"]), columns)
    return Agreement(alike, schema, known)


def _decoded_schema(words: Tensor) -> dict[str, Any] | None:
    """Decode the description of a schema that a silo sent; None where it is not one."""
    try:
        told = json.loads(decode_text(words)) if words.dtype == torch.uint8 and words.dim() == 1 else None
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
