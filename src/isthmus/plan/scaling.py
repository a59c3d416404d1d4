"""What a trial sent, scaled to the whole run: bytes by purpose and kind, and the time that they take over a network."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from isthmus.core.kinds import ROWS, Kind, Purpose
from isthmus.plan.trial import Tried
from isthmus.runs.config import RunConfig
from isthmus.runs.network_time import Usage, link_times, phases, used
from isthmus.wire.ledger import Ledger

Sizes = dict[tuple[str, str], float]  # bytes by purpose and kind
# Kinds of which as many leave as drawn nodes need.
SAMPLED = (
    *(Kind.IDS, *ROWS, Kind.SHARE_SUMS),
    *(Kind.FEATURES, Kind.LABELS, Kind.EDGES, Kind.GENERATED, Kind.ROW_GRADIENTS),
)


def bytes_by_phase(ledger: Ledger, tried: Sequence[Tried]) -> list[Sizes]:
    """Bytes of each phase of the whole run, scaled from those of its trial."""
    sizes: list[Sizes] = [{} for _ in tried]
    for line in ledger.step_table().group_by(["step", "purpose", "kind"]).aggregate([("bytes", "sum")]).to_pylist():
        place, key = _phase_at(tried, line["step"]), (line["purpose"], line["kind"])
        _, rows = factors_of(tried, line["step"], line["kind"], line["purpose"])
        sizes[place][key] = sizes[place].get(key, 0.0) + line["bytes_sum"] * rows
    return sizes


def factors_of(tried: Sequence[Tried], step: int, kind: str, purpose: str) -> tuple[float, float]:
    """By which factors messages, and rows and bytes, of a step of the trial are scaled to the whole run."""
    phase, why = tried[_phase_at(tried, step)], Purpose(purpose)
    return phase.often[why], (phase.rows if kind in SAMPLED else phase.often)[why]


def _phase_at(tried: Sequence[Tried], step: int) -> int:
    """The phase that a step of the trial belongs to, counted from 1; set-up belongs to the first."""
    return bisect_left([each.last_step for each in tried[:-1]], step)


def over_phases(sizes: Sequence[Sizes]) -> Sizes:
    """Bytes by purpose and kind, summed over phases."""
    keys = dict.fromkeys(key for each in sizes for key in each)
    return {key: sum(each.get(key, 0.0) for each in sizes) for key in keys}


def network_times(config: RunConfig, ledger: Ledger, tried: Sequence[Tried], sizes: Sequence[Sizes]) -> dict[str, Any]:
    """The table ``link`` of the plan: time over the network, from legs and bytes scaled to the whole run."""
    usage: dict[str, Usage] = {}
    if not config.method.merged:
        lines = phases(ledger.step_table(), ledger.leg_table())
        places = [_phase_at(tried, step) for step in lines["step"].to_pylist()]
        for place, (phase, mine) in enumerate(zip(tried, sizes, strict=True)):
            found = used(lines.filter([each == place for each in places]), "purpose")
            for purpose, use in _whole_usage(found, phase.often, mine).items():
                usage[purpose] = usage.get(purpose, Usage()) + use
    return link_times(config.link, usage, sum(phase.seconds for phase in tried))


def _whole_usage(found: Mapping[str, Usage], often: Mapping[Purpose, float], sizes: Sizes) -> dict[str, Usage]:
    """Usage of the network in a whole phase, by purpose; losses are one message an epoch, longer with more steps."""
    trips = {**often, Purpose.LOSSES: often[Purpose.ORDER]}
    whole = {purpose: sum(size for (of, _), size in sizes.items() if of == purpose) for purpose in found}
    return {
        purpose: use.times(whole[purpose] / use.bytes if use.bytes else 0.0, trips[Purpose(purpose)])
        for purpose, use in found.items()
    }
