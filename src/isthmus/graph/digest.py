"""Short hashes of what a silo has read, by which a resumed run knows whether its data is still the same."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
from torch import Tensor

from isthmus.graph.features import Features, SparseRows
from isthmus.graph.silo import Silo

Digests = dict[str, str]  # what of a silo -> its hash


def digests(silo: Silo) -> Digests:
    """A hash of every kind of thing that a silo holds, in the order in which it was read."""
    held: dict[str, tuple[Tensor | None, ...]] = {
        "nodes": (silo.keys[: silo.n],),
        "features": _parts(silo.x),
        "labels": (silo.y,),
        "splits": (silo.split,),
        "edges": (silo.edge_index, silo.keys[silo.n :], silo.halo_owner),
        "edge features": (silo.edge_attr,),
        "edge times": (silo.edge_time,),
        "edge labels": (silo.edge_y,),
        "edge splits": (silo.edge_split,),
    }
    found = {name: _hash(tensors) for name, tensors in held.items()}
    return {**found, "schema": hashlib.blake2b(repr(silo.schema).encode(), digest_size=8).hexdigest()}


def changes(before: Mapping[str, Digests], now: Mapping[str, Digests]) -> str:
    """What differs between the data of a run when it began and now, by silo, in words; empty where nothing does."""
    words = []
    for silo in dict.fromkeys([*before, *now]):
        then, here = before.get(silo, {}), now.get(silo, {})
        what = [name for name in dict.fromkeys([*then, *here]) if then.get(name) != here.get(name)]
        if not then or not here:
            words.append(f"{silo} ({'new' if here else 'gone'})")
        elif what:
            words.append(f"{silo} ({', '.join(what)})")
    return ", ".join(words)


def _parts(x: Features) -> tuple[Tensor, ...]:
    """The tensors that feature rows are made of."""
    return (x.ptr, x.index, x.value) if isinstance(x, SparseRows) else (x,)


def _hash(tensors: tuple[Tensor | None, ...]) -> str:
    """A hash of number formats, shapes and content."""
    whole = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        if tensor is None:
            whole.update(b"none")
            continue
        content = np.ascontiguousarray(tensor.cpu().numpy())
        whole.update(f"{content.dtype}{content.shape}".encode())
        whole.update(content.reshape(-1).view(np.uint8).data if content.size else b"")
    return whole.hexdigest()
