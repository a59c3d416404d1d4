"""Checkpoints: written under another name, then renamed; a run resumes from the newest that every host committed."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.files import write_atomic
from isthmus.core.kinds import Kind
from isthmus.protect.events import from_json, to_json
from isthmus.train.training import Training
from isthmus.wire.ledger import COLUMNS, LEG_COLUMNS

_BYTES_PER_EPOCH = 32 * 2**20
_PAGES = {"ledger": (np.int64, len(COLUMNS)), "legs": (np.int64, len(LEG_COLUMNS)), "computing": (np.float64, 1)}
_KEEP = 2  # a host may be killed after its commit and before another's, so the one before must still be there


class Checkpoints:
    """The checkpoints of one host in a run folder.

    ``epoch-N/host-H.safetensors`` holds tensors; ``host-H.json``, written last, commits them. What every epoch adds to
    (lines and legs of the ledger, seconds) is appended to files of the host and cut back on resume, like
    ``metrics.jsonl``.
    """

    def __init__(self, folder: Path, digest: str, host: int, logs: bool) -> None:
        """``logs``: this host, the server's, also writes ``metrics.jsonl``."""
        self.root, self.digest, self.host, self.logs = folder / "checkpoint", digest, host, logs
        self.log = folder / "metrics.jsonl"
        self.pages = {name: self.root / f"{name}-host-{host}.bin" for name in _PAGES}

    def every(self, training: Training) -> int:
        """Epochs between two checkpoints, equal on every host: they follow from the size of the whole federation."""
        if training.train.checkpoint_every:
            return training.train.checkpoint_every
        sets = 1 if training.stage.phase.sync.lockstep else training.wire.silos
        models = training.learner.models.values()
        numbers = sum(p[0].numel() * p.element_size() for m in models for p in m.sets.parameters.values())
        return -(-4 * numbers * sets // _BYTES_PER_EPOCH)  # parameters, the best ones, and two moments

    def commit(self, training: Training) -> None:
        """Write the state of this host after an epoch."""
        self.root.mkdir(parents=True, exist_ok=True)
        self._append(training)
        progress, wire, stage = training.progress, training.wire, training.stage
        here = self._place(progress.epoch)
        here.mkdir(exist_ok=True)
        body = save(_tensors(training))
        write_atomic(here / f"host-{self.host}.safetensors", body)
        meta = {
            "digest": self.digest,
            "checksum": zlib.crc32(body),
            "phase": progress.phase,
            "begun": [stage.first_step, stage.first_epoch],
            "epoch": progress.epoch,
            "step": progress.step,
            "due": progress.due,
            "seconds": progress.seconds,
            "wire_seconds": progress.wire_seconds,
            "draws": wire.noise.draws,
            "events": [to_json(events) for events in wire.ledger.events],
            "released": {kind: [to_json(e) for e in each] for kind, each in wire.releases.events.items()},
            "transport": wire.ledger.transport,
            "pages": {name: path.stat().st_size for name, path in self.pages.items()},
            "log_bytes": self.log.stat().st_size if self.log.exists() else 0,
        }
        write_atomic(here / f"host-{self.host}.json", json.dumps(meta).encode())
        for old in self.committed()[:-_KEEP]:
            shutil.rmtree(self._place(old), ignore_errors=True)

    def _append(self, training: Training) -> None:
        """Append what was added since the last commit to the files of this host."""
        lines, legs = training.wire.ledger.turn_page()
        known = self._size("computing") // np.dtype(np.float64).itemsize
        fresh = {
            "ledger": lines.numpy(),
            "legs": legs.numpy(),
            "computing": np.array(training.progress.computing[known:]),
        }
        for name, numbers in fresh.items():
            with open(self.pages[name], "ab") as file:
                file.write(numbers.tobytes())

    def _size(self, name: str) -> int:
        path = self.pages[name]
        return path.stat().st_size if path.is_file() else 0

    def clear(self) -> None:
        """Delete what an earlier run, or one that never committed, has left of this host."""
        for path in (*self.pages.values(), *self.root.glob(f"epoch-*/host-{self.host}.*")):
            path.unlink(missing_ok=True)
        if self.logs:
            self.log.write_text("")

    def committed(self) -> list[int]:
        """Epochs that this host has committed, oldest first."""
        found = [path.parent.name[6:] for path in self.root.glob(f"epoch-*/host-{self.host}.json")]
        return sorted(int(number) for number in found if number.isdigit())

    def resume(self, training: Training) -> int:
        """Load the newest checkpoint that every host has; returns its epoch, 0 where there is none."""
        epoch = self._newest_of_all(training)
        if epoch == 0:
            return 0
        meta, tensors = self._read(epoch)
        progress, wire = training.progress, training.wire
        if meta["phase"]:
            progress.step, progress.epoch = meta["begun"]
            training.enter(meta["phase"])
        progress.epoch, progress.step = meta["epoch"], meta["step"]
        progress.seconds, progress.wire_seconds, progress.due = meta["seconds"], meta["wire_seconds"], meta["due"]
        wire.noise.draws = meta["draws"]
        progress.round_starts = training.stage.round_over(progress.step, progress.epoch)
        _restore(training, tensors)
        wire.releases.events = {Kind(kind): [from_json(e) for e in each] for kind, each in meta["released"].items()}
        self._cut_back(training, meta)
        for later in [e for e in self.committed() if e > epoch]:
            shutil.rmtree(self._place(later), ignore_errors=True)
        return epoch

    def _newest_of_all(self, training: Training) -> int:
        mine, wire = torch.tensor([0, *self.committed()]), training.wire

        def newest(said: dict[int, Tensor]) -> Tensor:
            here = [] if wire.mine else [set(mine.tolist())]  # a server without silos has checkpoints of its own
            return torch.tensor([max(set.intersection(*here, *(set(x.tolist()) for x in said.values())))])

        with wire.ledger.unrecorded():
            return int(wire.settle(Kind.METRICS, dict.fromkeys(wire.mine, mine), newest))

    def _read(self, epoch: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
        here = self._place(epoch)
        try:
            meta = json.loads((here / f"host-{self.host}.json").read_text())
            body = (here / f"host-{self.host}.safetensors").read_bytes()
            whole = zlib.crc32(body) == meta["checksum"]
        except (OSError, ValueError, KeyError, TypeError):
            whole = False
        if not whole:
            raise IsthmusError(
                f"The checkpoint '{here}' is damaged. Delete that folder to continue from the one before, "
                "or start again with --overwrite."
            )
        if meta["digest"] != self.digest:
            raise IsthmusError(
                f"The checkpoint '{here}' belongs to another configuration; resume with the options of "
                f"'{self.root.parent / 'config.toml'}', or start again with --overwrite."
            )
        if "pages" not in meta:
            raise IsthmusError(f"The checkpoint '{here}' is of an older version; start again with --overwrite.")
        return meta, load(body)

    def _cut_back(self, training: Training, meta: dict[str, Any]) -> None:
        """Forget what was logged after the checkpoint, then read the ledger and the seconds up to it."""
        sizes = {path: meta["pages"][name] for name, path in self.pages.items()}
        sizes |= {self.log: meta["log_bytes"]} if self.logs else {}
        for path, size in sizes.items():
            if not path.is_file() or path.stat().st_size < size:
                raise IsthmusError(f"'{path}' is shorter than its checkpoint says; start again with --overwrite.")
            os.truncate(path, size)
        lines, legs, seconds = (
            torch.from_numpy(np.fromfile(self.pages[name], kind).reshape(-1, width))
            for name, (kind, width) in _PAGES.items()
        )
        ledger, progress = training.wire.ledger, training.progress
        ledger.restore(lines, legs, [from_json(each) for each in meta["events"]], meta["transport"])
        ledger.epoch, ledger.step = progress.epoch, progress.step
        progress.computing = seconds.flatten().tolist()
        if self.logs:
            progress.history = [json.loads(line) for line in self.log.read_text().splitlines()]

    def _place(self, epoch: int) -> Path:
        return self.root / f"epoch-{epoch:06d}"


def _tensors(training: Training) -> dict[str, Tensor]:
    """Everything that the next epoch depends on. Randomness has no state: it is a function of seed and step."""
    named: dict[str, Tensor] = {f"model/{name}": t for name, t in training.learner.everything().items()}
    for part, state in training.stage.states().items():
        named |= {f"part/{part}/{name}": t for name, t in state.items()}
    named |= {f"releases/{name}": t for name, t in training.wire.releases.state.items()}
    for name, model in training.learner.models.items():
        for index, state in model.optimiser.state_dict()["state"].items():
            kept = {key: value for key, value in state.items() if isinstance(value, Tensor)}
            named |= {f"optimiser/{name}/{index}/{key}": value for key, value in kept.items()}
    return {name: t.detach().cpu().contiguous().clone() for name, t in named.items()}


def _restore(training: Training, tensors: dict[str, Tensor]) -> None:
    """Put back what :func:`_tensors` gave."""
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        head, _, rest = name.partition("/")
        groups.setdefault(head, {})[rest] = tensor.to(training.device)
    for name, live in training.learner.everything().items():
        live.copy_(groups["model"][name])
    training.stage.load_states(_by_head(groups.get("part", {})))
    training.wire.releases.state = groups.get("releases", {})
    for name, kept in _by_head(groups.get("optimiser", {})).items():
        optimiser = training.learner.models[name].optimiser
        states = {int(index): state for index, state in _by_head(kept).items()}
        optimiser.load_state_dict({"state": states, "param_groups": optimiser.state_dict()["param_groups"]})


def _by_head(named: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Tensors grouped by the first part of their names."""
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in named.items():
        head, _, rest = name.partition("/")
        groups.setdefault(head, {})[rest] = tensor
    return groups
