"""Files that a run writes at its end: scores, models, ledger, releases and privacy guarantees, in the run folder."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import torch

from isthmus import kernels
from isthmus.core.files import private
from isthmus.core.kinds import SERVER, TESTS
from isthmus.core.version import VERSION
from isthmus.graph.digest import Digests
from isthmus.graph.encoding import told_columns
from isthmus.launch.ledger_files import bytes_per_crossing, write_ledger
from isthmus.launch.ledgers import collect_ledgers
from isthmus.launch.model_files import have_own_models, write_models
from isthmus.launch.party_files import Perspective, about_party, party_folder, party_view, write_what_all_know
from isthmus.launch.privacy import privacy_of, take_account
from isthmus.launch.release_files import notes_on_draws, notes_on_idle_mechanisms, notes_on_noise, write_releases
from isthmus.launch.silo_tables import silo_curves, silo_figures, silo_sizes
from isthmus.methods.exchange.drift import drift_note, mean_drift
from isthmus.protect.accounting.guarantee import as_json, headline
from isthmus.runs.config import RunConfig
from isthmus.runs.folder import RunFolder
from isthmus.runs.kept_config import digest_of_config
from isthmus.runs.network_time import Usage, link_times
from isthmus.train.judge import Verdict
from isthmus.train.metrics import Scores
from isthmus.train.result import Result
from isthmus.train.training import Training


def leave_behind(
    config: RunConfig, folder: RunFolder, result: Result, data: Mapping[str, Digests]
) -> dict[str, Any] | None:
    """Write what this host is left with: of the whole run at the server's, and of its own parties on every host.

    Returns the metrics of the run folder; None where another host writes them there. ``data``: hashes of what
    each silo of this host has read.
    """
    training = result.training
    wire, notes = training.wire, training.federation.notes
    sizes, figures = silo_sizes(training), silo_figures(training)
    _note_what_happened(training, sizes)
    at_server = wire.houses(SERVER)
    common = at_server or folder.shared
    with private():
        accounts = take_account(training, folder.path if common else None)
    collected = collect_ledgers(wire, notes)
    found = None
    sheet = _MetricsSheet(config, result, data, sizes, figures)
    if common:
        write_models(training, folder.path, at_server)
        with private():
            write_releases(training, folder.path, f"-host-{wire.host}" if wire.host else "")
    if at_server:
        everything = Perspective(wire.ledger, collected.transport, collected.notes, privacy_of(training, accounts))
        found = sheet.write(folder, everything)
    if wire.hosts > 1 and (folder.shared or not at_server):
        own = party_folder(folder, wire)
        write_models(training, own.path, not (wire.mine and have_own_models(training)))
        with private():
            write_releases(training, own.path)
        if folder.shared:
            write_what_all_know(training, config, own)
        mine = sheet.write(own, party_view(training, accounts, collected, notes), about_party(wire))
        found = found or (None if folder.shared else mine)
    return found


@dataclass(frozen=True)
class _MetricsSheet:
    """What ``metrics.json`` tells of a run, whoever reads it."""

    config: RunConfig
    result: Result
    data: Mapping[str, Digests]
    sizes: Mapping[str, Any]
    figures: Mapping[str, Any]

    def write(self, folder: RunFolder, view: Perspective, party: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Write the ledger and ``metrics.json`` of a view into a folder; returns the metrics."""
        config, training = self.config, self.result.training
        usage, curve = write_ledger(training, view.ledger, folder)
        metrics = {
            **_about(config, training, self.result),
            **({"party": dict(party)} if party else {}),
            **_scored(self.result, usage, view),
            **_crossed(view),
            **_timed(training),
            "curve": curve,
            "silo_curves": view.of_mine(silo_curves(training)),
            "drift": mean_drift(_drifts(training)),
            "bytes_per_crossing": bytes_per_crossing(training, view.ledger),
            "link": link_times(config.link, {} if config.method.merged else usage, sum(training.progress.computing)),
            "notes": view.notes,
            "hosts": training.wire.hosts,
            "server": _server(training),
            "wire": training.wire.security,
            "parties": training.wire.introduced,
            "silo_nodes": view.of_mine(self.sizes),
            "silo_figures": view.of_mine(self.figures),
            "version": VERSION,
            "data_digests": self.data,
            "environment": {**_environment(config), "config_sha256": digest_of_config(folder.path)},
        }
        folder.write_json("metrics.json", metrics)
        return metrics


def _note_what_happened(training: Training, sizes: dict[str, dict[str, int]]) -> None:
    """Add notes that only the end of a run can make: on empty silos, divergence, sums in the ledger, noise, drift."""
    note = training.federation.note
    for silo, size in sizes.items():
        if not size["nodes"]:
            note(f"{silo} owns no nodes.")
    lost = next((line["step"] for line in training.progress.history if line["loss"] is None), None)
    if lost is not None:
        note(f"The loss was no finite number from step {lost} on; try a smaller train.lr.")
    since = training.wire.ledger.summed_since
    if since is not None:
        note(
            f"From epoch {since} on ledger.parquet has sums over steps: there are too many pairs of parties for a line "
            "each at every step. steps.parquet tells every step."
        )
    why = kernels.why_not_compiled(training.device)
    if why:
        note(f"Without compiled kernels this run was slower, and no less right: {why}.")
    told = [*notes_on_noise(training.wire), *notes_on_idle_mechanisms(training.wire), *notes_on_draws(training)]
    for sentence in [*told, *training.stage.exchange.notes(), *drift_note(_drifts(training))]:
        note(sentence)


def _drifts(training: Training) -> list[float | None]:
    """How far kept rows had moved, of every silo at every validation."""
    return [drift for line in training.progress.history for drift in line.get("silo_drift", ())]


def what_was_chosen(config: RunConfig, silos: int) -> dict[str, Any]:
    """Method, data, model and seed of a run, or of a planned one, under the keys of ``metrics.json``."""
    return {
        "method": config.method.name,
        "method_summary": config.method.summary,
        "label": config.label,
        "merged": config.method.merged,
        "data": config.data.name,
        "model": config.model.name,
        "silos": silos,
        "seed": config.seed,
    }


def _about(config: RunConfig, training: Training, result: Result) -> dict[str, Any]:
    """What was run: method, data, model, length, schema."""
    schema = training.federation.schema
    return {
        **what_was_chosen(config, training.wire.silos),
        "epochs": training.progress.epoch,
        "steps": training.progress.step,
        "metric": result.test.names[0],
        "average": training.train.average,
        "labels": list(schema.labels),
        "schema": asdict(schema),
        "columns": {table: told_columns(columns) for table, columns in training.federation.columns.items()},
        "scale": {name: scaling.as_dict() for name, scaling in training.federation.scaling.items()},
    }


def _scored(result: Result, usage: dict[str, Usage], view: Perspective) -> dict[str, Any]:
    """Fields of ``metrics.json`` on scores: of the run's own way of scoring, and under ``scored`` of every way."""
    sizes = {how: int(usage.get(purpose, Usage()).bytes) for how, purpose in TESTS.items()}
    each = {
        verdict.how: {"sees": _sees(result, verdict), **_verdict(verdict, view), "bytes": sizes[verdict.how]}
        for verdict in result.verdicts
    }
    first = result.verdicts[0].how
    known_by = {key: value for key, value in each[first].items() if key not in ("bytes", "sees")}
    return {"score": first, **known_by, "scored": each}


def _sees(result: Result, verdict: Verdict) -> str:
    """What a way of scoring sees of the graph (own edges, across, ...); only runs that see alike are compared."""
    method = result.training.method
    if method.merged:
        return "global"
    return result.training.stage.phase.exchange.sees if verdict.how == "trained" else verdict.how


def _verdict(verdict: Verdict, view: Perspective) -> dict[str, Any]:
    """Scores of the parameters that one way of scoring has selected; pooled ones where predictions were pooled."""
    splits = {"valid": verdict.valid, "test": verdict.test}
    known = {name: scores for name, scores in splits.items() if scores is not None}
    pooled = {f"{name}_pooled": s.pooled_dict() for name, s in known.items() if s.pooled is not None}
    each = {name: _scores(scores, view) for name, scores in splits.items()}
    alerts = {**verdict.alerts, "silos": view.of_mine(verdict.alerts["silos"])} if verdict.alerts else {}
    pooled |= {"alerts": alerts} if alerts else {}
    return {**each, **pooled, "best_epoch": verdict.best_epoch, "seeds_scored": verdict.test.counts.tolist()}


def _crossed(view: Perspective) -> dict[str, Any]:
    """Bytes that crossed, by kind and by the model that messages were about, and the privacy loss of each kind."""
    sizes = view.ledger.by_kind()
    return {
        "bytes": {"total": sum(sizes.values()), **sizes},
        "bytes_by_model": view.ledger.by_model(),
        "transport": dict(view.transport),
        "epsilon": as_json(headline(view.privacy).epsilon),
        "privacy": [guarantee.as_dict() for guarantee in view.privacy],
    }


def _timed(training: Training) -> dict[str, Any]:
    """How long training took."""
    progress = training.progress
    return {
        "seconds": progress.seconds,
        "seconds_on_wire": progress.wire_seconds,
        "seconds_per_step": progress.seconds / max(progress.step, 1),
        "seconds_by_epoch": [round(seconds, 6) for seconds in progress.computing],
    }


def _server(training: Training) -> dict[str, Any]:
    """The host of the server, and the silos on it, whose owners could see what the server saw."""
    wire = training.wire
    beside = [wire.party(silo) for silo in wire.members.shared_with_server]
    return {"host": wire.members.home(SERVER), "beside": beside}


def _scores(scores: Scores | None, view: Perspective) -> dict[str, Any]:
    return {} if scores is None else {**scores.as_dict(), "silos": view.of_mine(scores.per_silo())}


def _environment(config: RunConfig) -> dict[str, Any]:
    return {
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "kernels": kernels.describe_kernels(torch.device(config.system.device)),
        "device": torch.cuda.get_device_name() if config.system.device == "cuda" else "cpu",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
