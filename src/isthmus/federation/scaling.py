"""Scaling of features: all silos decide together, from sums that pass through the server, whether and how.

``rows`` divides each row of node features by its sum, as is usual for bags of words, ``lengths`` by its length; both
keep sparse features sparse. ``columns`` brings each column of node and edge features to mean 0 and deviation 1.
``auto`` takes ``lengths``, ``columns`` or nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.kinds import Kind
from isthmus.core.tensors import stacked
from isthmus.graph.features import Features, SparseRows, dense_blocks, rows_to_one, stored_values
from isthmus.graph.graph import Schema
from isthmus.graph.silo import Silo, changed
from isthmus.wire.local import LocalWire
from isthmus.wire.wire import Wire

SCALES = ("auto", "none", "rows", "lengths", "columns")
WORDS = 16  # a bag of words has at least so many columns,
FILLED = 0.2  # at most this share of entries that are not 0,
SPREAD = 1.0  # and entries of one magnitude: so large a variance of their logarithms at most
EVEN = 4.0  # words, and columns, are left as they are if their entries are of a size between 1 / EVEN and EVEN,
OFFSET = 2.0  # columns only if the row of their means is no longer than this, too
CONSTANT = 1e-9  # deviation of a column, as a part of its mean, below which it is rounding


@dataclass(frozen=True)
class Scaling:
    """How one table of features was scaled (none, rows, lengths, columns), and why (empty: as the user said).

    ``mean`` and ``deviation`` of columns are [1, width] where all silos ``agreed`` on them, else [mine, width].
    """

    how: str = "none"
    why: str = ""
    agreed: bool = True
    mean: Tensor | None = None
    deviation: Tensor | None = None

    def of(self, x: Features, silo: int) -> Features:
        """Features ``x`` of one silo, scaled; ``silo`` is its place among the silos of this host."""
        if self.how in ("rows", "lengths"):
            return rows_to_one(x, power=1 if self.how == "rows" else 2)
        if self.mean is None or self.deviation is None:
            return x
        place = 0 if self.agreed else silo
        return zscore(x, self.mean[place], self.deviation[place])

    def as_dict(self) -> dict[str, Any]:
        """How a table was scaled, for JSON; with mean and deviation where all silos agreed on them."""
        told: dict[str, Any] = {"how": self.how, "why": self.why}
        if self.agreed and self.mean is not None and self.deviation is not None:
            told |= {"mean": self.mean[0].tolist(), "deviation": self.deviation[0].tolist()}
        return told

    def sentence(self, what: str) -> str:
        """A sentence for the report on how the table ``what`` was scaled, and why."""
        by = "moments of all silos" if self.agreed else "each silo's own moments"
        done = {
            "none": "left as they are",
            "lengths": "every row divided by its length",
            "columns": f"columns scaled to mean 0 and deviation 1, by {by}",
        }
        return f"{what}: {done[self.how]}, because {self.why} (data.scale=auto)."


def zscore(x: Features, mean: Tensor, deviation: Tensor) -> Tensor:
    """Columns brought to mean 0 and deviation 1, as dense rows."""
    blocks = [((block - mean) / deviation).to(x.dtype) for block in dense_blocks(x)]
    return torch.cat(blocks) if blocks else torch.zeros(x.shape, dtype=x.dtype)


def scale_features(
    wire: Wire, silos: Sequence[Silo], schema: Schema, how: str, agreed: bool
) -> tuple[list[Silo], dict[str, Scaling]]:
    """My silos with scaled features, and what was done to ``x`` (nodes) and ``edge_attr`` (edges).

    Every silo takes part in the decision. Moments are ``agreed`` by all, or each silo's own.
    """
    if how not in SCALES:
        raise unknown("data.scale", how, SCALES)
    scaled, found = list(silos), dict[str, Scaling]()
    if how == "none":
        return scaled, found
    of_edges = [silo.edge_attr[silo.edge_index[1] < silo.n] for silo in silos if silo.edge_attr is not None]
    for field, width, names, once in (
        ("x", schema.features, schema.feature_names, [silo.x for silo in silos]),
        ("edge_attr", schema.edge_features, schema.edge_feature_names, of_edges),
    ):
        if width:
            table = Table(wire, width, names, once, agreed)
            found[field] = _of_nodes(table, how) if field == "x" else _of_edges(table, how)
            changes: list[dict[str, Any]] = [
                {field: found[field].of(getattr(silo, field), place)} for place, silo in enumerate(silos)
            ]
            scaled = [changed(silo, **change) for silo, change in zip(scaled, changes, strict=True)]
    return scaled, found


def scaled_again(silo: Silo, told: Mapping[str, Mapping[str, Any]]) -> Silo:
    """New data scaled as a finished run scaled its own; ``told`` is what :meth:`Scaling.as_dict` gave for each table.

    Where each silo of the run used its own moments, the new data is scaled by its own moments, too.
    """
    for field, values in told.items():
        scaling = Scaling(str(values["how"]))
        if "mean" in values:
            mean, deviation = (torch.tensor([values[name]], dtype=torch.float64) for name in ("mean", "deviation"))
            scaling = replace(scaling, mean=mean, deviation=deviation)
        elif scaling.how == "columns":
            rows = getattr(silo, field)
            scaling = _standard(Table(LocalWire(1), rows.shape[1], (), [rows], agreed=False))
        change: dict[str, Any] = {field: scaling.of(getattr(silo, field), 0)}
        silo = changed(silo, **change)
    return silo


@dataclass(frozen=True)
class Table:
    """Features of my silos' nodes or edges; each node or edge of the federation is in the ``rows`` of one silo."""

    wire: Wire
    width: int
    names: tuple[str, ...]
    rows: Sequence[Features]
    agreed: bool

    def over_all(self, measure: Callable[[Features], Tensor], like: Tensor) -> Tensor:
        """The sum of ``measure`` over all silos, in the shape of ``like``."""
        mine = stacked([measure(x) for x in self.rows], like)
        return self.wire.total(Kind.STATISTICS, mine)

    def moments(self) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, deviation and share of entries that are not 0, of every column: each [1, width], or [mine, width].

        They are rounded to 24 bits, so that the order in which silos are added up changes no scaled feature.
        """

        def summed(parts: list[Tensor], like: Tensor) -> Tensor:
            mine = stacked(parts, like)
            return self.wire.total(Kind.STATISTICS, mine)[None] if self.agreed else mine

        none = torch.zeros(self.width, dtype=torch.float64)
        first = summed([_column_sums(x, self.width) for x in self.rows], torch.cat([none, none, none[:1]]))
        total, filled, rows = first[:, : self.width], first[:, self.width : -1], first[:, -1:].clamp(min=1)
        mean = total / rows
        centres = mean.expand(len(self.rows), -1) if self.agreed else mean
        squares = summed([_squares(x, centre) for x, centre in zip(self.rows, centres, strict=True)], none)
        deviation = (squares / rows).sqrt()
        constant = deviation <= CONSTANT * mean.abs()
        step = torch.exp2(deviation.where(~constant, 1.0).log2().floor() - 24)
        mean = torch.where(constant, mean.float().double(), (mean / step).round() * step)
        return mean, torch.where(constant, 0.0, deviation.float().double()), filled / rows


def _column_sums(x: Features, width: int) -> Tensor:
    """The sum of every column, how many of its entries are not 0, and the number of rows: [2 width + 1]."""
    sums = torch.zeros(2, width, dtype=torch.float64)
    for block in dense_blocks(x):
        sums += torch.stack([block.sum(0), (block != 0).sum(0)])
    return torch.cat([sums.flatten(), torch.tensor([float(len(x))], dtype=torch.float64)])


def _squares(x: Features, centre: Tensor) -> Tensor:
    """The sum of (x - centre)^2 over every column: [width]; centred first, against cancellation."""
    total = torch.zeros_like(centre)
    for block in dense_blocks(x):
        total += ((block - centre) ** 2).sum(0)
    return total


def _of_edges(table: Table, how: str) -> Scaling:
    """The scaling of edge features, which are no bags of words."""
    if how in ("rows", "lengths"):
        return Scaling()
    return _standard(table) if how == "columns" else _standard_if_uneven(table)


def _of_nodes(table: Table, how: str) -> Scaling:
    """The scaling of node features; raises for one that cannot be applied (negative or sparse features)."""
    rows, entries, negative, log, square, sparse = table.over_all(
        _entries, torch.zeros(6, dtype=torch.float64)
    ).tolist()
    filled = entries / max(rows * table.width, 1)
    spread = square / max(entries, 1) - (log / max(entries, 1)) ** 2
    would_fill = bool(sparse) and filled <= FILLED
    if how == "rows":
        if negative:
            raise IsthmusError(
                f"data.scale=rows divides rows by their sums, but {negative:,.0f} features are negative; use "
                "data.scale=columns."
            )
        return Scaling("rows")
    if how == "lengths":
        return Scaling("lengths")
    if how == "columns":
        if would_fill:
            raise IsthmusError(
                f"data.scale=columns would make sparse features dense, of which {filled:.1%} are not 0; use "
                "data.scale=lengths or none for them."
            )
        return _standard(table)
    words = not negative and table.width >= WORDS and filled <= FILLED and spread <= SPREAD
    if not words and not would_fill:
        return _standard_if_uneven(table)
    size, what = math.exp(log / max(entries, 1)), "look like a bag of words" if words else "are sparse"
    why = f"they {what}: {filled:.1%} of entries are not 0, and those are of about {size:.2g}"
    return Scaling("none" if 1 / EVEN <= size <= EVEN else "lengths", why)


def _entries(x: Features) -> Tensor:
    """Rows, entries that are not 0, negative ones, sums of log |entry| and of its square, and whether x is sparse."""
    found = torch.tensor([len(x), 0, 0, 0, 0, isinstance(x, SparseRows)], dtype=torch.float64)
    for part in stored_values(x).reshape(-1).split(2**22):
        value = part[part != 0].double()
        log = value.abs().log()
        found[1:5] += torch.stack([torch.tensor(len(value)), (value < 0).sum(), log.sum(), (log**2).sum()])
    return found


def _standard(table: Table, why: str = "", moments: tuple[Tensor, Tensor] | None = None) -> Scaling:
    """The scaling of columns to mean 0 and deviation 1; constant columns become 1 or -1, so that sums count nodes."""
    mean, deviation = moments or table.moments()[:2]
    constant = deviation == 0
    size = mean.abs().where(mean != 0, 1.0)
    return Scaling("columns", why, table.agreed, mean.where(~constant, 0.0), torch.where(constant, size, deviation))


def _standard_if_uneven(table: Table) -> Scaling:
    """Columns scaled where sizes differ or they are far from 0, else left; with own moments, silos vote by rows."""
    mean, deviation, filled = table.moments()
    size = ((deviation**2 + mean**2) / filled.where(filled > 0, 1.0)).sqrt().where(filled > 0, 1.0)
    odd, offset = size.log().abs().amax(1) > torch.tensor(EVEN).log(), mean.norm(dim=1)
    uneven = odd | (offset > OFFSET)
    if table.agreed:
        scales, why = bool(uneven[0]), _why(size[0], float(offset[0]), table.names)
    else:
        rows = torch.tensor([float(len(x)) for x in table.rows], dtype=torch.float64)
        votes = table.wire.total(Kind.STATISTICS, torch.stack([rows, rows * uneven], 1)).tolist()
        scales = 2 * votes[1] > votes[0]
        why = "silos with most of the rows have columns of different sizes or far from 0"
    if scales:
        return _standard(table, why, (mean, deviation))
    return Scaling("none", "columns are of like sizes, and near 0")


def _why(size: Tensor, offset: float, names: tuple[str, ...]) -> str:
    """The reason for scaling columns, in words: one whose entries are large or small, or means far from 0."""
    worst = int(size.log().abs().argmax())
    if not 1 / EVEN <= float(size[worst]) <= EVEN:
        return f"column '{names[worst] if names else worst}' holds values of about {float(size[worst]):.2g}"
    return f"columns are far from 0 (a row of their means is {offset:.1f} long)"
