"""Labels and splits of tables of nodes and edges, as a user's own folder and the parts of silos have them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from isthmus.core.attempts import attempt
from isthmus.core.errors import IsthmusError
from isthmus.core.random import combine
from isthmus.data.columns import labels, splits
from isthmus.data.split import random_split
from isthmus.data.tables import Sheet
from isthmus.graph.graph import UNUSED


def read_labels(sheet: Sheet, declared: Sequence[str] | None = None) -> None:
    """Raise for labels, or words of a split, that cannot be read, so that they are named among all problems."""
    if "label" in sheet.names:
        attempt(partial(labels, sheet, "label", declared or ()), None)
    if "split" in sheet.names:
        splits(sheet, "split")


def label_columns(
    sheet: Sheet, keys: Tensor, seed: int, declared: Sequence[str] | None = None
) -> tuple[Tensor | None, Tensor | None, tuple[str, ...]]:
    """Class numbers, split and class names of a table; None for the first two where it has no column ``label``.

    ``declared`` are the class names that silo.toml lists; without it they are those of the table. ``keys`` and ``seed``
    draw a random split where the table has no column ``split``.
    """
    if "label" not in sheet.names:
        return None, None, tuple(declared or ())
    y, classes = labels(sheet, "label", declared or ())
    if declared is not None:
        strange = sorted(set(classes) - set(declared))
        if strange:
            raise IsthmusError(
                f"{sheet.path}, column 'label': '{strange[0]}' is not among the declared labels "
                f"({', '.join(declared)}); add it to silo.toml or correct the label."
            )
        y = torch.tensor([*(list(declared).index(name) for name in classes), -1])[y]
        classes = tuple(declared)
    if "split" not in sheet.names:
        return y, random_split(keys, seed, y >= 0), classes
    return y, splits(sheet, "split").where(y >= 0, UNUSED), classes


def both_labelled(nodes: Sheet, edges: Sheet) -> tuple[str, ...]:
    """A sentence where nodes and edges both have labels, and nobody has said which are to be learnt."""
    if "label" not in nodes.names or "label" not in edges.names:
        return ()
    unused = len(edges.table) - edges.table["label"].null_count
    return (
        f"{nodes.path.parent}: nodes and edges have labels; {unused:,} of edges are not used (target = edge does).",
    )


def edge_split_keys(keys: Tensor, ends: Tensor, time: Tensor | None) -> Tensor:
    """The public key by which each edge is drawn for training, validation or test: [m].

    ``keys`` are the public keys of all rows, ``ends`` [2, m] the rows of each edge's source and target.
    """
    return combine(combine(keys[ends[0]], keys[ends[1]]), torch.zeros_like(ends[0]) if time is None else time)
