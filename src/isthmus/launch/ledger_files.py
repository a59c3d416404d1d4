"""A ledger's tables as files, and what a run's results tell of them."""

from __future__ import annotations

from typing import Any

from isthmus.core.kinds import Kind, Purpose
from isthmus.runs.folder import RunFolder
from isthmus.runs.network_time import Usage, phases, price_of_scores, used
from isthmus.runs.tables import write_checked
from isthmus.train.metrics import led_by, metric_names
from isthmus.train.training import Training
from isthmus.wire.ledger import Ledger


def write_ledger(
    training: Training, ledger: Ledger, folder: RunFolder
) -> tuple[dict[str, Usage], dict[str, list[Any]]]:
    """Write a ledger's three tables; returns network usage by purpose, and bytes and legs up to each validation."""
    schema = training.federation.schema
    steps, legs = ledger.step_table(), ledger.leg_table()
    for name, table in {"ledger": ledger.table(), "steps": steps, "legs": legs}.items():
        write_checked(table, folder.path / f"{name}.parquet")
    name = metric_names(schema)[led_by(training.train.metric, schema)[0]]
    scores = {line["epoch"]: line["valid"][name] for line in training.progress.history if "valid" in line}
    return used(phases(steps, legs), "purpose"), price_of_scores(steps, legs, scores)


def bytes_per_crossing(training: Training, ledger: Ledger) -> float | None:
    """Mean bytes, without gradients, of steps at which silos cross or the server corrects; None if there are none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lines, phase = ledger.step_table(), training.stage.phase
    crossing = [Purpose.STEP] if phase.schedule.always else [Purpose.CROSSING, Purpose.MIXED]
    crossing = [*crossing, Purpose.CORRECTION]
    there = pc.is_in(lines["purpose"], pa.array([purpose.value for purpose in crossing]))
    lines = lines.filter(pc.and_(there, pc.not_equal(lines["kind"], Kind.GRADIENTS)))
    steps = len(pc.unique(lines["step"]))
    return pc.sum(lines["bytes"]).as_py() / steps if steps else None
