"""Files that a run writes at its end: scores, models, ledger, releases and privacy guarantees, in the run folder."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from isthmus import kernels
from isthmus.core.files import private, write_atomic
from isthmus.core.kinds import SERVER, TESTS, Kind, Purpose
from isthmus.core.version import VERSION
from isthmus.engine.learner import CLASSIFIER
from isthmus.graph.digest import Digests
from isthmus.launch.ledgers import collect_ledgers
from isthmus.launch.privacy import privacy_of, take_account
from isthmus.launch.release_files import notes_on_draws, notes_on_idle_mechanisms, notes_on_noise, write_releases
from isthmus.launch.silo_tables import silo_curves, silo_figures, silo_sizes
from isthmus.methods.exchange.drift import drift_note, mean_drift
from isthmus.protect.accounting.guarantee import Guarantee, as_json, headline
from isthmus.runs.config import RunConfig
from isthmus.runs.folder import RunFolder
from isthmus.runs.network_time import Usage, link_times, phases, price_of_scores, used
from isthmus.train.judge import Verdict
from isthmus.train.loop import Result
from isthmus.train.metrics import Scores, led_by, metric_names
from isthmus.train.training import Training


def leave_behind(
    config: RunConfig, folder: RunFolder, result: Result, data: Mapping[str, Digests]
) -> dict[str, Any] | None:
    """Write models and releases on every host, and metrics and ledger at the server's; returns the metrics there.

    ``data``: hashes of what each silo of this host has read.
    """
    training = result.training
    wire = training.wire
    sizes, figures = silo_sizes(training), silo_figures(training)
    _note_what_happened(training, sizes)
    _write_models(training, folder)
    with private():
        write_releases(training, folder.path)
        accounts = take_account(training, folder.path)
    collected = collect_ledgers(wire, training.federation.notes)
    if not wire.houses(SERVER):
        return None
    usage, curve = _write_ledger(training, folder)
    metrics = {
        **_about(config, training, result),
        **_scored(result, usage),
        **_crossed(training, privacy_of(training, accounts), collected.transport),
        **_timed(training),
        "curve": curve,
        "silo_curves": silo_curves(training),
        "drift": mean_drift(_drifts(training)),
        "bytes_per_crossing": _bytes_per_crossing(training),
        "link": link_times(config.link, {} if config.method.merged else usage, sum(training.progress.computing)),
        "notes": collected.notes,
        "hosts": wire.hosts,
        "server": _server(training),
        "silo_nodes": sizes,
        "silo_figures": figures,
        "version": VERSION,
        "data_digests": data,
        "environment": _environment(config),
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


def _about(config: RunConfig, training: Training, result: Result) -> dict[str, Any]:
    """What was run: method, data, model, length, schema."""
    schema = training.federation.schema
    return {
        "method": config.method.name,
        "method_summary": config.method.summary,
        "label": config.label,
        "merged": config.method.merged,
        "data": config.data.name,
        "model": config.model.name,
        "silos": training.wire.silos,
        "seed": config.seed,
        "epochs": training.progress.epoch,
        "steps": training.progress.step,
        "metric": result.test.names[0],
        "average": training.train.average,
        "labels": list(schema.labels),
        "schema": asdict(schema),
        "scale": {name: scaling.as_dict() for name, scaling in training.federation.scaling.items()},
    }


def _scored(result: Result, usage: dict[str, Usage]) -> dict[str, Any]:
    """Fields of ``metrics.json`` on scores: of the run's own way of scoring, and under ``scored`` of every way."""
    sizes = {how: int(usage.get(purpose, Usage()).bytes) for how, purpose in TESTS.items()}
    each = {
        verdict.how: {"sees": _sees(result, verdict), **_verdict(verdict), "bytes": sizes[verdict.how]}
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


def _verdict(verdict: Verdict) -> dict[str, Any]:
    """Scores of the parameters that one way of scoring has selected; pooled ones where predictions were pooled."""
    splits = {"valid": verdict.valid, "test": verdict.test}
    known = {name: scores for name, scores in splits.items() if scores is not None}
    pooled = {f"{name}_pooled": s.pooled_dict() for name, s in known.items() if s.pooled is not None}
    each = {name: _scores(scores) for name, scores in splits.items()}
    return {**each, **pooled, "best_epoch": verdict.best_epoch, "seeds_scored": verdict.test.counts.tolist()}


def _crossed(training: Training, privacy: list[Guarantee], transport: dict[str, int]) -> dict[str, Any]:
    """Bytes that crossed, by kind and by the model that messages were about, and the privacy loss of each kind."""
    sizes = training.wire.ledger.by_kind()
    return {
        "bytes": {"total": sum(sizes.values()), **sizes},
        "bytes_by_model": training.wire.ledger.by_model(),
        "transport": transport,
        "epsilon": as_json(headline(privacy).epsilon),
        "privacy": [guarantee.as_dict() for guarantee in privacy],
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


def _write_ledger(training: Training, folder: RunFolder) -> tuple[dict[str, Usage], dict[str, list[Any]]]:
    """Write the ledger's three tables; returns network usage by purpose, and bytes and legs up to each validation."""
    import pyarrow.parquet as pq

    ledger, schema = training.wire.ledger, training.federation.schema
    steps, legs = ledger.step_table(), ledger.leg_table()
    for name, table in {"ledger": ledger.table(), "steps": steps, "legs": legs}.items():
        pq.write_table(table, folder.path / f"{name}.parquet")
    name = metric_names(schema)[led_by(training.train.metric, schema)[0]]
    scores = {line["epoch"]: line["valid"][name] for line in training.progress.history if "valid" in line}
    return used(phases(steps, legs), "purpose"), price_of_scores(steps, legs, scores)


def _bytes_per_crossing(training: Training) -> float | None:
    """Mean bytes, without gradients, of steps at which silos cross or the server corrects; None if there are none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lines, phase = training.wire.ledger.step_table(), training.stage.phase
    crossing = [Purpose.STEP] if phase.schedule.always else [Purpose.CROSSING, Purpose.MIXED]
    crossing = [*crossing, Purpose.CORRECTION]
    there = pc.is_in(lines["purpose"], pa.array([purpose.value for purpose in crossing]))
    lines = lines.filter(pc.and_(there, pc.not_equal(lines["kind"], Kind.GRADIENTS)))
    steps = len(pc.unique(lines["step"]))
    return pc.sum(lines["bytes"]).as_py() / steps if steps else None


def _scores(scores: Scores | None) -> dict[str, Any]:
    return {} if scores is None else {**scores.as_dict(), "silos": scores.per_silo()}


def _write_models(training: Training, folder: RunFolder) -> None:
    """Write ``model.safetensors``, and ``model-silo-N.safetensors`` where silos of this host have their own models.

    Other models than the classifier are written to ``model-NAME.safetensors``. Masks are multiplied into the weights,
    so that a model without masks can load them.
    """
    wire, personal = training.wire, training.stage.phase.sync.personal and training.wire.silos > 1
    for name, model in training.learner.models.items():
        live, stem = model.sets.unmasked(), "model" if name == CLASSIFIER else f"model-{name}"
        if personal:
            for i, silo in enumerate(wire.mine):
                write_atomic(folder.path / f"{stem}-silo-{silo}.safetensors", _one_set(live, i))
        if wire.houses(SERVER):
            write_atomic(folder.path / f"{stem}.safetensors", _one_set(live, 0))


def _one_set(live: dict[str, Tensor], place: int) -> bytes:
    """The tensors of one parameter set, as a safetensors file."""
    return save({name: t[min(place, len(t) - 1)][None].detach().cpu().contiguous() for name, t in live.items()})


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
