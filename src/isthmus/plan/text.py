"""A plan as text for people: a table of bytes, and sentences on time and on which figures are exact."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from isthmus.plan.plan import Plan
from isthmus.protect.accounting.guarantee import EVERYTHING
from isthmus.runs.network_time import LinkConfig
from isthmus.runs.text import bytes_text, count_text, epsilon_text, wait_text

_PARTS = {"setup": "before", "training": "training", "validation": "validation", "end": "after"}


def plan_table(plan: Plan, name: str) -> Table:
    """Bytes by kind and part of the run, round trips below; ``~`` marks what was extrapolated."""
    length = plan.length
    often = [count_text(number, what) for what, number in (("step", length.steps), ("round", length.rounds))]
    title = f"{name}: {', '.join(often)}, {count_text(length.validations, 'validation')}"
    table = Table(title=Text(title), title_justify="left")
    table.add_column("bytes")
    for column in (*_PARTS.values(), "in all", *(["epsilon"] if plan.epsilon is not None else [])):
        table.add_column(column, justify="right")
    for kind, size in plan.by_kind.items():
        about = "~" if kind in plan.extrapolated else ""
        parts = [plan.bytes[part].get(kind, 0) for part in _PARTS]
        marks = [about if part == "training" else "" for part in _PARTS]
        cells = [_size(size, mark) for size, mark in zip(parts, marks, strict=True)]
        table.add_row(kind, *cells, _size(size, about), *_epsilon(plan, kind))
    table.add_section()
    trips = [plan.link["parts"][part]["round_trips"] for part in _PARTS]
    table.add_row("round trips", *(f"{number:,.10g}" for number in (*trips, sum(trips))))
    return table


def _size(size: int, about: str) -> str:
    return about + bytes_text(size) if size else "–"


def _epsilon(plan: Plan, kind: str) -> list[str]:
    if plan.epsilon is None:
        return []
    loss = plan.epsilon.get(kind)
    if loss is None:  # names, counts and the like, which no epsilon covers
        return ["–"]
    return ["unknown" if isinstance(loss, str) and loss != "inf" else epsilon_text(float(loss))]


def sentences(plan: Plan, link: LinkConfig, seeds: int) -> Iterator[str]:
    """Yield sentences on time over the network, on which figures are exact, on epsilon, and the plan's notes."""
    times = plan.link
    computing, transfer, latency = (wait_text(times[f"{key}_seconds"]) for key in ("compute", "transfer", "latency"))
    yield (
        f"Over links of {link} a round trip: about {wait_text(times['seconds'])} until training ends, of which "
        f"{computing} of computing, {transfer} of transfer and {latency} of latency."
    )
    if plan.smaller:
        yield plan.smaller
    tried = f"{count_text(plan.trial.steps, 'trial step')} of all silos in this process"
    if plan.extrapolated:
        yield f"Exact: bytes without ~, and round trips. Extrapolated from {tried}: bytes with ~, transfer, computing."
    else:
        yield f"Exact: bytes, round trips, transfer and latency. Extrapolated from {tried}: computing."
    if seeds > 1:
        yield f"These are the figures of one seed; {seeds} seeds take {seeds} times as much."
    if plan.epsilon is not None:
        yield f"Epsilon of one node, over everything that leaves: {_epsilon(plan, EVERYTHING)[0]}."
    for kind, loss in (plan.epsilon or {}).items():
        if isinstance(loss, str) and loss != "inf":
            yield f"Epsilon of {kind} is {loss}."
    yield from (f"note: {note}" for note in plan.notes)
