"""Runs over silos that are given as Python objects, which leave the run folder that the command line leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from isthmus.core.errors import IsthmusError
from isthmus.core.files import write_atomic
from isthmus.data.write_parts import write_parts
from isthmus.graph.digest import digests
from isthmus.graph.silo import Silo
from isthmus.launch.artifacts import leave_behind
from isthmus.launch.host import open_run
from isthmus.launch.live_status import Live
from isthmus.launch.recorder import Recorder
from isthmus.launch.silos import load_silos
from isthmus.runs.config import RunConfig, resolve
from isthmus.runs.data_config import GIVEN
from isthmus.runs.folder import RunFolder, claimed
from isthmus.train.checkpoint import Checkpoints
from isthmus.train.loop import train
from isthmus.train.result import Result
from isthmus.train.watcher import Watcher
from isthmus.wire.local import LocalWire

PARTS = "parts"
_NOT_HERE = (
    "The silos of this run were given as Python objects and are not kept: 'isthmus audit' cannot replay it, and "
    "config.toml alone does not repeat it. fit(..., keep_data=True) keeps them; metrics.json has their hashes."
)
_OWN_METHOD = (
    "The method of this run was given as Python objects, which config.toml does not describe in full: what replays it "
    "needs them by name (@method, @register_part and --plugin FILE.py)."
)


def train_into(
    path: Path, config: RunConfig, whole: Sequence[Silo], silos: Sequence[Silo], watcher: Watcher, overwrite: bool
) -> Result:
    """Train over the silos ``whole`` and leave a run folder behind; ``silos``: what to keep as parts (empty: nothing).

    Parts that are kept are what is trained on, so that a replay reads exactly that. An existing run is refused, or
    replaced with ``overwrite``.
    """
    with claimed(path, resume=False, overwrite=overwrite) as folder:
        if silos:
            write_parts(silos, folder.path / PARTS)
            config = replace(config, data=replace(config.data, name=str((folder.path / PARTS).absolute())))
            whole = load_silos(config.data, config.method.merged)
        write_atomic(folder.path / "config.toml", config.toml().encode())
        return _train(folder, config, list(whole), watcher)


def _train(folder: RunFolder, config: RunConfig, silos: list[Silo], watcher: Watcher) -> Result:
    """Train, and write what a run leaves behind."""
    data = {silo.name: digests(silo) for silo in silos}
    wire = LocalWire(len(silos), config.method.chain)
    checkpoints = Checkpoints(folder.path, config.digest(), wire.host, True, data)
    with Live(wire, folder.path, config.system.log) as live:
        training = open_run(config, wire, silos)
        for sentence in _not_replayed(config):
            training.federation.note(sentence)
        checkpoints.clear()
        result = train(training, Recorder(training, folder, checkpoints, live.follow(training, watcher)))
        leave_behind(config, folder, result, data)
    return result


def _not_replayed(config: RunConfig) -> list[str]:
    """What of a run its ``config.toml`` cannot repeat."""
    said = [_NOT_HERE] if config.data.name == GIVEN else []
    try:
        alike = resolve(config.as_dict()).method == config.method
    except IsthmusError:
        alike = False
    return said + ([] if alike else [_OWN_METHOD])
