"""A federation as a drawing: its parties in a circle, the boundary of each silo, and what crossed on every edge."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from isthmus.core.kinds import SERVER_NAME
from isthmus.page.crossed import Crossed, words_of
from isthmus.runs.text import bytes_text, party_order

WIDTH, HEIGHT = 640, 460
MOST = 16  # parties that are drawn one by one; the busiest of more
_RADIUS, _DISC = 165.0, 26.0
_FEW = 8  # silos that have room for large discs
_LABELLED = 15  # edges at most that have their bytes on them; more would hide each other


@dataclass(frozen=True)
class Drawn:
    """A party on the drawing: its place, and of a silo how large it is and how many far ends its edges have."""

    name: str
    x: float
    y: float
    nodes: int = 0
    halo: int = 0
    radius: float = _DISC


@dataclass(frozen=True)
class Between:
    """What crossed between two parties: bytes one way and the other, and by kind, most first."""

    first: str
    second: str
    there: int
    back: int
    kinds: list[tuple[str, int]]

    @property
    def bytes(self) -> int:
        """Bytes both ways."""
        return self.there + self.back

    @property
    def told(self) -> str:
        """The edge in words."""
        kinds = ", ".join(f"{words} {bytes_text(size)}" for words, size in self.kinds)
        ways = f"{bytes_text(self.there)} to {self.second}, {bytes_text(self.back)} back"
        return f"{self.first} – {self.second}: {ways} ({kinds})"


def edges(found: Crossed) -> list[Between]:
    """What crossed between every two parties that talked, the busiest pair first."""
    pairs: dict[tuple[str, str], list[dict[str, int]]] = {}
    for (sender, receiver), kinds in found.pairs.items():
        first, second = sorted((sender, receiver), key=party_order)
        ways = pairs.setdefault((first, second), [{}, {}])
        way = ways[0] if sender == first else ways[1]
        for kind, size in kinds.items():
            way[kind] = way.get(kind, 0) + size
    made = [_between(*pair, *ways) for pair, ways in pairs.items()]
    return sorted(made, key=lambda each: -each.bytes)


def _between(first: str, second: str, there: Mapping[str, int], back: Mapping[str, int]) -> Between:
    kinds = {kind: there.get(kind, 0) + back.get(kind, 0) for kind in {**there, **back}}
    named = [(words_of(kind), size) for kind, size in sorted(kinds.items(), key=lambda item: -item[1])]
    return Between(first, second, sum(there.values()), sum(back.values()), named)


def federation(found: Crossed, sizes: Mapping[str, Mapping[str, int]]) -> Markup:
    """The drawing; ``sizes`` has nodes and far ends (``halo``) of silos by name, as far as they are known.

    Of many parties the busiest are drawn. The dashed ring around a silo is its boundary; the coloured part of
    its rim is the share of far ends among all nodes that the silo knows of.
    """
    busy = {each.party: each.sent + each.received for each in found.parties}
    names = sorted(busy, key=lambda name: (name != SERVER_NAME, -busy[name]))[:MOST]
    places = {each.name: each for each in _placed(sorted(names, key=party_order), sizes)}
    drawn = [each for each in edges(found) if each.first in places and each.second in places]
    most = max((each.bytes for each in drawn), default=1)
    lines = [_edge(each, places, most) for each in drawn]
    few = len(drawn) <= _LABELLED
    amounts = [_amount(each, places) for each in drawn] if few else []
    top, bottom = (how(each.y for each in places.values()) for how in (min, max))
    start = Markup('<svg class="federation{}" role="img" viewBox="0 {:.0f} {} {:.0f}" aria-label="{}">')
    said = f"{len(found.parties)} parties; the busiest edge is {drawn[0].told}" if drawn else "Nothing crossed"
    body = [*reversed(lines), *amounts, *(_disc(each) for each in places.values())]
    head = start.format("" if few else " dense", top - 2 * _DISC, WIDTH, bottom - top + 4.4 * _DISC, said)
    return head + Markup("").join(body) + Markup("</svg>")


def _placed(names: Sequence[str], sizes: Mapping[str, Mapping[str, int]]) -> list[Drawn]:
    """The parties on a circle, the server in its middle."""
    middle = WIDTH / 2, HEIGHT / 2
    around = [name for name in names if name != SERVER_NAME]
    wide, radius = (1.4, _DISC) if len(around) <= _FEW else (1.2, 0.62 * _DISC)
    placed = [Drawn(SERVER_NAME, *middle)] if SERVER_NAME in names else []
    for number, name in enumerate(around):
        angle = 2 * math.pi * number / len(around) - math.pi / 2 + (math.pi / 4 if len(around) == 4 else 0)
        place = middle[0] + wide * _RADIUS * math.cos(angle), middle[1] + _RADIUS * math.sin(angle)
        size = sizes.get(name, {})
        placed.append(Drawn(name, *place, int(size.get("nodes") or 0), int(size.get("halo") or 0), radius))
    return placed


def _edge(each: Between, places: Mapping[str, Drawn], most: int) -> Markup:
    """A line between two parties, the wider the more crossed, with all that crossed as its hover text."""
    a, b = places[each.first], places[each.second]
    width = 1 + 9 * math.sqrt(each.bytes / max(most, 1))
    path = Markup('<path class="edge" d="M{:.1f} {:.1f} Q{:.1f} {:.1f} {:.1f} {:.1f}" stroke-width="{:.1f}"/>')
    line = path.format(a.x, a.y, *_bend(a, b), b.x, b.y, width)
    return Markup("<g><title>{}</title>{}</g>").format(each.told, line)


def _amount(each: Between, places: Mapping[str, Drawn]) -> Markup:
    """The bytes of an edge, in its middle; of one to the server nearer to the silo, where room is."""
    a, b = places[each.first], places[each.second]
    x, y = _bend(a, b)
    at = {a.name: 0.66, b.name: 0.34}.get(SERVER_NAME, 0.5)
    weights = ((1 - at) ** 2, 2 * at * (1 - at), at**2)
    place = [sum(w * p for w, p in zip(weights, way, strict=True)) for way in ((a.x, x, b.x), (a.y, y, b.y))]
    label = Markup('<text class="amount" x="{:.1f}" y="{:.1f}" text-anchor="middle"><title>{}</title>{}</text>')
    return label.format(place[0], place[1] + 4, each.told, bytes_text(each.bytes))


def _bend(a: Drawn, b: Drawn) -> tuple[float, float]:
    """The point towards which the line between two parties bends, so that lines between silos pass the server by."""
    x, y = (a.x + b.x) / 2, (a.y + b.y) / 2
    away = x - WIDTH / 2, y - HEIGHT / 2
    if SERVER_NAME in (a.name, b.name):
        return x, y
    if math.hypot(*away) > _DISC:
        return x + 0.25 * away[0], y + 0.25 * away[1]
    long = math.hypot(b.x - a.x, b.y - a.y) or 1.0
    return x + 5 * _DISC * (b.y - a.y) / long, y - 5 * _DISC * (b.x - a.x) / long


def _disc(party: Drawn) -> Markup:
    """A party: the server as a square, a silo as a disc within the dashed ring of its boundary."""
    if party.name == SERVER_NAME:
        box = Markup('<rect class="server" x="{:.1f}" y="{:.1f}" width="68" height="36" rx="6"/>')
        name = Markup('<text class="party" x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>')
        shape = box.format(party.x - 34, party.y - 18)
        return Markup("<g><title>{0}</title>{1}{2}</g>").format(
            party.name, shape, name.format(party.x, party.y + 4, party.name)
        )
    about = f": {party.nodes:,} nodes, {party.halo:,} far ends of its cross edges" if party.nodes else ""
    place = {"cx": f"{party.x:.1f}", "cy": f"{party.y:.1f}", "r": f"{party.radius:.1f}"}
    ring = Markup('<circle class="boundary" cx="{cx}" cy="{cy}" r="{ring:.1f}"/><circle class="silo" cx="{cx}" '
                  'cy="{cy}" r="{r}"/>').format(ring=party.radius + 7, **place)  # fmt: skip
    share = party.halo / (party.nodes + party.halo) if party.nodes else 0.0
    long = 2 * math.pi * party.radius
    rim = Markup('<circle class="far" cx="{cx}" cy="{cy}" r="{r}" stroke-dasharray="{far:.1f} {long:.1f}"/>')
    far = rim.format(far=share * long, long=long, **place) if share else Markup("")
    count = Markup('<text class="count" x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>')
    inside = count.format(party.x, party.y + 4, _short(party.nodes)) if party.nodes else Markup("")
    return Markup("<g><title>{}</title>{}{}{}{}</g>").format(party.name + about, ring, far, inside, _named(party))


def _named(party: Drawn) -> Markup:
    """The name of a silo, on the side away from the middle, where lines to others do not run."""
    away = party.x - WIDTH / 2, party.y - HEIGHT / 2
    beside = party.radius < _DISC and abs(away[0]) > 1.5 * abs(away[1])
    most = 13 if beside else 22
    name = party.name if len(party.name) <= most else f"{party.name[: most - 1]}…"
    text = Markup('<text class="party" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>')
    if beside:
        side = math.copysign(1.0, away[0])
        return text.format(party.x + side * (party.radius + 13), party.y + 4, "start" if side > 0 else "end", name)
    below = party.radius + 24 if away[1] > -1 else -party.radius - 13
    return text.format(party.x, party.y + below, "middle", name)


def _short(number: int) -> str:
    """A number of nodes in few letters: ``12k``."""
    return f"{number:,}" if number < 10_000 else f"{number / 1000:,.0f}k" if number < 10**6 else f"{number / 1e6:,.1f}M"
