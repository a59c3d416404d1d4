"""Ids in a silo's part: of the nodes that it owns, of its edges' ends, and of the halo with its owners; all checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from pyarrow import compute
from torch import Tensor

from isthmus.core.attempts import attempt, go_on_if_complete, problems_so_far
from isthmus.core.name_lists import some_of
from isthmus.core.random import keys_of
from isthmus.data.ids import INTEGER, check_unique, id_text
from isthmus.data.part_schema import check_ids
from isthmus.data.tables import Sheet, as_text


@dataclass(frozen=True)
class IdsAndEnds:
    """Ids of owned nodes [n], the rows of each edge's ends [2, m], and ids and owners of halo nodes [h]."""

    ids: np.ndarray
    ends: Tensor
    halo_ids: np.ndarray
    halo_owner: Tensor


def ids_and_ends(nodes: Sheet, edges: Sheet, declared: dict[str, Any], names: Sequence[str], number: int) -> IdsAndEnds:
    """Ids and ends of edges, checked; raises for ids that are missing, repeated, or of no owner."""
    before = problems_so_far()
    for sheet, columns in ((nodes, ("id",)), (edges, ("source", "target"))):
        attempt(partial(check_ids, sheet, columns, declared), None)
    typed = attempt(partial(_typed_ids, nodes, edges, declared.get("ids")), None)
    go_on_if_complete(before)
    assert typed is not None
    return IdsAndEnds(typed[0], *_ends(edges, *typed, names, number))


def _typed_ids(nodes: Sheet, edges: Sheet, kind: str | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids of nodes, of edges' sources and of edges' targets.

    They are int64 if all ids of this part are whole numbers and not declared to be text, else text.
    """
    before, places = problems_so_far(), ((nodes, "id"), (edges, "source"), (edges, "target"))
    texts = [attempt(partial(id_text, sheet, name), None) for sheet, name in places]
    if texts[0] is not None:
        attempt(partial(check_unique, nodes, texts[0]), None)
    go_on_if_complete(before)
    if kind != "text" and all(
        compute.all(compute.match_substring_regex(text, INTEGER), min_count=0).as_py() for text in texts
    ):
        try:
            a, b, c = (text.cast(pa.int64()).to_numpy() for text in texts)
            return a, b, c
        except pa.ArrowInvalid:  # beyond 64 bits: text after all
            pass
    a, b, c = (np.asarray(text.to_pylist(), dtype=str) for text in texts)
    return a, b, c


def _ends(
    edges: Sheet, ids: np.ndarray, source: np.ndarray, target: np.ndarray, names: Sequence[str], number: int
) -> tuple[Tensor, np.ndarray, Tensor]:
    """The rows of each edge's ends [2, m], and ids and owners of halo nodes.

    Halo nodes are the far ends that other silos own; their rows follow the owned ones, in the order of public keys.
    """
    every, place = np.unique(np.concatenate([ids, source, target]), return_inverse=True)
    own, source_at, target_at = np.split(place, [len(ids), len(ids) + len(source)])
    row = np.full(len(every), -1)
    row[own] = np.arange(len(ids))
    far_source, far_target = row[source_at] < 0, row[target_at] < 0
    owner = _owner_numbers(edges, names, far_source | far_target, far_source & far_target, number)
    far = np.where(far_source, source_at, target_at)[far_source | far_target]
    far_owner = owner[far_source | far_target]
    halo, first = np.unique(far, return_index=True)
    owner_of = np.full(len(every), -1)
    owner_of[halo] = far_owner[first]
    clash = np.flatnonzero(owner_of[far] != far_owner)
    if len(clash):
        at = int(np.flatnonzero(far_source | far_target)[clash[0]])
        raise edges.wrong(
            "owner",
            at,
            f"node {every[far[clash[0]]].item()!r} has another owner in an earlier edge",
            "a node has one owner",
        )
    halo = halo[np.argsort(keys_of(every[halo]).numpy(), kind="stable")]
    row[halo] = np.arange(len(halo)) + len(ids)
    ends = torch.from_numpy(np.stack([row[source_at], row[target_at]]))
    return ends, every[halo], torch.from_numpy(owner_of[halo])


def _owner_numbers(edges: Sheet, names: Sequence[str], far: np.ndarray, both: np.ndarray, number: int) -> np.ndarray:
    """The number of the silo that owns the far end of each edge, -1 for inner edges: [m].

    ``far`` marks edges with one or two ends that this silo does not own, ``both`` those with two.
    """
    given = as_text(edges, "owner").fill_null("") if "owner" in edges.names else pa.array([""] * len(far), pa.string())
    place = compute.index_in(given, value_set=pa.array(names, pa.string())).fill_null(-1).to_numpy()
    problems = (
        (both, "neither end is a node of this silo", "list only edges that touch owned nodes"),
        (far & (place < 0), *_unknown_owner(edges, names)),
        (
            far & (place == number),
            "the far end's owner is this silo, which has no such node",
            "add the node or correct the owner",
        ),
        (~far & (place >= 0), "an owner is named, but both ends are nodes of this silo", "leave it empty"),
    )
    for wrong, what, todo in problems:
        at = np.flatnonzero(wrong)
        if len(at):
            raise edges.wrong("owner", int(at[0]), what.format(given[int(at[0])].as_py()), todo)
    numbers_of_owners: np.ndarray = place.astype(np.int64)
    return numbers_of_owners


def _unknown_owner(edges: Sheet, names: Sequence[str]) -> tuple[str, str]:
    """What is wrong with a far end whose owner is no silo, and what to do."""
    if "owner" in edges.names:
        return "the far end's owner is {!r}", f"name one of the silos: {some_of(names)}"
    return (
        "an end is no node of this silo, and there is no column 'owner'",
        f"add it, with the silo that owns the far end ({some_of(names, 4)}), empty where both ends are owned here",
    )
