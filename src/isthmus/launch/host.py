"""One host from start to end: read its parts, run the handshake, train, write the files of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from isthmus import kernels
from isthmus.core.errors import HostLost, IsthmusError, PeerError
from isthmus.core.files import sweep, telling_of_disks, write_atomic
from isthmus.core.kinds import SERVER
from isthmus.core.tensors import keep_freed_blocks
from isthmus.data.members import is_parts, member_names
from isthmus.federation.federation import open_federation
from isthmus.graph.digest import digests
from isthmus.graph.partition import values_of
from isthmus.graph.silo import Silo
from isthmus.launch.artifacts import leave_behind
from isthmus.launch.introductions import introduce
from isthmus.launch.live_status import Live
from isthmus.launch.policies import Policies
from isthmus.launch.recorder import Recorder
from isthmus.launch.release_files import RESUMED, by_seed, give_secrets
from isthmus.launch.returning import refuse_return, reopen, take_up
from isthmus.launch.settings import common_settings
from isthmus.launch.silos import categories_of, load_graph, load_silos
from isthmus.launch.start import Start
from isthmus.methods.exchange.base import Nothing
from isthmus.runs.config import RunConfig
from isthmus.runs.data_config import AS_MANY
from isthmus.train.checkpoint import Checkpoints
from isthmus.train.loop import train
from isthmus.train.rounds import Returned
from isthmus.train.training import Training
from isthmus.wire.distributed import DistributedWire
from isthmus.wire.local import LocalWire
from isthmus.wire.membership import Membership
from isthmus.wire.policy import Refused
from isthmus.wire.rendezvous import Rendezvous
from isthmus.wire.wire import Wire


def prepare(config: RunConfig) -> RunConfig:
    """The configuration with the number of silos filled in; device and hosts are checked before any data is read."""
    check_device(config.system.device)
    if is_parts(config.data.name):
        silos = len(member_names(Path(config.data.name)))
        config = replace(config, data=replace(config.data, silos=silos, split="as given"))
    elif config.data.silos == AS_MANY:
        graph = load_graph(config.data)
        config = replace(config, data=replace(config.data, silos=len(values_of(graph, config.data.split))))
    silos = 1 if config.method.merged else config.data.silos
    if config.method.merged and config.system.hosts > 1:
        raise IsthmusError(
            f"--hosts {config.system.hosts}, but method '{config.method.name}' merges all into 1 silo, on one host."
        )
    Membership.dealt(silos, config.system.hosts)  # refuses more hosts than there are parties
    return config


def set_up_process(config: RunConfig) -> None:
    """Use the number of threads and the kernels that were asked for."""
    if config.system.threads:
        torch.set_num_threads(config.system.threads)
    kernels.choose(config.system.kernels)


@contextmanager
def process_set_up(config: RunConfig) -> Iterator[None]:
    """Set the process up inside a ``with`` block alone: afterwards threads and kernels are those of its owner again."""
    before = torch.get_num_threads(), kernels.chosen()
    set_up_process(config)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        kernels.choose(before[1])


def check_device(device: str) -> None:
    """Refuse ``cuda`` where PyTorch sees no GPU."""
    if device == "cuda" and not torch.cuda.is_available():
        raise IsthmusError("--device cuda, but PyTorch sees no GPU here; use --device cpu.")


def open_run(config: RunConfig, wire: Wire, silos: list[Silo]) -> Training:
    """Run the handshake over the wire and return the training, ready for its first step."""
    keep_freed_blocks()
    give_secrets(wire, config.seed, config.method.noisy)
    asked = config.data
    federation = open_federation(
        wire, silos, config.seed, asked.scale, _agrees_on_moments(config), asked.edges, asked.cross, asked.level,
        categories_of(asked),
    )  # fmt: skip
    dtype = torch.float64 if config.dtype == "float64" else torch.float32
    given = config.method, config.model, config.train, config.seed, config.system.device, dtype
    return Training(federation, *given, config.absence)


def _agrees_on_moments(config: RunConfig) -> bool:
    """Whether features are scaled by moments of all silos; by default where rows or parameters cross."""
    if config.train.statistics:
        return config.train.statistics == "agreed"
    apart = all(phase.sync.alone and isinstance(phase.exchange, Nothing) for phase in config.method.phases)
    return config.method.merged or not apart


def host_main(start: Start, meeting: Rendezvous | None = None) -> dict[str, Any] | None:
    """Run this host to the end over the wire that its configuration names; returns the metrics of its folder.

    Where hosts have a folder in common they are those of the whole run, which the server's host alone returns.
    ``meeting``: where parties have met by name; None: hosts meet by rank.
    """
    config = start.config
    set_up_process(config)
    count = 1 if config.method.merged else config.data.silos
    if config.system.hosts == 1:
        return run_over(LocalWire(count, config.method.chain), start)
    where = config.system.timeout, config.system.device
    settings = common_settings(config, start.resume)
    return run_over(DistributedWire(count, *where, config.method.chain, settings, meeting), start)


def run_over(wire: Wire, start: Start) -> dict[str, Any] | None:
    """Run this host to the end over a wire; where it ends by an error, the other hosts are told."""
    with telling_others(wire), telling_of_disks(), Live(wire, start.folder.path, start.config.system.log) as live:
        return _run_on(wire, start, live)


@contextmanager
def telling_others(wire: Wire) -> Iterator[None]:
    """Tell the other hosts where this one ends by an error inside a ``with`` block.

    They hear the reason itself only where another host is to blame: other errors may tell of this host's own data. Of
    what a policy refuses they hear the kind and the rule.
    """
    try:
        yield
    except HostLost:
        raise
    except Refused as error:
        wire.end(error.told)
        raise
    except IsthmusError as error:
        told = isinstance(error, PeerError)
        wire.end(str(error) if told else f"The host of {wire.who[wire.host]} has ended; what it printed says why.")
        raise
    except Exception as error:
        wire.end(f"The host of {wire.who[wire.host]} has ended by an error of its own ({type(error).__name__}).")
        raise


def _run_on(wire: Wire, start: Start, live: Live) -> dict[str, Any] | None:
    """Ask policies, then read the parts of this host and run over them; returns the run's metrics."""
    config, folder = start.config, start.folder.path
    policies = Policies.on(wire.mine, config, start.policy)
    policies.check_run(wire.members)
    many = wire.hosts > 1
    split_here = many and not is_parts(config.data.name)
    source = replace(config.data, name=str(folder / "parts"), options={}) if split_here else config.data
    silos = load_silos(source, config.method.merged, wire.mine if many else None)
    policies.check_data(silos, open_run)
    with policies.guarding(wire, folder, start.resume) as begin:
        return _train(wire, start, silos, live, policies, begin)


def _introduced(config: RunConfig, wire: Wire, silos: list[Silo], policies: Policies) -> Training:
    """Run the handshake, in which parties also tell what their policies permit; returns the training."""
    training = open_run(config, wire, silos)
    if not config.method.merged:
        introduce(wire, policies.permits)
    return training


def _train(
    wire: Wire, start: Start, silos: list[Silo], live: Live, policies: Policies, begin: Callable[[Training], None]
) -> dict[str, Any] | None:
    """Run the handshake, train, and write the files of the run; returns its metrics."""
    config, folder = start.config, start.folder
    data = {silo.name: digests(silo) for silo in silos}
    at_server = wire.houses(SERVER)
    checkpoints = Checkpoints(folder.path, config.digest(), wire.host, at_server or not folder.shared, data)
    if wire.returned:
        refuse_return(config, checkpoints)
        wire.come_back()
    training = _introduced(config, wire, silos, policies)
    policies.note(training.federation)
    if not at_server:  # a machine of its own has a run folder of its own; the server's host has claimed its own by now
        write_atomic(folder.path / "config.toml", config.toml().encode())
    _take_up(training, checkpoints, wire, start)
    result = None
    while result is None:
        begin(training)
        try:
            result = train(training, Recorder(training, folder, checkpoints, live.follow(training, start.watcher)))
        except Returned as back:
            training = reopen(lambda: _introduced(config, wire, silos, policies), training, back)
    metrics = leave_behind(config, folder, result, data)
    wire.close_down()
    return metrics


def _take_up(training: Training, checkpoints: Checkpoints, wire: Wire, start: Start) -> None:
    """Bring the training to where this host's run has stopped, or, where it begins, clear what an older one left."""
    if wire.returned:
        take_up(training, checkpoints)
    elif not start.resume or checkpoints.resume(training) == 0:
        checkpoints.clear()
    sweep(start.folder.path)
    if start.resume and wire.noise.secrets and not by_seed(wire):
        training.federation.note(RESUMED)
