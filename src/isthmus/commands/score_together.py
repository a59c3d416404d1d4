"""Scoring together: each silo scores its own nodes, with fresh rows from beyond the boundary by their owners."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from isthmus.commands.predictions import outgoing, predictions
from isthmus.commands.trained_model import (
    configure,
    fitted,
    load_parameters,
    model_file,
    to_score,
)
from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Purpose
from isthmus.data.members import is_parts, member_names
from isthmus.federation.scaling import scaled_again
from isthmus.launch.host import open_run, telling_others
from isthmus.launch.ledgers import collect_ledgers
from isthmus.launch.party import parties_of
from isthmus.launch.policies import Policies
from isthmus.launch.settings import common_settings
from isthmus.launch.silos import load_silos
from isthmus.runs.config import RunConfig
from isthmus.runs.folder import RunFolder
from isthmus.train.training import Training
from isthmus.wire.distributed import DistributedWire
from isthmus.wire.ledger import Ledger
from isthmus.wire.local import LocalWire
from isthmus.wire.meeting import MeetingPlace, meet
from isthmus.wire.wire import Wire

_OF_LABELS = ("labelled by both", "labelled valid")  # in notes on labels, which scoring sets aside


def score_together(
    folder: RunFolder, data: str, sets: tuple[str, ...], silo: str | None, place: MeetingPlace | None, out: Path
) -> tuple[Any, list[str]]:
    """Predictions for the silos of this host, and notes; writes the ledger of what it sent and received beside ``out``.

    ``place``: as which party, and where it meets the others; None: all silos in this process, a simulation.
    """
    if not is_parts(data):
        raise IsthmusError(f"Silos score together on parts, and '{data}' has none; write them with 'isthmus split'.")
    config = configure(folder, data, sets, together=True)
    names = member_names(Path(data))
    config = replace(config, data=replace(config.data, silos=len(names), scale="none"))
    if place is None:
        return _score_over(LocalWire(len(names), config.method.chain), config, folder, silo, out)
    meeting = meet(place, parties_of(config, place.name), 0, config.system.timeout)
    try:
        config = replace(config, system=replace(config.system, hosts=meeting.hosts))
        settings = common_settings(config, resume=False)
        where = config.system.timeout, config.system.device
        wire = DistributedWire(len(names), *where, config.method.chain, settings, meeting)
        with telling_others(wire):
            found = _score_over(wire, config, folder, silo, out)
        wire.close_down()
        return found
    finally:
        meeting.close()


def _score_over(wire: Wire, config: RunConfig, folder: RunFolder, silo: str | None, out: Path) -> tuple[Any, list[str]]:
    """Ask policies, open the silos of this host over a wire, load the run's parameters, and score."""
    model = model_file(folder, silo if wire.hosts == 1 else _own_name(wire))
    policies = Policies.on(wire.mine, config, "")
    policies.check_run(wire.members)
    parts, unseen = fitted(load_silos(config.data, False, wire.mine), folder, config.data.name)
    policies.check_columns(parts)
    told = folder.metrics.get("scale", {})
    silos = [scaled_again(to_score(each, config.data.name), told) for each in parts]
    with policies.guarding(wire, out.parent, resume=False) as begin:
        training = open_run(config, wire, silos)
        policies.note(training.federation)
        load_parameters(training, model)
        begin(training)
        table = _predicted(training, wire)
        collected = collect_ledgers(wire, training.federation.notes)
    known = [note for note in collected.notes if not any(words in note for words in _OF_LABELS)]
    return table, [*dict.fromkeys([*unseen, *known]), _kept(collected.own, wire, out)]


def _predicted(training: Training, wire: Wire) -> Any:
    """Predictions for the silos of this host; over hosts also for edges whose target another silo owns."""
    import pyarrow as pa

    with wire.ledger.during(Purpose.TEST_ACROSS):
        table = predictions(training, training.stage.scorer)
        if wire.hosts > 1 and training.federation.schema.target == "edge":
            table = pa.concat_tables([table, outgoing(training)])
    return table


def _kept(own: Ledger, wire: Wire, out: Path) -> str:
    """Write the ledger of this host beside the predictions, and say where."""
    import pyarrow.parquet as pq

    path = out.with_name(f"{out.stem}-ledger.parquet")
    out.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(own.table(), path)
    how = f"; the wire was {wire.security}" if wire.security else ""
    return f"What crossed for these predictions is in {path}{how}."


def _own_name(wire: Wire) -> str | None:
    """The silo of this host; None at a server without any, which needs a model's shapes alone."""
    return wire.party(wire.mine[0]) if wire.mine else None
