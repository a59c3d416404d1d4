"""Replays a run: trains it once more with all silos in this process, and keeps a journal of everything that leaves.

Randomness is a function of the run's seed, so that a replay releases the rows that the run released, at the same steps
and made by the same parameters. An audit therefore needs the configuration and the data, and no recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from isthmus.audit.context import Context
from isthmus.audit.journal import Journal
from isthmus.audit.recording import overheard
from isthmus.audit.released_rows import LastRows, last_rows
from isthmus.audit.request import AuditRequest
from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.graph.digest import changes, digests
from isthmus.graph.silo import Silo
from isthmus.launch.host import open_run, set_up_process
from isthmus.launch.silos import load_silos
from isthmus.protect.releases import LEFT
from isthmus.protect.secrets import secrets_from_seed
from isthmus.runs.config import RunConfig
from isthmus.runs.folder import RunFolder
from isthmus.runs.kept_config import kept_config
from isthmus.runs.text import count_text
from isthmus.train.loop import train
from isthmus.train.training import Training
from isthmus.train.watcher import Watcher
from isthmus.wire.local import LocalWire

CALIBRATION = 256  # nodes whose releases are followed one by one, targets or not: they show how noisy rows are
MANY, FEW = 3072, 1024  # numbers of a node's releases; the first where matrices of twice the features are no burden
Listen = Callable[[Training, Journal], None]  # called with a run and its journal
_CLOSE = 1e-2  # distance of replayed rows from those that the run kept, beside their length
_ALL_SHARES = (
    "The adversary is the server together with all silos but one: these hold all shares of what that one sends, and "
    "open it. Who holds one share alone reads nothing."
)
_OTHER_NOISE = "The run drew its noise from secrets that nobody kept; the replay drew noise of the same strength anew."
_OTHER_ROWS = (
    "The last rows of the replay differ from those that the run kept by {:.0%} of their length (another device, other "
    "software, a run that was resumed, or damaged files released*.safetensors): findings are those of the replay."
)


@dataclass(frozen=True)
class Heard:
    """A replayed run: the training at its end, what was heard of it, and how the replay may differ from the run."""

    training: Training
    journal: Journal
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Opened:
    """A run that is ready to be replayed: its configuration and silos, and the merged graph to compute and score by."""

    config: RunConfig
    silos: list[Silo]
    context: Context


def open_audit(folder: RunFolder) -> Opened:
    """Read the configuration and the data of a run, and check that they are those of the run."""
    config = kept_config(folder)
    config = replace(config, system=replace(config.system, device="cpu", hosts=1))
    set_up_process(config)
    try:
        silos = load_silos(config.data, merged=False)
    except IsthmusError as error:
        raise IsthmusError(f"An audit compares with the truth, so it needs all silos' data here. {error}") from error
    _check_same(folder, silos)
    context = Context(_open(replace(config, dtype="float64"), silos))
    _check_sizes(folder, context.training.federation.silos)
    return Opened(config, silos, context)


def _check_same(folder: RunFolder, silos: list[Silo]) -> None:
    """Raise where the data's digests differ from those in the run's metrics; only for runs on one host."""
    before = folder.metrics.get("data_digests")
    if before and int(folder.metrics.get("hosts", 1)) == 1:
        what = changes(before, {silo.name: digests(silo) for silo in silos})
        if what:
            known = folder.path / "metrics.json"
            raise IsthmusError(f"The data has changed since '{known}' was written: {what}; use the data of then.")


def _check_sizes(folder: RunFolder, silos: Sequence[Silo]) -> None:
    """Raise unless the silos have as many nodes, at home and in their halos, as the run says."""
    sizes = folder.metrics.get("silo_nodes", {})
    there = [(size.get("nodes"), size.get("halo")) for size in sizes.values()]
    here = [(silo.n, silo.h) for silo in silos]
    if here != there:
        told = f"{_total(here)} here, {_total(there)} in '{folder.path / 'metrics.json'}'"
        raise IsthmusError(f"The silos are not those of the run: {told}; audit with the data of the run.")


def _total(sizes: Sequence[tuple[int, int]]) -> str:
    """The sizes of all silos in words."""
    nodes, halo = (sum(each) for each in zip(*sizes, strict=True)) if sizes else (0, 0)
    return f"{count_text(len(sizes), 'silo')} with {nodes:,} nodes and {halo:,} beyond their boundaries"


def _open(config: RunConfig, silos: list[Silo], journal: Journal | None = None) -> Training:
    """The training of a run as it begins, with all silos in this process; noise, if any, follows from its seed."""
    wire = LocalWire(len(silos), config.method.chain)
    if journal is not None:
        wire.releases = journal
    training = open_run(config, wire, silos)
    wire.noise.secrets |= secrets_from_seed(config.seed, wire.mine)
    return training


def replay(opened: Opened, folder: RunFolder, request: AuditRequest, listen: Listen, watcher: Watcher) -> Heard:
    """Train a run once more; ``listen`` is called with it and its journal before the first step."""
    config = replace(opened.config, method=overheard(opened.config.method))
    if request.epochs is not None:
        config = replace(config, train=replace(config.train, epochs=request.epochs, steps=0))
    silos = opened.context.training.federation.silos
    journal = Journal(watched_rows(silos, request.targets, request.seed), _equations(opened))
    training = _open(config, opened.silos, journal)
    journal.attach(training)
    listen(training, journal)
    train(training, watcher)
    journal.finish()
    return Heard(training, journal, tuple(_notes(opened, folder, request, training, journal)))


def _equations(opened: Opened) -> int:
    """How many numbers of a node's releases are kept: more than it has features, where so many can be solved."""
    features, phases = opened.silos[0].schema.features, opened.config.method.phases
    sets = 1 if all(phase.sync.lockstep for phase in phases) else len(opened.silos)
    return max(MANY // sets, FEW) if features <= MANY // 2 else FEW


def _notes(
    opened: Opened, folder: RunFolder, request: AuditRequest, training: Training, journal: Journal
) -> Iterator[str]:
    """Notes on how the replay differs from the run: fewer epochs, other noise, or other last rows."""
    chain, hosts = opened.config.method.chain, int(folder.metrics.get("hosts", 1))
    if chain.shares:
        yield _ALL_SHARES
    if request.epochs is not None:
        yield f"Releases are those of the first {count_text(training.progress.epoch, 'epoch')} alone."
    elif chain.noisy and (chain.secrets == "random" or (not chain.secrets and hosts > 1)):
        yield _OTHER_NOISE
    else:
        apart = _distance(training, journal, last_rows(folder.path, hosts))
        if apart > _CLOSE:
            yield _OTHER_ROWS.format(apart)


def _distance(training: Training, journal: Journal, kept: LastRows) -> float:
    """How far the last rows of a replay lie from those that the run kept, beside the length of these."""
    place: dict[tuple[str, str], int] = {}
    first = 0
    for silo in training.federation.silos:
        name = training.wire.party(silo.number)
        place |= {(name, node): first + i for i, node in enumerate(map(str, silo.ids.tolist()))}
        first += silo.n + silo.h
    gap = length = 0.0
    for layer, (nodes, rows) in kept.items():
        lost = next((node for node in nodes if node not in place), None)
        if lost is not None:
            raise IsthmusError(
                f"Node {lost[1]} of {lost[0]} has left, but is not in the data; audit with the data of the run."
            )
        mine = journal.state.get(f"{LEFT}/{Kind.EMBEDDINGS.value}/{layer}")
        here = torch.zeros_like(rows) if mine is None else mine[[place[node] for node in nodes]].double()
        gap, length = gap + float((here - rows).square().sum()), length + float(rows.square().sum())
    return (gap / length) ** 0.5 if length else 0.0


def boundary_rows(silos: Sequence[Silo]) -> Tensor:
    """The stack rows of owned nodes that lie in some silo's halo, ascending."""
    far = torch.cat([silo.keys[silo.n :] for silo in silos])
    first = torch.tensor([0, *(silo.n + silo.h for silo in silos)]).cumsum(0)
    return torch.cat([torch.isin(s.keys[: s.n], far).nonzero().flatten() + first[i] for i, s in enumerate(silos)])


def watched_rows(silos: Sequence[Silo], targets: int, seed: int) -> Tensor:
    """Boundary rows whose releases are followed one by one, in random order: the first are the targets."""
    rows = boundary_rows(silos)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    return rows[order[: max(2 * targets, CALIBRATION)]]
