"""Edge-LDP of a run: from the counted draws of every neighbour list to the guarantee of the worst list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import PeerError
from isthmus.protect.accounting.edge_ldp import Pair, amplified, composed, single_draw
from isthmus.protect.accounting.guarantee import AS_CLAIMED, EDGE_LDP, ENTRY, LISTS, Guarantee
from isthmus.protect.drawn_lists import DRAWS, LENGTH, SKIPPED, WHOLE, DrawnLists
from isthmus.protect.events import EdgeSampling, Event, Events, WholeLists, to_json

LISTS_ASSUMED = (
    "the seed that draws follow from is unknown to readers",
    "the lengths of lists are public; for an entry that is added or removed instead of replaced, the pair does not "
    "hold where the list then reaches the floor or falls below it, nor, from a fanout of 3 on, between lists of as "
    "many entries as the fanout and of one more",
    "of one list: an edge stands in the lists of both its ends, and the other list tells of it too",
    "cross edges, which silos tell each other before training, are hidden from others alone",
    "delta is the chance that an entry was drawn at all, which no epsilon lowers",
)
NOT_JUSTIFIED = (
    "amplification as the paper claims it: rows are dropped after edges were drawn, which does not lower the worst case"
)


@dataclass(frozen=True)
class ListFigures:
    """How one silo's neighbour lists were drawn from; a node's incoming and outgoing edges are two lists.

    ``most_seen`` are the events of the list with the largest delta, ``most_lost`` of that with the largest epsilon.
    """

    lists: int = 0  # that were drawn from
    skipped: int = 0  # that were passed over, being below the floor
    draws: int = 0  # from the list that was drawn from most often
    shortest: int = 0  # entries of the shortest list that was drawn from
    whole: int = 0  # passes that read lists as a whole
    most_seen: Events = ()
    most_lost: Events = ()

    def to_numbers(self) -> Tensor:
        """The figures as whole numbers [1 + events, 5], for the wire: a head, then the events of both lists."""
        head = [self.lists, self.skipped, self.draws, self.shortest, self.whole]
        lines = [
            [place, e.minimum_degree, e.fanout, e.draws, int(e.with_replacement)]
            for place, events in enumerate((self.most_seen, self.most_lost))
            for e in events
            if isinstance(e, EdgeSampling)
        ]
        return torch.tensor([head, *lines], dtype=torch.int64)

    @staticmethod
    def from_numbers(numbers: Tensor, floor: int, rate: float) -> ListFigures:
        """Figures from what :meth:`to_numbers` gave; ``floor`` and claimed ``rate`` are equal for all silos."""
        (lists, skipped, draws, shortest, whole), *lines = numbers.tolist()
        both: tuple[list[Event], list[Event]] = ([], [])
        for place, degree, fanout, times, replaced in lines:
            both[place].append(EdgeSampling(degree, fanout, times, bool(replaced), floor, rate))
        return ListFigures(lists, skipped, draws, shortest, whole, tuple(both[0]), tuple(both[1]))


def check_figures(numbers: Tensor, who: str) -> None:
    """Refuse what is not figures of drawn lists in the form of :meth:`ListFigures.to_numbers`; ``who`` sent it."""
    whole = numbers.dtype == torch.int64 and numbers.dim() == 2 and len(numbers) > 0 and numbers.shape[1] == 5
    if not whole or bool((numbers < 0).any()) or bool((numbers[1:, [0, 4]] > 1).any() or (numbers[1:, 1:4] < 1).any()):
        raise PeerError(f"{who} sent figures of its drawn lists that cannot be: {list(numbers.shape)} {numbers.dtype}.")


def list_figures(book: DrawnLists, rows: slice) -> ListFigures:
    """The figures of the silo whose rows in the book are ``rows``; each list counts by its own length and draws."""
    tables = {name: table if name == WHOLE else table[rows].cpu() for name, table in book.state.items()}
    skipped = sum(int((table > 0).sum()) for name, table in tables.items() if name.startswith(SKIPPED))
    whole = int(tables[WHOLE]) if WHOLE in tables else 0
    sides = sorted({name.split("/")[1] for name in tables if name.startswith(DRAWS)})
    each = [figures for side in sides if (figures := _of_side(tables, side, book)).lists]
    if not each:
        return ListFigures(skipped=skipped, whole=whole)
    return ListFigures(
        sum(figures.lists for figures in each),
        skipped,
        max(figures.draws for figures in each),
        min(figures.shortest for figures in each),
        whole,
        max((figures.most_seen for figures in each), key=lambda events: pair_of(events)[1]),
        max((figures.most_lost for figures in each), key=lambda events: pair_of(events)[0]),
    )


def _of_side(tables: Mapping[str, Tensor], side: str, book: DrawnLists) -> ListFigures:
    """Figures of the lists of one ``side``: incoming or outgoing edges. Lists of equal length and draws count once."""
    ways = sorted(name.removeprefix(f"{DRAWS}/") for name in tables if name.startswith(f"{DRAWS}/{side}/"))
    draws = torch.stack([tables[f"{DRAWS}/{way}"] for way in ways])
    at = (draws > 0).any(0).nonzero().flatten()
    if not len(at):
        return ListFigures()
    fanout, replaced = (torch.tensor([int(way.split("/")[place]) for way in ways])[:, None] for place in (1, 2))
    length = torch.stack([tables[f"{LENGTH}/{way}"] for way in ways])
    length = torch.where(draws > 0, length, fanout)  # any length will do where there were no draws: they cost nothing
    kinds = torch.stack([draws[:, at], length[:, at]]).unique(dim=2)
    drawn, size = kinds.numpy()
    single = single_draw(size, fanout.numpy())
    lost = composed(single.epsilon, single.delta, drawn)

    def events(kind: int) -> Events:
        happened = zip(size[:, kind], fanout[:, 0], drawn[:, kind], replaced[:, 0], strict=True)
        facts = ((int(d), int(f), int(k), bool(r)) for d, f, k, r in happened if k)
        return tuple(EdgeSampling(*fact, book.floor, book.claimed_rate) for fact in facts)

    by_delta, by_epsilon = (np.lexsort(each)[-1] for each in ((lost.epsilon, lost.delta), (lost.delta, lost.epsilon)))
    least = int(np.where(drawn > 0, size, size.max()).min())
    return ListFigures(len(at), 0, int(drawn.sum(0).max()), least, 0, events(by_delta), events(by_epsilon))


def pair_of(events: Events) -> tuple[float, float]:
    """Epsilon and delta of one list, from its events; (infinity, 1) where it was read as a whole."""
    if any(isinstance(event, WholeLists) for event in events):
        return float("inf"), 1.0
    drawn = [event for event in events if isinstance(event, EdgeSampling)]
    if not drawn:
        return 0.0, 0.0
    pairs = [single_draw(event.minimum_degree, event.fanout) for event in drawn]
    found: Pair = composed([p.epsilon for p in pairs], [p.delta for p in pairs], [event.draws for event in drawn])
    return float(found.epsilon), float(found.delta)


def list_guarantees(silos: Mapping[str, ListFigures]) -> list[Guarantee]:
    """The edge-LDP guarantee of a run; after it, where a method's paper claims amplification, the claimed one."""
    told = {name: _worst_figures(figures) for name, figures in silos.items()}
    epsilon, delta = (max((each[key] for each in told.values()), default=0.0) for key in ("epsilon", "delta"))
    most = max((figures.draws for figures in silos.values()), default=0)
    held = Guarantee(LISTS, ENTRY, EDGE_LDP, epsilon, delta, most, LISTS_ASSUMED, silos=told)
    rates = {e.claimed_rate for f in silos.values() for e in f.most_seen if isinstance(e, EdgeSampling)}
    rate = min(rates, default=1.0)
    if rate == 1 or epsilon == float("inf"):
        return [held]
    claimed = amplified(epsilon, delta, rate)
    assumed = (*LISTS_ASSUMED, NOT_JUSTIFIED)
    return [held, replace(held, notion=AS_CLAIMED, epsilon=claimed[0], delta=claimed[1], assumptions=assumed)]


def _worst_figures(figures: ListFigures) -> dict[str, Any]:
    """The figures of a silo by name, with its worst epsilon and delta; (infinity, 1) if a list was read as a whole."""
    whole: Sequence[Event] = (WholeLists(figures.whole),) if figures.whole else ()
    lost, seen = (pair_of((*events, *whole)) for events in (figures.most_lost, figures.most_seen))
    return {
        "lists": figures.lists,
        "skipped": figures.skipped,
        "draws": figures.draws,
        "shortest": figures.shortest,
        "whole": figures.whole,
        "epsilon": lost[0],
        "delta": seen[1],
        "events": to_json((*figures.most_seen, *whole)),
    }
