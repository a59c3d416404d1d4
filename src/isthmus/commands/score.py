"""What ``isthmus score`` does: predictions of a trained model for new data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from isthmus.commands.predictions import check_suffix, predictions, write_table
from isthmus.commands.score_together import score_together
from isthmus.commands.trained_model import (
    configure,
    fitted,
    load_parameters,
    model_file,
    part_number,
    to_score,
)
from isthmus.data.members import is_parts, member_names
from isthmus.federation.scaling import scaled_again
from isthmus.federation.schema_agreement import agree_schema
from isthmus.graph.merged import merge
from isthmus.graph.silo import Silo, keep_edges
from isthmus.launch.host import open_run
from isthmus.launch.silos import load_silos
from isthmus.runs.data_config import DataConfig
from isthmus.runs.folder import RunFolder
from isthmus.wire.local import LocalWire
from isthmus.wire.meeting import MeetingPlace


@dataclass(frozen=True)
class ScoreRequest:
    """What is to be scored: a run's model, on which data, for which silo alone, or together with whom."""

    run: str
    data: str
    sets: tuple[str, ...] = ()
    out: Path | None = None
    silo: str | None = None
    together: bool = False
    place: MeetingPlace | None = None  # as which party, and where it meets the others


@dataclass(frozen=True)
class Predicted:
    """The file of predictions, how many rows it has, and what must be said of them."""

    path: Path
    rows: int
    notes: tuple[str, ...] = ()


def score_command(request: ScoreRequest) -> Predicted:
    """Score every node (or edge) of new data with a run's model. Labels in the data are not needed.

    Without more all data is one graph. With a silo's name it scores its own part of it, along its own edges; together,
    silos get fresh rows from beyond the boundary, which their owners compute.
    """
    folder = RunFolder.open(request.run)
    path = request.out or folder.path / "predictions.parquet"
    check_suffix(path)
    if request.together or request.place:
        table, notes = score_together(folder, request.data, request.sets, request.silo, request.place, path)
    else:
        table, notes = _score_alone(folder, request)
    write_table(table, path)
    return Predicted(path, len(table), tuple(notes))


def _score_alone(folder: RunFolder, request: ScoreRequest) -> tuple[Any, list[str]]:
    """Predictions by one party: for all data as one graph, or for one silo's part along its own edges."""
    data, notes = request.data, list[str]()
    config = configure(folder, data, request.sets)
    model = model_file(folder, request.silo, not is_parts(data))
    if request.silo is not None and is_parts(data):
        silos, notes = _own_part(config.data, request.silo)
    else:
        silos = load_silos(config.data, merged=False)
    silos, unseen = fitted(silos, folder, data)
    part = to_score(merge(agree_schema(LocalWire(len(silos)), silos)[0]), data)
    part = scaled_again(part, folder.metrics.get("scale", {}))
    training = open_run(replace(config, data=replace(config.data, scale="none")), LocalWire(1), [part])
    load_parameters(training, model)
    return predictions(training, training.stage.scorer), [*notes, *unseen]


def _own_part(config: DataConfig, name: str) -> tuple[list[Silo], list[str]]:
    """One silo's part without the edges that leave it, and how many these were."""
    (silo,) = load_silos(config, False, [part_number(member_names(Path(config.name)), name)])
    cut = int(silo.crosses.sum())
    told = f"{silo.name} was scored along its own edges: {cut:,} edges that leave it were left out."
    return [replace(keep_edges(silo, ~silo.crosses), number=0)], [told] if cut else []
