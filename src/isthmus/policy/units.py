"""Units of a budget: of what one value is hidden among all others, and which kinds of messages count against it.

Units are not mixed: a budget of one says nothing of another, and losses of two are never added up.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from isthmus.core.kinds import Kind
from isthmus.protect.accounting.guarantee import CHARGED, RECORDS

ROW, NODE, SILO, LABEL, EDGE = "row", "node", "silo", "label", "edge"


@dataclass(frozen=True)
class Unit:
    """A unit of a budget.

    ``charged``: kinds of messages that count against it, by the noise that they leave with; without noise they are
    refused. ``bare``: kinds that carry data of the unit and never get noise, so that they are refused. ``trained``:
    what counts is not messages but what parameters were trained with.
    """

    name: str
    meaning: str
    charged: Collection[Kind]
    bare: Collection[Kind]
    trained: bool = False


_ROWS = (Kind.EMBEDDINGS, Kind.PARTIALS, Kind.AGGREGATES)
_OF_LABELS = (Kind.LABELS, Kind.SCORES, Kind.ADJOINTS)  # they carry labels, whatever parameters were trained with
_MADE = (Kind.EMBEDDINGS, Kind.PARTIALS, Kind.PARAMETERS, Kind.GRADIENTS)  # made with trained parameters
_LISTED = (Kind.EDGES,)
_DRAWN = (*CHARGED, *(kind for kind in RECORDS if kind not in _LISTED))  # computed along lists that were drawn from
UNITS: dict[str, Unit] = {
    each.name: each
    for each in (
        Unit(ROW, "the rows that the model computed for one node, and its features in sums", _ROWS, RECORDS),
        Unit(NODE, "the features and the label of one node, in everything that leaves", CHARGED, RECORDS),
        Unit(SILO, "all data of this party, in everything that leaves", CHARGED, RECORDS),
        Unit(LABEL, "the label of one training node, all else known", _MADE, _OF_LABELS, trained=True),
        Unit(EDGE, "one edge of a node's list of neighbours, the list's length known", _DRAWN, _LISTED, trained=True),
    )
}
