"""Checkpoints: written beside, then renamed; the newest that every host committed is where a run resumes."""

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

from isthmus.errors import IsthmusError
from isthmus.run.folder import write_atomic
from isthmus.state import Run
from isthmus.wire.ledger import COLUMNS, LEG_COLUMNS, SERVER, Kind

_BYTES_PER_EPOCH = 32 * 2**20
_PAGES = {"ledger": (np.int64, len(COLUMNS)), "legs": (np.int64, len(LEG_COLUMNS)), "computing": (np.float64, 1)}
_KEEP = 2  # a host may be killed after its commit and before another's, so the one before must still be there


class Checkpoints:
    """The checkpoints of one host in a run folder.

    ``epoch-N/host-H.safetensors`` holds tensors; ``host-H.json``, written last, commits them. What every epoch adds to
    (lines and legs of the ledger, seconds) is appended to files of the host and cut back on resume, like
    ``metrics.jsonl``.
    """

    def __init__(self, folder: Path, digest: str, host: int) -> None:
        self.root, self.digest, self.host = folder / "checkpoint", digest, host
        self.log = folder / "metrics.jsonl"
        self.pages = {name: self.root / f"{name}-host-{host}.bin" for name in _PAGES}

    def every(self, run: Run) -> int:
        """Epochs between two checkpoints; the same on every host, so from the size of the whole federation."""
        if run.train.checkpoint_every:
            return run.train.checkpoint_every
        numbers = sum(p[0].numel() * p.element_size() for p in run.sets.parameters.values())
        sets = 1 if run.sync.lockstep else run.wire.silos
        return -(-4 * numbers * sets // _BYTES_PER_EPOCH)  # parameters, the best ones, and two moments

    def commit(self, run: Run) -> None:
        """Write the state of this host after an epoch."""
        self.root.mkdir(parents=True, exist_ok=True)
        self._append(run)
        here = self._place(run.epoch)
        here.mkdir(exist_ok=True)
        body = save(_tensors(run))
        write_atomic(here / f"host-{self.host}.safetensors", body)
        meta = {
            "digest": self.digest,
            "checksum": zlib.crc32(body),
            "epoch": run.epoch,
            "step": run.step,
            "waited": run.best.waited,
            "due": run.due,
            "seconds": run.seconds,
            "wire_seconds": run.wire_seconds,
            "draws": run.wire.noise.draws,
            "events": run.wire.ledger.events,
            "transport": run.wire.ledger.transport,
            "pages": {name: path.stat().st_size for name, path in self.pages.items()},
            "log_bytes": self.log.stat().st_size if self.log.exists() else 0,
        }
        write_atomic(here / f"host-{self.host}.json", json.dumps(meta).encode())
        for old in self.committed()[:-_KEEP]:
            shutil.rmtree(self._place(old), ignore_errors=True)

    def _append(self, run: Run) -> None:
        """Write what was added since the last commit behind what is there."""
        lines, legs = run.wire.ledger.turn_page()
        known = self._size("computing") // np.dtype(np.float64).itemsize
        fresh = {"ledger": lines.numpy(), "legs": legs.numpy(), "computing": np.array(run.computing[known:])}
        for name, numbers in fresh.items():
            with open(self.pages[name], "ab") as file:
                file.write(numbers.tobytes())

    def _size(self, name: str) -> int:
        path = self.pages[name]
        return path.stat().st_size if path.is_file() else 0

    def clear(self) -> None:
        """Forget what an earlier run, or one that never committed, has left of this host."""
        for path in (*self.pages.values(), *self.root.glob(f"epoch-*/host-{self.host}.*")):
            path.unlink(missing_ok=True)
        if self.host == 0:
            self.log.write_text("")

    def committed(self) -> list[int]:
        """Epochs that this host has committed, oldest first."""
        found = [path.parent.name[6:] for path in self.root.glob(f"epoch-*/host-{self.host}.json")]
        return sorted(int(number) for number in found if number.isdigit())

    def resume(self, run: Run) -> int:
        """Load the newest checkpoint that every host has; returns its epoch, 0 where there is none."""
        epoch = self._newest_of_all(run)
        if epoch == 0:
            return 0
        meta, tensors = self._read(epoch)
        run.epoch, run.step, run.best.waited = meta["epoch"], meta["step"], meta["waited"]
        run.seconds, run.wire_seconds, run.due = meta["seconds"], meta["wire_seconds"], meta["due"]
        run.wire.noise.draws = meta["draws"]
        run.round_starts = run.sync.round_over(run.step, run.epoch, run.epoch_over)
        _restore(run, tensors)
        self._cut_back(run, meta)
        for later in [e for e in self.committed() if e > epoch]:
            shutil.rmtree(self._place(later), ignore_errors=True)
        return epoch

    def _newest_of_all(self, run: Run) -> int:
        mine = torch.tensor([0, *self.committed()])
        answer: dict[tuple[int, int], Tensor] = {}
        with run.wire.ledger.unrecorded():
            got = run.wire.post(Kind.METRICS, {(silo, SERVER): mine for silo in run.wire.mine})
            if run.wire.serves:
                common = set.intersection(*(set(x.tolist()) for x in got.values()))
                answer = {(SERVER, silo): torch.tensor([max(common)]) for silo in range(run.wire.silos)}
            return int(run.wire.post(Kind.METRICS, answer)[SERVER, run.wire.mine[0]])

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

    def _cut_back(self, run: Run, meta: dict[str, Any]) -> None:
        """Forget what was logged after the checkpoint, then read the ledger and the seconds up to it."""
        sizes = {path: meta["pages"][name] for name, path in self.pages.items()}
        sizes |= {self.log: meta["log_bytes"]} if self.host == 0 else {}
        for path, size in sizes.items():
            if not path.is_file() or path.stat().st_size < size:
                raise IsthmusError(f"'{path}' is shorter than its checkpoint says; start again with --overwrite.")
            os.truncate(path, size)
        lines, legs, seconds = (
            torch.from_numpy(np.fromfile(self.pages[name], kind).reshape(-1, width))
            for name, (kind, width) in _PAGES.items()
        )
        run.wire.ledger.restore(lines, legs, meta["events"], meta["transport"])
        run.wire.ledger.epoch, run.wire.ledger.step = run.epoch, run.step
        run.computing = seconds.flatten().tolist()
        if self.host == 0:
            run.history = [json.loads(line) for line in self.log.read_text().splitlines()]

    def _place(self, epoch: int) -> Path:
        return self.root / f"epoch-{epoch:06d}"


def _tensors(run: Run) -> dict[str, Tensor]:
    """Everything that the next epoch depends on. Randomness has no state: it is a function of seed and step."""
    named: dict[str, Tensor] = {f"model/{name}": t for name, t in run.sets.everything().items()}
    named |= {f"best/{name}": t for name, t in run.best.kept.items()}
    named |= {"selection/score": run.best.score, "selection/epoch": run.best.epoch}
    named |= {f"exchange/{name}": t for name, t in run.exchange.state.items()}
    named |= {f"objective/{name}": t for name, t in run.objective.state.items()}
    named |= {f"sync/{name}": t for name, t in run.sync.state.items()}
    named |= {f"releases/{name}": t for name, t in run.wire.releases.state.items()}
    for index, state in run.optimiser.state_dict()["state"].items():
        named |= {f"optimiser/{index}/{key}": value for key, value in state.items() if isinstance(value, Tensor)}
    return {name: t.detach().cpu().contiguous().clone() for name, t in named.items()}


def _restore(run: Run, tensors: dict[str, Tensor]) -> None:
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        head, _, rest = name.partition("/")
        groups.setdefault(head, {})[rest] = tensor.to(run.device) if head != "selection" else tensor
    for name, live in run.sets.everything().items():
        live.copy_(groups["model"][name])
    run.best.kept = groups.get("best", {})
    run.best.score, run.best.epoch = groups["selection"]["score"], groups["selection"]["epoch"]
    run.exchange.state = groups.get("exchange", {})
    run.objective.state = groups.get("objective", {})
    run.sync.state = groups.get("sync", {})
    run.wire.releases.state = groups.get("releases", {})
    states: dict[int, dict[str, Tensor]] = {}
    for name, tensor in groups.get("optimiser", {}).items():
        index, key = name.split("/")
        states.setdefault(int(index), {})[key] = tensor
    blank = run.optimiser.state_dict()
    run.optimiser.load_state_dict({"state": states, "param_groups": blank["param_groups"]})
