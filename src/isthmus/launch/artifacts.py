"""What a run leaves behind: scores, models, ledger, releases and the loss of privacy, in the run folder."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import torch
from safetensors.torch import save

from isthmus import kernels
from isthmus.evaluate import Scores
from isthmus.metrics import led_by, metric_names
from isthmus.run.config import RunConfig
from isthmus.run.folder import RunFolder, write_atomic
from isthmus.run.link import Usage, link_times, phases, price_of_scores, used
from isthmus.run.released import notes_on_noise, privacy_of, row_losses, write_releases
from isthmus.state import Run
from isthmus.train import Result
from isthmus.wire.ledger import SERVER, Kind, Purpose


def leave_behind(config: RunConfig, folder: RunFolder, result: Result) -> dict[str, Any] | None:
    """Collect ledgers and models at the server's host, and write the final files there."""
    run = result.run
    sizes = silo_sizes(run)
    for silo, size in sizes.items():
        if not size["nodes"]:
            run.federation.note(f"{silo} owns no nodes.")
    lost = next((line["step"] for line in run.history if line["loss"] is None), None)
    if lost is not None:
        run.federation.note(f"The loss was no finite number from step {lost} on; try a smaller train.lr.")
    why = kernels.missing(run.device)
    if why:
        run.federation.note(f"Without compiled kernels this run was slower, and no less right: {why}.")
    for note in [*notes_on_noise(run.wire), *run.exchange.notes(run)]:
        run.federation.note(note)
    _write_models(run, folder)
    write_releases(run, result.last, folder.path)
    losses = row_losses(run)
    transport = _collect_ledgers(run)
    if not run.wire.serves:
        return None
    bytes_by_kind, privacy = run.wire.ledger.by_kind(), privacy_of(run, losses)
    usage, curve = _write_ledger(run, folder)
    metrics = {
        "method": config.method.name,
        "data": config.data.name,
        "model": config.model.name,
        "silos": run.wire.silos,
        "seed": config.seed,
        "epochs": run.epoch,
        "steps": run.step,
        "metric": result.test.names[0],
        "labels": list(run.schema.labels),
        "schema": asdict(run.schema),
        "valid": _scores(result.valid),
        "test": _scores(result.test),
        **_pooled(result),
        "scale": {name: [m.tolist(), d.tolist()] for name, (m, d) in run.federation.moments.items()},
        "best_epoch": result.best_epoch,
        "bytes": {"total": sum(bytes_by_kind.values()), **bytes_by_kind},
        "transport": transport,
        "seconds": run.seconds,
        "seconds_on_wire": run.wire_seconds,
        "seconds_per_step": run.seconds / max(run.step, 1),
        "seconds_by_epoch": [round(seconds, 6) for seconds in run.computing],
        "curve": curve,
        "bytes_per_crossing": _bytes_per_crossing(run),
        "link": link_times(config.link, {} if config.method.merged else usage, sum(run.computing)),
        "epsilon": {kind: privacy.get(kind, {}).get("epsilon", "inf") for kind in bytes_by_kind},
        "privacy": privacy,
        "notes": run.federation.notes,
        "hosts": run.wire.hosts,
        "silo_nodes": sizes,
        "environment": _environment(config),
    }
    folder.write_json("metrics.json", metrics)
    return metrics


def _write_ledger(run: Run, folder: RunFolder) -> tuple[dict[str, Usage], dict[str, list[Any]]]:
    """``ledger.parquet`` and ``legs.parquet``; returns what crossed by purpose, and the price of each validation."""
    import pyarrow.parquet as pq

    lines, legs = run.wire.ledger.table(), run.wire.ledger.leg_table()
    pq.write_table(lines, folder.path / "ledger.parquet")
    pq.write_table(legs, folder.path / "legs.parquet")
    table = phases(lines, legs)
    metric = led_by(run.train.metric, run.schema)[0]
    name = metric_names(run.schema)[metric]
    scores = {line["epoch"]: line["valid"][name] for line in run.history if "valid" in line}
    return used(table, "purpose"), price_of_scores(lines, legs, scores)


def _bytes_per_crossing(run: Run) -> float | None:
    """What crossed in the mean at a step at which silos cross, apart from gradients; None where none did."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lines = run.wire.ledger.table()
    crossing = [Purpose.STEP] if run.schedule.always else [Purpose.CROSSING, Purpose.MIXED]
    there = pc.is_in(lines["purpose"], pa.array([purpose.value for purpose in crossing]))
    lines = lines.filter(pc.and_(there, pc.not_equal(lines["kind"], Kind.GRADIENTS)))
    steps = len(pc.unique(lines["step"]))
    return pc.sum(lines["bytes"]).as_py() / steps if steps else None


def _scores(scores: Scores | None) -> dict[str, Any]:
    return {} if scores is None else {**scores.as_dict(), "silos": scores.per_silo()}


def _pooled(result: Result) -> dict[str, Any]:
    """``valid_pooled`` and ``test_pooled``, where predictions were pooled."""
    splits = {"valid": result.valid, "test": result.test}
    return {f"{name}_pooled": s.pooled_dict() for name, s in splits.items() if s is not None and s.pooled is not None}


def silo_sizes(run: Run) -> dict[str, dict[str, int]]:
    """Nodes, halo, training seeds, and bytes in tables of every silo, as the silos themselves tell them."""
    kept = run.exchange.table_bytes(run)
    counts = torch.tensor([[silo.n, silo.h, size] for silo, size in zip(run.federation.silos, kept, strict=True)])
    shared = run.wire.share(Kind.METRICS, counts).tolist()
    seeds = run.train_pool.counts.tolist()
    names = ("nodes", "halo", "table_bytes")
    return {
        run.wire.party(i): {**dict(zip(names, row, strict=True)), "train": seeds[i]} for i, row in enumerate(shared)
    }


def _write_models(run: Run, folder: RunFolder) -> None:
    """``model.safetensors``: one model where all silos hold the same, else one for each silo of this host."""
    live = run.sets.everything()
    for i, silo in enumerate(run.wire.mine):
        mine = {name: t[min(i, len(t) - 1)][None].detach().cpu().contiguous() for name, t in live.items()}
        if run.sync.personal and run.wire.silos > 1:
            write_atomic(folder.path / f"model-silo-{silo}.safetensors", save(mine))
        if silo == 0:
            write_atomic(folder.path / "model.safetensors", save(mine))


def _collect_ledgers(run: Run) -> dict[str, int]:
    """Every host's lines go to the server's host; what is sent here for the purpose is not in the ledger itself."""
    ledger, wire = run.wire.ledger, run.wire
    lines, events, transport = ledger.lines(), list(ledger.events), dict(ledger.transport)
    if wire.hosts == 1:
        return transport
    text = json.dumps([events, transport]).encode()
    first = wire.mine[0]
    sent = {(first, SERVER): lines}
    got_lines = wire._deliver(Kind.METRICS, dict(sent))
    got_text = wire._deliver(Kind.METRICS, {(first, SERVER): torch.frombuffer(bytearray(text), dtype=torch.uint8)})
    for (sender, receiver), theirs in sorted(got_lines.items()):
        if receiver == SERVER and sender != first:
            other_events, other_transport = json.loads(bytes(got_text[sender, SERVER].tolist()))
            ledger.adopt(theirs, other_events)
            for kind, size in other_transport.items():
                transport[kind] = transport.get(kind, 0) + size
    return transport


def _environment(config: RunConfig) -> dict[str, Any]:
    return {
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "kernels": kernels.describe(torch.device(config.system.device)),
        "device": torch.cuda.get_device_name() if config.system.device == "cuda" else "cpu",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
