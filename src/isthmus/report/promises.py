"""Guarantees on a disclosure sheet: epsilon by kind and unit, the worst case first, metric privacy with rho and k."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from isthmus.core.kinds import Kind
from isthmus.protect.accounting.guarantee import (
    DP,
    EVERYTHING,
    LISTS,
    METRIC,
    OF_A_SAMPLE,
    STEPS_TAKEN,
    UNITS,
    Guarantee,
)
from isthmus.report.disclosed import Disclosed
from isthmus.runs.plain_words import WORDS
from isthmus.runs.text import epsilon_text

_NAMES = {
    EVERYTHING: "everything that left",
    STEPS_TAKEN: "whatever follows from the trained weights",
    LISTS: "draws of neighbour lists",
}
_PERCENTILE = "90"  # of nodes, of which metric privacy is told


@dataclass(frozen=True)
class Promise:
    """A guarantee on the sheet: of what, for whose data, in which sense, how strong; ``about`` says how to read it."""

    of: str
    name: str
    unit: str
    notion: str
    epsilon: float | str
    delta: float
    releases: int
    void: bool
    text: str
    about: str


def promises(told: Disclosed) -> list[Promise]:
    """All guarantees, that of everything first, then from the weakest to the strongest."""
    ordered = sorted(told.guarantees, key=lambda each: (each.of != EVERYTHING, -each.epsilon))
    return [_promise(told, each) for each in ordered]


def _promise(told: Disclosed, each: Guarantee) -> Promise:
    """One guarantee in words."""
    metric = each.notion in (METRIC, OF_A_SAMPLE)
    text, about = _metric(each) if metric else (_text(told, each), _about(each))
    name = _NAMES.get(each.of) or (WORDS[Kind(each.of)].name if each.of in set(Kind) else each.of)
    return Promise(
        each.of, name, each.unit, each.notion, each.epsilon, each.delta, each.releases, each.void, text, about
    )


def _text(told: Disclosed, each: Guarantee) -> str:
    """Epsilon as text; that there is none yet, or no guarantee."""
    if each.of in told.why_unknown and each.notion == DP:
        return "not known"
    return "no guarantee" if each.void else epsilon_text(each.epsilon)


def _about(each: Guarantee) -> str:
    """Of what a guarantee is, and what leaves it without a bound."""
    parts = [f"{UNITS[each.unit]}; {each.notion}"]
    if each.bare:
        names = [WORDS[Kind(kind)].name if kind in set(Kind) else kind for kind in each.bare]
        parts.append(f"without noise: {', '.join(names)}")
    elif 0 < each.epsilon < float("inf"):
        parts.append(f"δ = {each.delta:g}")
    return "; ".join(parts)


def _metric(each: Guarantee) -> tuple[str, str]:
    """The text of a metric guarantee: epsilon of nine nodes in ten at the silo that fared worst, with its rho and k."""
    worst = max(_of_silos(each), key=lambda figures: figures["epsilon"], default=None)
    if worst is None:
        return "not measured", UNITS[each.unit]
    about = (
        f"the rows of nine nodes in ten, hidden among rows within ρ = {worst['rho']:.3g} (where their k = "
        f"{worst['k']} nearest lie; two at random are {worst['spread']:.3g} apart), and not beyond; δ = {each.delta:g}"
    )
    return f"{epsilon_text(worst['epsilon'])} at ρ, k", about


def _of_silos(each: Guarantee) -> Iterator[Mapping[str, Any]]:
    """Yield epsilon, rho, k and spread of every silo, at the percentile that the sheet tells."""
    for figures in each.silos.values():
        of = " of a sample" if f"rho{' of a sample'}" in figures else ""
        numbers = {name: float(figures[f"{name}{of}"][_PERCENTILE]) for name in ("epsilon", "rho")}
        yield {**numbers, "k": int(figures["k"]), "spread": float(figures["spread"])}
