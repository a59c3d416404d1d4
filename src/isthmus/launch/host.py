"""One host from start to end: read its parts, run the handshake, train, write the files of the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from isthmus import data, kernels
from isthmus.core.errors import HostLost, IsthmusError, PeerError
from isthmus.core.files import sweep, telling_of_disks, write_atomic
from isthmus.core.kinds import SERVER
from isthmus.core.tensors import keep_freed_blocks
from isthmus.data.members import is_parts, member_names
from isthmus.federation.cross_edges import agree_edges
from isthmus.federation.federation import open_federation
from isthmus.federation.handshake import check_single_owner
from isthmus.federation.schema_agreement import agree_on_data
from isthmus.graph.differing_edges import with_notes_on_edges
from isthmus.graph.digest import digests
from isthmus.graph.graph import Graph
from isthmus.graph.merged import merge
from isthmus.graph.partition import attribute_of, note_on_names, partition, silo_names, values_of
from isthmus.graph.silo import Silo, changed, split_graph
from isthmus.launch.artifacts import leave_behind
from isthmus.launch.introductions import introduce
from isthmus.launch.live_status import Live
from isthmus.launch.policies import Policies
from isthmus.launch.recorder import Recorder
from isthmus.launch.release_files import RESUMED, by_seed, give_secrets
from isthmus.launch.returning import refuse_return, reopen, take_up
from isthmus.launch.settings import common_settings
from isthmus.methods.exchange.base import Nothing
from isthmus.runs.config import AS_MANY, GIVEN, DataConfig, RunConfig
from isthmus.runs.folder import RunFolder
from isthmus.train.checkpoint import Checkpoints
from isthmus.train.loop import Watcher, train
from isthmus.train.rounds import Returned
from isthmus.train.training import Training
from isthmus.wire.distributed import DistributedWire
from isthmus.wire.local import LocalWire
from isthmus.wire.membership import Membership
from isthmus.wire.policy import Refused
from isthmus.wire.rendezvous import Rendezvous
from isthmus.wire.wire import Wire

READING = ("categories", "missing", "words", "rarest")  # options of how tables are read, which parts have too


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


def check_device(device: str) -> None:
    """Refuse ``cuda`` where PyTorch sees no GPU."""
    if device == "cuda" and not torch.cuda.is_available():
        raise IsthmusError("--device cuda, but PyTorch sees no GPU here; use --device cpu.")


def load_silos(config: DataConfig, merged: bool, mine: Sequence[int] | None = None) -> list[Silo]:
    """The silos of this host (None: all): parts from disk, or a whole graph that is split here and now."""
    if config.name == GIVEN:
        raise IsthmusError(
            "The silos of this run were given to isthmus.fit as Python objects and are not kept, so that it cannot be "
            "replayed; train again with fit(..., out=..., keep_data=True)."
        )
    if is_parts(config.name):
        from isthmus.data.feature_columns import Reading
        from isthmus.data.parts import read_part

        for option in config.options:
            if option not in READING:
                raise IsthmusError(f"Parts have no options, so that data.{option} means nothing here; leave it out.")
        given = {**config.options, "words": tuple(config.options.get("words", ()))}
        reading = Reading(**given).check()
        names = member_names(Path(config.name))
        numbers = mine if mine is not None else range(len(names))
        silos = with_notes_on_edges([read_part(Path(config.name), names, number, reading) for number in numbers])
    else:
        graph = load_graph(config)
        resolution, communities = config.resolution or None, config.communities or None
        owner = partition(graph, config.split, config.silos, config.seed, resolution, communities)
        names = silo_names(graph, config.split, config.silos)
        graph = replace(graph, notes=(*graph.notes, *note_on_names(graph, config.split, names)))
        silos = split_graph(graph, owner, config.silos, names)
        silos = silos if mine is None else [silos[i] for i in mine]
    return [merge(agree_before_merge(silos, config))] if merged else silos


def load_graph(config: DataConfig) -> Graph:
    """The whole graph of a configuration; the column that it is split by is no feature."""
    column, options = attribute_of(config.split), dict(config.options)
    if column and data.is_own(config.name):
        options["attributes"] = tuple(dict.fromkeys((*options.get("attributes", ()), column)))
    return data.load(config.name, seed=config.seed, folder=config.folder or None, **options)


def categories_of(config: DataConfig) -> int:
    """How many words a column may have of which each becomes a feature."""
    return int(config.options.get("categories", 20))


def agree_before_merge(silos: list[Silo], config: DataConfig) -> list[Silo]:
    """The part of the handshake that must come before a merge: one schema, one owner for each node, common edges."""
    wire = LocalWire(len(silos))
    silos = agree_on_data(wire, silos, categories_of(config)).silos
    check_single_owner(wire, silos, config.seed)
    silos, _, notes = agree_edges(wire, silos, config.edges)
    return [changed(silo, notes=(*silo.notes, *notes)) for silo in silos]


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


def host_main(
    config: RunConfig,
    folder: RunFolder,
    resume: bool,
    watcher: Watcher,
    meeting: Rendezvous | None = None,
    policy: str = "",
) -> dict[str, Any] | None:
    """Run this host to the end over the wire that its configuration names; returns the metrics of its folder.

    Where hosts have a folder in common they are those of the whole run, which the server's host alone returns.
    ``meeting``: where parties have met by name; None: hosts meet by rank. ``policy``: the file or name of the policy
    of silos on this host that have none in the folder of their part.
    """
    set_up_process(config)
    count = 1 if config.method.merged else config.data.silos
    if config.system.hosts == 1:
        return run_over(LocalWire(count, config.method.chain), config, folder, resume, watcher, policy)
    place = config.system.timeout, config.system.device
    wire = DistributedWire(count, *place, config.method.chain, common_settings(config, resume), meeting)
    return run_over(wire, config, folder, resume, watcher, policy)


def run_over(
    wire: Wire, config: RunConfig, folder: RunFolder, resume: bool, watcher: Watcher, policy: str = ""
) -> dict[str, Any] | None:
    """Run this host to the end over a wire; where it ends by an error, the other hosts are told.

    They hear the reason itself only where another host is to blame: other errors may tell of this host's own data. Of
    what a policy refuses they hear the kind and the rule.
    """
    try:
        with telling_of_disks(), Live(wire, folder.path, config.system.log) as live:
            return _run_on(wire, config, folder, resume, live, watcher, policy)
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


def _run_on(
    wire: Wire, config: RunConfig, folder: RunFolder, resume: bool, live: Live, watcher: Watcher, policy: str
) -> dict[str, Any] | None:
    """Ask policies, then read the parts of this host and run over them; returns the run's metrics."""
    policies = Policies.on(wire.mine, config, policy)
    policies.check_run(wire.members)
    many = wire.hosts > 1
    split_here = many and not is_parts(config.data.name)
    source = replace(config.data, name=str(folder.path / "parts"), options={}) if split_here else config.data
    silos = load_silos(source, config.method.merged, wire.mine if many else None)
    policies.check_data(silos, open_run)
    with policies.guarding(wire, folder.path, resume) as begin:
        return _train(wire, config, folder, silos, resume, live, watcher, policies, begin)


def _introduced(config: RunConfig, wire: Wire, silos: list[Silo], policies: Policies) -> Training:
    """Run the handshake, in which parties also tell what their policies permit; returns the training."""
    training = open_run(config, wire, silos)
    if not config.method.merged:
        introduce(wire, policies.permits)
    return training


def _train(
    wire: Wire,
    config: RunConfig,
    folder: RunFolder,
    silos: list[Silo],
    resume: bool,
    live: Live,
    watcher: Watcher,
    policies: Policies,
    begin: Callable[[Training], None],
) -> dict[str, Any] | None:
    """Run the handshake, train, and write the files of the run; returns its metrics."""
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
    if wire.returned:
        take_up(training, checkpoints)
    elif not resume or checkpoints.resume(training) == 0:
        checkpoints.clear()
    sweep(folder.path)
    if resume and wire.noise.secrets and not by_seed(wire):
        training.federation.note(RESUMED)
    result = None
    while result is None:
        begin(training)
        try:
            result = train(training, Recorder(training, folder, checkpoints, live.follow(training, watcher)))
        except Returned as back:
            training = reopen(lambda: _introduced(config, wire, silos, policies), training, back)
    metrics = leave_behind(config, folder, result, data)
    wire.close_down()
    return metrics
