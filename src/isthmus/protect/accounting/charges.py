"""Charges: how many releases of a silo the data of one node, or one row, may be inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.core.kinds import ROWS, Kind
from isthmus.protect.accounting.privacy_loss import Noised
from isthmus.protect.events import Events, GaussianNoise, LaplaceNoise
from isthmus.protect.releases import COUNTS, PAYLOADS, SUMS, WIDTHS, Releases

OF_ROWS = (Kind.EMBEDDINGS, Kind.PARTIALS)  # kinds that hold rows which the model computed for single nodes


@dataclass(frozen=True)
class Charge:
    """How many releases of one kind by one silo a node, or a row, is charged for.

    ``nodes`` are those whose rows left, by themselves or in sums. ``row``: releases of the row that left most often,
    with every sum that holds it. ``node``: releases that the data of one node may be inside. ``width``: numbers in a
    payload; 0 for rows of nodes, whose noise is accounted for row by row.

    A sum of raw features holds the nodes that were added up, and nobody else. All other payloads were computed with
    parameters and moments that any node of the silo may have moved, and from its neighbours: so the data of a node may
    be inside every embedding, partial aggregate, derivative, weight and gradient that its silo sent.
    """

    nodes: int = 0
    row: int = 0
    node: int = 0
    width: int = 0


def charge(releases: Releases, kind: Kind, rows: slice, silo: int) -> Charge:
    """The charge of one kind of message for the silo of number ``silo``, whose rows in ``releases`` are ``rows``."""
    if kind not in ROWS:
        sent, width = (_of_silo(releases, f"{table}/{kind.value}/0", silo) for table in (PAYLOADS, WIDTHS))
        return Charge(node=sent, width=width)
    if kind == Kind.ADJOINTS:
        return Charge(node=int(_over_layers(releases, COUNTS, kind, rows).sum()))
    each = _over_layers(releases, COUNTS, kind, rows)
    most = int(each.max()) if len(each) else 0
    if kind == Kind.AGGREGATES:
        return Charge(int((each > 0).sum()), most, most)
    left = each if kind == Kind.EMBEDDINGS else _over_layers(releases, SUMS, kind, rows)
    return Charge(int((each > 0).sum()), most, int(left.sum()))


def _of_silo(releases: Releases, table: str, silo: int) -> int:
    """The entry of ``silo`` in a table by silo; 0 where the table or the entry is missing."""
    known = releases.state.get(table)
    return int(known[silo]) if known is not None and silo < len(known) else 0


def _over_layers(releases: Releases, table: str, kind: Kind, rows: slice) -> Tensor:
    """The counts of a silo's rows in a table, summed over layers: [rows]."""
    layers = [releases.get(table, kind, layer)[rows].cpu() for layer in releases.layers(kind)]
    return torch.stack(layers).sum(0) if layers else torch.zeros(0, dtype=torch.int64)


def noise_of(treatments: Sequence[Events]) -> Noised | None:
    """A noise no stronger than that of any release (largest clip, smallest sigma); None where one had no noise.

    Of several noises in one chain the first counts; what is added later cannot weaken it. Where some releases had
    Gaussian and others Laplace noise the result is None as well: neither kind is a bound for both.
    """
    noises = [next((e for e in each if isinstance(e, Noised)), None) for each in treatments]
    gaussian = [noise for noise in noises if isinstance(noise, GaussianNoise)]
    if gaussian and len(gaussian) == len(noises):
        return GaussianNoise(
            clip=max(noise.clip for noise in gaussian),
            sigma=min(noise.sigma for noise in gaussian),
            hidden=gaussian[0].hidden,
            delta=min(noise.delta for noise in gaussian),
            neighbours=max(noise.neighbours for noise in gaussian),
        )
    laplace = [noise for noise in noises if isinstance(noise, LaplaceNoise)]
    if laplace and len(laplace) == len(noises):
        bound, scale = max(noise.bound for noise in laplace), min(noise.scale for noise in laplace)
        return LaplaceNoise(bound, scale, laplace[0].hidden)
    return None
