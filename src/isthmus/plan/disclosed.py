"""What a plan discloses, for a sheet: who would receive what from whom, which columns are used, what is promised."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from isthmus.core.version import VERSION
from isthmus.launch.artifacts import what_was_chosen
from isthmus.protect.accounting.guarantee import DP, EDGE, ENTRY, LABEL, NODE, ROW, Guarantee
from isthmus.runs.circumstances import circumstances
from isthmus.runs.config import RunConfig
from isthmus.runs.passages import passages_of
from isthmus.runs.summary import Flow
from isthmus.train.training import Training

# From a step of the trial, a kind and a purpose: the factors from its messages, and from its rows, to the whole run's.
Factors = Callable[[int, str, str], tuple[float, float]]
_FORESEEN = (NODE, EDGE, ROW)  # units whose releases a trial can count
# By unit, what a guarantee that no trial can foresee is of, and why it cannot.
_LATER = {
    ROW: ("rows hidden among near ones (metric privacy)", "measured on the rows that are released"),
    LABEL: ("one training label", "counted from the steps that are taken"),
    ENTRY: ("one entry of a list of neighbours", "counted from the draws that are made"),
}


def disclosure_of(
    config: RunConfig,
    training: Training,
    epochs: int,
    sizes: Mapping[str, Mapping[str, int]],
    factors: Factors,
    known: Sequence[Guarantee],
    epsilon: Mapping[str, float | str],
) -> dict[str, Any]:
    """The evidence of a sheet as JSON. ``known``: guarantees; ``epsilon``: by kind, or a reason why it is unknown."""
    schema = training.federation.schema
    lines = [] if config.method.merged else training.wire.ledger.table().to_pylist()
    crossed = {(line["kind"], line["purpose"]) for line in lines}
    happened = circumstances(crossed, {line["event"] for line in lines}, config.as_dict(), schema.target)
    foreseen = [each for each in known if each.unit in _FORESEEN and each.notion == DP]
    unknown = {of: why for of, why in epsilon.items() if isinstance(why, str) and why != "inf"}
    unknown = {of: why.removeprefix("unknown: ") for of, why in unknown.items()}
    unknown |= dict(_LATER[each.unit] for each in known if each not in foreseen)
    return {
        "facts": _facts(config, training, sizes) | {"epochs": epochs},
        "config": config.toml(),
        "passages": [asdict(each) for each in passages_of(planned_flows(lines, factors))] if lines else [],
        "privacy": [each.as_dict() for each in foreseen],
        "happened": sorted(happened),
        "why_unknown": unknown,
    }


def _facts(config: RunConfig, training: Training, sizes: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Facts of the planned run under the keys of ``metrics.json``."""
    return {
        **what_was_chosen(config, training.wire.silos),
        "schema": asdict(training.federation.schema),
        "scale": {name: {"how": each.how, "why": each.why} for name, each in training.federation.scaling.items()},
        "silo_nodes": {silo: dict(each) for silo, each in sizes.items()},
        "notes": list(training.federation.notes),
        "version": VERSION,
    }


def planned_flows(lines: Sequence[Mapping[str, Any]], factors: Factors) -> list[Flow]:
    """The flows of the whole run, scaled from those of the trial."""
    sums: dict[tuple[str, str, str, str], list[float]] = {}
    for line in lines:
        often, rows = factors(line["step"], line["kind"], line["purpose"])
        held = sums.setdefault((line["sender"], line["receiver"], line["kind"], line["event"]), [0.0, 0.0, 0.0])
        scaled = (line["messages"] * often, line["rows"] * rows, line["bytes"] * rows)
        held[:] = [before + more for before, more in zip(held, scaled, strict=True)]
    return [Flow(*key, round(sent), round(rows), round(size), 0) for key, (sent, rows, size) in sums.items()]
