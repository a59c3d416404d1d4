"""Checkpoints: written under another name, then renamed; a run resumes from the newest that every host committed."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.files import private, write_atomic
from isthmus.core.kinds import Kind
from isthmus.core.version import VERSION
from isthmus.federation.text_on_wire import raise_together
from isthmus.graph.digest import Digests, changes
from isthmus.protect.events import from_json, to_json
from isthmus.train.appended import Appended
from isthmus.train.checkpoint_tensors import load_tensors, tensors_of
from isthmus.train.training import Training
from isthmus.wire.books import BOOKS, COLUMNS
from isthmus.wire.wire import Wire

_BYTES_PER_EPOCH = 32 * 2**20
_PAGES = (*BOOKS, "computing")
_KEEP = 2  # a host may be killed after its commit and before another's, so the one before must still be there


class Checkpoints:
    """The checkpoints of one host in a run folder.

    ``epoch-N/host-H.safetensors`` holds tensors; ``host-H.json``, written last, commits them, and ends with a line that
    is its own checksum. What every epoch adds to (lines of the ledger, seconds) is appended to files of the host and
    cut back on resume, like ``metrics.jsonl``. They hold rows of nodes, and nobody but their owner can read them.
    """

    def __init__(
        self, folder: Path, digest: str, host: int, logs: bool, data: Mapping[str, Digests] | None = None
    ) -> None:
        """``digest`` is of the configuration, ``data`` of each silo's data.

        ``logs``: this host writes ``metrics.jsonl``; of hosts that have a folder in common the server's does, and each
        of the others keeps its own lines beside its checkpoints.
        """
        self.root, self.digest, self.host = folder / "checkpoint", digest, host
        self.data = {silo: dict(each) for silo, each in (data or {}).items()}
        self.log = Appended(folder / "metrics.jsonl" if logs else self.root / f"metrics-host-{host}.jsonl")
        self.pages = {name: Appended(self.root / f"{name}-host-{host}.bin") for name in _PAGES}

    def every(self, training: Training) -> int:
        """Epochs between two checkpoints, equal on every host: they follow from the size of the whole federation."""
        if training.train.checkpoint_every:
            return training.train.checkpoint_every
        sets = 1 if training.stage.phase.sync.lockstep else training.wire.silos
        models = training.learner.models.values()
        numbers = sum(p[0].numel() * p.element_size() for m in models for p in m.sets.parameters.values())
        return -(-4 * numbers * sets // _BYTES_PER_EPOCH)  # parameters, the best ones, and two moments

    def commit(self, training: Training) -> None:
        """Write the state of this host after an epoch, and delete checkpoints older than the last two."""
        here = self._place(training.progress.epoch)
        with private():
            here.mkdir(parents=True, exist_ok=True)
            self._append(training)
            body = save(tensors_of(training))
            write_atomic(here / f"host-{self.host}.safetensors", body)
            write_atomic(here / f"host-{self.host}.json", _with_checksum(self._meta(training, zlib.crc32(body))))
        for old in self.committed()[:-_KEEP]:
            shutil.rmtree(self._place(old), ignore_errors=True)

    def _meta(self, training: Training, checksum: int) -> dict[str, Any]:
        """What a checkpoint holds beside tensors, whose checksum is given."""
        progress, wire, stage = training.progress, training.wire, training.stage
        return {
            "version": VERSION,
            "digest": self.digest,
            "data": self.data,
            "checksum": checksum,
            "columns": list(COLUMNS),
            "phase": progress.phase,
            "begun": [stage.first_step, stage.first_epoch],
            "epoch": progress.epoch,
            "step": progress.step,
            "round": progress.round,
            "missed": [[silo, count] for silo, count in progress.missed.items()],
            "due": progress.due,
            "seconds": progress.seconds,
            "wire_seconds": progress.wire_seconds,
            "draws": wire.noise.draws,
            "events": [to_json(events) for events in wire.ledger.events],
            "released": {kind: [to_json(e) for e in each] for kind, each in wire.releases.events.items()},
            "transport": wire.ledger.transport,
            "notes": training.federation.notes,
            "pages": {name: page.mark() for name, page in self.pages.items()},
            "log": self.log.mark(),
        }

    def _append(self, training: Training) -> None:
        """Append what was added since the last commit to the files of this host."""
        known = self.pages["computing"].size // np.dtype(np.float64).itemsize
        fresh = {name: lines.numpy() for name, lines in training.wire.ledger.turn_page().items()}
        for name, numbers in {**fresh, "computing": np.array(training.progress.computing[known:])}.items():
            self.pages[name].append(numbers.tobytes())

    def clear(self) -> None:
        """Delete what an earlier run, or one that never committed, has left of this host."""
        for page in self.pages.values():
            page.clear()
        for path in self.root.glob(f"epoch-*/host-{self.host}.*"):
            path.unlink(missing_ok=True)
        self.log.clear()
        with private():
            self.root.mkdir(parents=True, exist_ok=True)
        self.log.append(b"")

    def committed(self) -> list[int]:
        """Epochs that this host has committed, oldest first."""
        folders = [each for each in self.root.iterdir() if each.name[6:].isdigit()] if self.root.is_dir() else []
        return sorted(int(each.name[6:]) for each in folders if (each / f"host-{self.host}.json").is_file())

    def resume(self, training: Training, alone: bool = False) -> int:
        """Load the newest checkpoint that every host has; returns its epoch, 0 where there is none.

        ``alone``: the newest of this host, which comes back to a run that the others are in the middle of.
        """
        epoch = max(self.committed(), default=0) if alone else self._newest_of_all(training)
        if epoch == 0:
            return 0
        progress, wire = training.progress, training.wire
        meta, tensors, pages = self._read(epoch) if alone else self._read_together(epoch, wire)
        if meta["phase"]:
            progress.step, progress.epoch = meta["begun"]
            training.enter(meta["phase"])
        progress.epoch, progress.step, progress.round = meta["epoch"], meta["step"], meta["round"]
        progress.missed = dict(meta["missed"])
        progress.seconds, progress.wire_seconds, progress.due = meta["seconds"], meta["wire_seconds"], meta["due"]
        wire.noise.draws = meta["draws"]
        progress.round_starts = training.stage.round_over(progress.step, progress.epoch)
        load_tensors(training, tensors)
        wire.releases.events = {Kind(kind): [from_json(e) for e in each] for kind, each in meta["released"].items()}
        self._cut_back(training, meta, tensors, pages)
        for sentence in meta.get("notes", ()):  # what a phase that is over has found to say is found no more
            training.federation.note(sentence)
        if meta["version"] != VERSION:
            training.federation.note(f"This run began with isthmus {meta['version']} and went on with {VERSION}.")
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

    def _read_together(self, epoch: int, wire: Wire) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, bytes]]:
        """Meta, tensors and appended files of this host's checkpoint; where one host cannot read its own, all raise."""
        problem, found = "", None
        try:
            found = self._read(epoch)
        except IsthmusError as error:
            problem = str(error)
        with wire.ledger.unrecorded():
            raise_together(wire, problem)
        assert found is not None
        return found

    def read_newest(self) -> None:
        """Raise where the newest checkpoint of this host is damaged, or of other data or settings."""
        self._read(max(self.committed()))

    def _read(self, epoch: int) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, bytes]]:
        """Meta, tensors and appended files of a checkpoint, all checked before anything of the run is changed."""
        meta, body = self._whole(epoch)
        if meta["digest"] != self.digest:
            raise IsthmusError(
                f"The checkpoint '{self._place(epoch)}' belongs to another configuration; resume with the options of "
                f"'{self.root.parent / 'config.toml'}', or start again with --overwrite."
            )
        if meta.get("columns") != list(COLUMNS):
            raise IsthmusError(
                f"The checkpoint '{self._place(epoch)}' is of a version whose ledger had other columns; start again "
                "with --overwrite."
            )
        changed = changes(meta["data"], self.data)
        if changed:
            raise IsthmusError(
                f"The data of '{self.root.parent}' is not what it was when the run began: {changed}. Resume with the "
                "data of that time, or start again with --overwrite."
            )
        pages = {name: page.read(meta["pages"][name]) for name, page in self.pages.items()}
        return meta, load(body), pages | {"log": self.log.read(meta["log"])}

    def _whole(self, epoch: int) -> tuple[dict[str, Any], bytes]:
        """Meta and the bytes of the tensors of a checkpoint; raises where one does not fit its checksum."""
        here = self._place(epoch)
        told, held = (here / f"host-{self.host}.{kind}" for kind in ("json", "safetensors"))
        text, _, checksum = (told.read_bytes() if told.is_file() else b"").rpartition(b"\n")
        if not text and b'"log_bytes"' in checksum:
            raise IsthmusError(f"The checkpoint '{here}' is of an older version; start again with --overwrite.")
        body = held.read_bytes() if held.is_file() else b""
        meta: dict[str, Any] = json.loads(text) if checksum == _checksum(text) else {}
        if not meta or meta["checksum"] != zlib.crc32(body):
            raise IsthmusError(
                f"The checkpoint '{here}' is damaged ({held.name if meta else told.name}). Delete that folder to "
                "continue from the one before, or start again with --overwrite."
            )
        return meta, body

    def _cut_back(
        self, training: Training, meta: dict[str, Any], tensors: dict[str, Tensor], pages: dict[str, bytes]
    ) -> None:
        """Drop what was logged after the checkpoint, and restore the ledger, the seconds and the history up to it."""
        for name, page in self.pages.items():
            page.cut_back(meta["pages"][name])
        ledger, progress = training.wire.ledger, training.progress
        books = {name: _lines(pages[name], len(columns)) for name, columns in BOOKS.items()}
        growing = {name: tensors[f"ledger/{name}"].cpu() for name in ledger.growing()}
        ledger.restore(books, growing, [from_json(each) for each in meta["events"]], meta["transport"])
        ledger.epoch, ledger.step = progress.epoch, progress.step
        progress.computing = np.frombuffer(pages["computing"]).tolist()
        self.log.cut_back(meta["log"])
        progress.history = [json.loads(line) for line in pages["log"].splitlines()]

    def _place(self, epoch: int) -> Path:
        return self.root / f"epoch-{epoch:06d}"


def _with_checksum(meta: dict[str, Any]) -> bytes:
    """Meta as JSON on one line, and on the next the checksum of that line."""
    text = json.dumps(meta).encode()
    return text + b"\n" + _checksum(text)


def _checksum(text: bytes) -> bytes:
    return f"{zlib.crc32(text):08x}".encode()


def _lines(content: bytes, width: int) -> Tensor:
    """Lines of whole numbers from the bytes of a file: [lines, width]."""
    return torch.from_numpy(np.frombuffer(content, np.int64).reshape(-1, width).copy())
