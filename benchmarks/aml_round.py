"""Seconds of a round of 32 steps on transactions between banks, all silos in one process, beside published seconds.

    python benchmarks/aml_round.py --device cuda --json docs/results/aml-round.json
    python benchmarks/aml_round.py --transactions 200000 --rounds 3

Simulated transactions of the size of HI-Small: 5.1 M between 515,000 accounts of 500 banks, the banks packed into four
silos. Two layers over incoming and outgoing edges with edge updates, ports and ego ids, batches of 1,024 transactions a
silo, fanouts 100 and 100, messages of the past alone. Only training is timed. A round of a method that averages nothing
is 32 steps as well. The published seconds are those of one A100 for each silo (Guo et al. 2026).

Seconds are medians of rounds after the first. Then one more round runs in which the device is waited for at the end of
each part of a step: the shares of sampling, of the model with its optimiser, and of a round's end.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import torch
from measure import SEED, Job, forget_peak, hot_spots, peak_mb, record

from isthmus import kernels
from isthmus.data.interbank import Interbank
from isthmus.data.simulated import simulated
from isthmus.engine.settings import TrainConfig
from isthmus.federation.federation import Federation, open_federation
from isthmus.graph.cut import split_graph
from isthmus.graph.partition import partition
from isthmus.methods.catalogue import get
from isthmus.methods.compose import compose
from isthmus.nn.model import MODELS
from isthmus.train.loop import end_round, step
from isthmus.train.training import Training
from isthmus.wire.local import LocalWire

_T = TypeVar("_T")
SILOS, BANKS = 4, 500
ACCOUNTS = 515_000 / 5_100_000  # for each transaction, as in HI-Small
BATCH, FANOUT = 1024, (100, 100)
HIDDEN = {"pna": 20, "gin": 66}  # those of the public models of this data
PUBLISHED = {"pna": {"ce-fedgnn": 29.45, "fedavg": 28.78}, "gin": {"ce-fedgnn": 22.68, "fedavg": 18.79}}
# The method of the catalogue, and what is changed in it besides the steps of a round.
METHODS: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "ce-fedgnn": ("ce-fedgnn", {}),
    "fedgnn-st": ("fedgnn-st", {}),
    "fedavg": ("fedavg", {}),  # transfers between silos are left out, three of four
    "fedavg-placeholder": ("fedavg", {"exchange": {"halo": "placeholder"}}),  # they are kept
    "sync-sgd+fwd-bwd-le": ("sync-sgd+fwd-bwd-le", {}),
}


def wait_for(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transactions", type=int, default=5_100_000)
    parser.add_argument("--model", choices=tuple(HIDDEN), default="pna")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--steps", type=int, default=32, help="of a round; the published seconds are those of 32")
    parser.add_argument("--threads", type=int, default=1, help="of the processor")
    parser.add_argument("--rounds", type=int, default=3, help="that are timed, after one that warms up")
    parser.add_argument("--methods", nargs="+", choices=tuple(METHODS), default=list(METHODS), metavar="METHOD")
    parser.add_argument("--profile", action="store_true", help="print the hot spots of a round of each method instead")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    stages: dict[str, float] = {}
    federation = prepare(options.transactions, stages)
    print(f"{options.device}, {options.model}, {kernels.describe_kernels(torch.device(options.device))}")
    rows = {name: one(federation, name, options) for name in options.methods}
    record(
        options.json,
        f"{options.threads} thread(s), {torch.cuda.get_device_name() if options.device == 'cuda' else 'no GPU'}",
        transactions=options.transactions, model=options.model, device=options.device, steps_of_a_round=options.steps,
        seconds_before_training=stages, published_seconds=PUBLISHED[options.model], rows=rows,
    )  # fmt: skip


def one(federation: Federation, name: str, options: argparse.Namespace) -> Job:
    """Measure one method, or profile it; its run is gone before the next one starts."""
    training = open_run(federation, name, options)
    if options.profile:
        each = rounds(training, options)
        next(each)
        print("\n".join([name, *hot_spots(partial(next, each), 40)]))
        return {}
    row = measure(training, options)
    show(name, row, PUBLISHED[options.model].get(METHODS[name][0]) if options.steps == 32 else None)
    return row


def prepare(transactions: int, stages: dict[str, float]) -> Federation:
    """Simulate, pack banks into silos, shake hands; notes the seconds of each."""
    wish = Interbank(transactions, BANKS, round(transactions * ACCOUNTS), seed=SEED)
    graph = timed(stages, "simulate", lambda: simulated(wish))
    owner = timed(stages, "partition", lambda: partition(graph, "attribute:bank", SILOS, SEED))
    silos = timed(stages, "split", lambda: split_graph(graph, owner, SILOS))
    crossing = float((owner[graph.edge_index[0]] != owner[graph.edge_index[1]]).float().mean())
    federation = timed(stages, "handshake", lambda: open_federation(LocalWire(SILOS), silos, SEED))
    print(f"{graph.m:,} transactions, {graph.n:,} accounts, {SILOS} silos; {100 * crossing:.0f} % between silos")
    print(", ".join(f"{name} {seconds:.1f} s" for name, seconds in stages.items()) + f"; peak {peak_mb():,.0f} MB")
    return federation


def timed(seconds: dict[str, float], name: str, work: Callable[[], _T]) -> _T:
    began = time.perf_counter()
    result = work()
    seconds[name] = time.perf_counter() - began
    return result


def open_run(federation: Federation, name: str, options: argparse.Namespace) -> Training:
    """A fresh run on the same silos, with an empty ledger and no peaks of memory."""
    forget_peak()
    if options.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    federation.wire.ledger.forget()
    base, changes = METHODS[name]
    method = compose(get(base), changes)
    if not method.last.sync.lockstep:
        method = compose(method, {"sync": {"local_steps": options.steps}})
    shape = replace(MODELS["multi-pna"], name=options.model, layers=2, hidden=HIDDEN[options.model], edge_updates=True)
    batch = BATCH * SILOS if method.last.batches == "joint" else BATCH
    settings = TrainConfig(epochs=10**6, evaluate_every=10**6, batch=batch, fanout=FANOUT, lr=6e-4, messages="past")
    return Training(federation, method, shape, settings, SEED, options.device)


def rounds(training: Training, options: argparse.Namespace) -> Iterator[float]:
    """Train without validation, for as long as somebody asks; the seconds of each round."""
    stage, progress = training.stage, training.progress
    began = time.perf_counter()
    while True:
        for seeds in stage.epoch_seeds(progress):
            if progress.round_starts:
                begin_round(training)
            step(stage, progress, seeds)
            progress.round_starts = stage.round_over(progress.step, progress.epoch + 1)
            if progress.round_starts:
                end_round(stage)
            if progress.step % options.steps == 0:
                wait_for(options.device)
                yield time.perf_counter() - began
                began = time.perf_counter()
        progress.epoch += 1


def begin_round(training: Training) -> None:
    training.stage.objective.round_begin(training.learner)
    for sync in training.stage.syncs.values():
        sync.round_begin()


def measure(training: Training, options: argparse.Namespace) -> Job:
    """Seconds, bytes, memory and shares of one method."""
    each = rounds(training, options)
    first = next(each)
    before = training.wire.ledger.by_kind()
    seconds = [next(each) for _ in range(options.rounds)]
    after = training.wire.ledger.by_kind()
    sent = {kind: (size - before.get(kind, 0)) / options.rounds for kind, size in after.items()}
    gpu = torch.cuda.max_memory_allocated() / 2**20 if options.device == "cuda" else None
    return {
        "seconds": median(seconds), "seconds_of_rounds": seconds, "first_round_seconds": first,
        "shares": shares(training, each, options.device), "peak_mb": peak_mb(), "gpu_peak_mb": gpu,
        "bytes_of_a_round": {kind: round(size) for kind, size in sent.items() if size},
    }  # fmt: skip


def shares(training: Training, each: Iterator[float], device: str) -> dict[str, float]:
    """Which parts of a round its time goes to, found in a round that waits for the device after each part."""
    spent = {"sampling": 0.0, "round end": 0.0}

    def watch(owner: Any, name: str, part: str) -> None:
        inner = getattr(owner, name)

        def outer(*given: Any, **options: Any) -> Any:
            wait_for(device)
            began = time.perf_counter()
            result = inner(*given, **options)
            wait_for(device)
            spent[part] += time.perf_counter() - began
            return result

        setattr(owner, name, outer)

    watch(training.stage, "works", "sampling")
    watch(training.stage.exchange, "round_end", "round end")
    for sync in training.stage.syncs.values():
        watch(sync, "round_end", "round end")
    total = next(each)
    return {**{part: seconds / total for part, seconds in spent.items()}, "model": 1 - sum(spent.values()) / total}


def show(name: str, row: Job, published: float | None) -> None:
    beside = f"; published {published} s, {published / row['seconds']:.1f} x" if published else ""
    gpu = f", {row['gpu_peak_mb']:,.0f} MB on the GPU" if row["gpu_peak_mb"] else ""
    parts = ", ".join(f"{part} {100 * share:.0f} %" for part, share in row["shares"].items())
    sent = ", ".join(f"{kind} {size / 1e6:.2f} MB" for kind, size in row["bytes_of_a_round"].items())
    print(f"{name:20} {row['seconds']:8.2f} s a round (the first {row['first_round_seconds']:.2f} s){beside}")
    print(f"{'':20} {parts}; peak {row['peak_mb']:,.0f} MB{gpu}")
    print(f"{'':20} {sent or 'nothing crosses'}", flush=True)


if __name__ == "__main__":
    main()
