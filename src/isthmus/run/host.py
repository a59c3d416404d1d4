"""One host's whole life: read its parts, shake hands, train, write what a run leaves behind."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from isthmus import data, kernels
from isthmus.checkpoint import Checkpoints
from isthmus.data.members import is_parts, member_names
from isthmus.errors import IsthmusError
from isthmus.evaluate import Scores
from isthmus.federation import open_federation
from isthmus.graph.handshake import agree_schema, check_single_owner
from isthmus.graph.partition import partition
from isthmus.graph.silo import Silo, merge, split_graph
from isthmus.run.config import DataConfig, RunConfig
from isthmus.run.folder import RunFolder, write_atomic
from isthmus.state import Run
from isthmus.train import Result, Watcher, train
from isthmus.wire.base import LocalWire, Wire
from isthmus.wire.distributed import DistributedWire, silos_of_host
from isthmus.wire.ledger import SERVER, Kind


def prepare(config: RunConfig) -> RunConfig:
    """Settle what can be settled before any data is read: device, number of silos, hosts."""
    check_device(config.system.device)
    if is_parts(config.data.name):
        silos = len(member_names(Path(config.data.name)))
        config = replace(config, data=replace(config.data, silos=silos, split="as given"))
    silos = 1 if config.method.merged else config.data.silos
    if config.system.hosts > silos:
        raise IsthmusError(
            f"--hosts {config.system.hosts}, but there are only {silos} silos; a host carries at least one."
        )
    return config


def check_device(device: str) -> None:
    """Refuse a device that is not here."""
    if device == "cuda" and not torch.cuda.is_available():
        raise IsthmusError("--device cuda, but PyTorch sees no GPU here; use --device cpu.")


def load_silos(config: DataConfig, merged: bool, mine: range | None = None) -> list[Silo]:
    """The silos of this host (None: all): parts from disk, or a whole graph that is split here and now."""
    if is_parts(config.name):
        from isthmus.data.parts import read_part

        for option in config.options:
            raise IsthmusError(f"Parts have no options, so that data.{option} means nothing here; leave it out.")
        names = member_names(Path(config.name))
        numbers = mine if mine is not None else range(len(names))
        silos = [read_part(Path(config.name), names, number) for number in numbers]
    else:
        graph = data.load(config.name, seed=config.seed, folder=config.folder or None, **config.options)
        resolution, communities = config.resolution or None, config.communities or None
        owner = partition(graph, config.split, config.silos, config.seed, resolution, communities)
        silos = split_graph(graph, owner, config.silos)
        silos = silos if mine is None else [silos[i] for i in mine]
    return [merge(_agreed(silos, config.seed))] if merged else silos


def _agreed(silos: list[Silo], seed: int) -> list[Silo]:
    """The part of the handshake that must come before a merge: one schema, and one owner for each node."""
    wire = LocalWire(len(silos))
    silos = agree_schema(wire, silos)
    check_single_owner(wire, silos, seed)
    return silos


def open_run(config: RunConfig, wire: Wire, silos: list[Silo]) -> Run:
    """Shake hands and lay out the run."""
    agreed = config.train.agrees(config.train.batches or config.method.batches)
    federation = open_federation(wire, silos, config.seed, config.data.scale, agreed)
    dtype = torch.float64 if config.dtype == "float64" else torch.float32
    return Run(federation, config.method, config.model, config.train, config.seed, config.system.device, dtype)


class Recorder(Watcher):
    """Writes metrics and checkpoints into a run folder."""

    def __init__(self, folder: RunFolder, checkpoints: Checkpoints, inner: Watcher) -> None:
        self.folder, self.checkpoints, self.inner = folder, checkpoints, inner

    def on_step(self, run: Run, loss: float) -> None:
        """Pass on."""
        self.inner.on_step(run, loss)

    def on_epoch(self, run: Run, lines: list[dict[str, Any]]) -> None:
        """Append the lines, then commit."""
        if run.wire.serves:
            with open(self.folder.path / "metrics.jsonl", "a") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
        if run.epoch % self.checkpoints.every(run) == 0 or run.epoch == run.epochs:
            self.checkpoints.commit(run)
        self.inner.on_epoch(run, lines)


def host_main(config: RunConfig, folder: RunFolder, resume: bool, watcher: Watcher) -> dict[str, Any] | None:
    """Run this host to the end; the server's host returns the final metrics."""
    if config.system.threads:
        torch.set_num_threads(config.system.threads)
    kernels.choose(config.system.kernels)
    many = config.system.hosts > 1
    count = 1 if config.method.merged else config.data.silos
    wire: Wire
    if many:
        wire = DistributedWire(count, config.system.timeout, config.system.device, config.method.protect)
    else:
        wire = LocalWire(count, config.method.protect)
    mine = silos_of_host(wire.host, wire.hosts, count) if many else None
    split_here = many and not is_parts(config.data.name)
    source = replace(config.data, name=str(folder.path / "parts"), options={}) if split_here else config.data
    run = open_run(config, wire, load_silos(source, config.method.merged, mine))
    checkpoints = Checkpoints(folder.path, config.digest(), wire.host)
    if not wire.serves:  # a machine of its own has a run folder of its own; the server's host has claimed its by now
        write_atomic(folder.path / "config.toml", config.toml().encode())
    if not resume or checkpoints.resume(run) == 0:
        checkpoints.clear()
    result = train(run, Recorder(folder, checkpoints, watcher))
    metrics = leave_behind(config, folder, result)
    wire.close_down()
    return metrics


def leave_behind(config: RunConfig, folder: RunFolder, result: Result) -> dict[str, Any] | None:
    """Collect ledgers and models at the server's host, and write the final files there."""
    run = result.run
    sizes = _sizes(run)
    for silo, size in sizes.items():
        if not size["nodes"]:
            run.federation.note(f"{silo} owns no nodes.")
    lost = next((line["step"] for line in run.history if line["loss"] is None), None)
    if lost is not None:
        run.federation.note(f"The loss was no finite number from step {lost} on; try a smaller train.lr.")
    why = kernels.missing(run.device)
    if why:
        run.federation.note(f"Without compiled kernels this run was slower, and no less right: {why}.")
    _write_models(run, folder)
    transport = _collect_ledgers(run)
    if not run.wire.serves:
        return None
    bytes_by_kind = run.wire.ledger.by_kind()
    run.wire.ledger.write(folder.path / "ledger.parquet")
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
        "epsilon": {kind: _epsilon(run, kind) for kind in bytes_by_kind},
        "notes": run.federation.notes,
        "hosts": run.wire.hosts,
        "silo_nodes": sizes,
        "environment": _environment(config),
    }
    folder.write_json("metrics.json", metrics)
    return metrics


def _scores(scores: Scores | None) -> dict[str, Any]:
    return {} if scores is None else {**scores.as_dict(), "silos": scores.per_silo()}


def _pooled(result: Result) -> dict[str, Any]:
    """``valid_pooled`` and ``test_pooled``, where predictions were pooled."""
    splits = {"valid": result.valid, "test": result.test}
    return {f"{name}_pooled": s.pooled_dict() for name, s in splits.items() if s is not None and s.pooled is not None}


def _epsilon(run: Run, kind: str) -> float | str:
    value = run.wire.protect.epsilon(Kind(kind))
    return "inf" if value == float("inf") else value


def _sizes(run: Run) -> dict[str, dict[str, int]]:
    """Nodes, training seeds and halo of every silo, as the silos themselves tell them."""
    counts = torch.tensor([[silo.n, silo.h] for silo in run.federation.silos])
    shared = run.wire.share(Kind.METRICS, counts).tolist()
    train_seeds = run.train_pool.counts.tolist()
    return {run.wire.party(i): {"nodes": n, "halo": h, "train": train_seeds[i]} for i, (n, h) in enumerate(shared)}


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
