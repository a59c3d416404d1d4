"""Which rows train, validate and test: drawn at random by public key."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.random import draw, stream
from isthmus.graph.graph import TEST, TRAIN, UNUSED, VALID


def random_split(keys: Tensor, seed: int, labelled: Tensor | None = None, train: float = 0.6) -> Tensor:
    """The split of each row, TRAIN, VALID, TEST or (without a label) UNUSED: [n] int8.

    A share ``train`` is for training; the rest is halved between validation and test.

    Each row's part is a function of the seed and its own key alone, so that it depends neither on row order
    nor on which other rows a silo holds. The shares are therefore met on average, not exactly.
    """
    chance = draw(stream(seed, "train, valid, test"), keys)
    if not 0 < train < 1:
        raise IsthmusError(f"The share of training rows is {train}; it must lie between 0 and 1.")
    valid, test = (round((2 * share - 1) * 2**63) for share in (train, (1 + train) / 2))
    split = torch.full(chance.shape, TRAIN, dtype=torch.int8)
    split[chance >= valid] = VALID
    split[chance >= test] = TEST
    if labelled is not None:
        split[~labelled] = UNUSED
    return split
