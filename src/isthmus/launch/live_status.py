"""What a host tells of itself while it runs: a small status file that is renewed, and a log of JSON lines."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from isthmus.core.errors import PeerError
from isthmus.core.files import write_atomic
from isthmus.core.kinds import KINDS
from isthmus.runs.status import FILE, HostStatus, last_told
from isthmus.train.progress import Progress
from isthmus.train.training import Training
from isthmus.train.watcher import Watcher
from isthmus.wire.wire import Wire

_RENEWED = 2.0  # seconds between two writings of the status file
_MOST_PARTIES = 1000  # whose bytes it tells; of more, only kinds of messages


class Log:
    """JSON lines on what happens to one host: time, party, event, and numbers; never a row, a label or an id."""

    def __init__(self, path: str, wire: Wire) -> None:
        """``path``: where to write (empty: nowhere); hosts but the first write beside it, under their number."""
        whole = Path(path)
        name = f"{whole.stem}-host-{wire.host}{whole.suffix}" if wire.host else whole.name
        self.path = whole.with_name(name) if path else None
        self.party = wire.who[wire.host]

    def write(self, event: str, **about: Any) -> None:
        """Add a line, if there is a log."""
        if self.path is not None:
            line = {"time": _now(), "party": self.party, "event": event, **about}
            with open(self.path, "a") as file:
                file.write(json.dumps(line) + "\n")


class Live(Watcher):
    """Follows the training of one host: keeps ``status-host-N.json`` up to date, and writes the log."""

    def __init__(self, wire: Wire, folder: Path, log: str) -> None:
        self.wire, self.place, self.log = wire, folder / FILE.format(wire.host), Log(log, wire)
        self.inner = Watcher()
        self.now = asdict(HostStatus(wire.host, wire.who[wire.host], "running", pid=os.getpid(), started=_now()))
        self._counted = -_RENEWED  # when it was last counted what has crossed
        self._began, self._first, self._stop = time.monotonic(), 0, threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Live:
        self.log.write("start", hosts=self.wire.hosts)
        return self

    def follow(self, training: Training, inner: Watcher) -> Live:
        """Begin to tell of a training that is ready for its next step; ``inner`` watches it too."""
        progress, self.training = training.progress, training
        self.inner, self._began, self._first = inner, time.monotonic(), progress.step
        told = {"epoch": progress.epoch, "epochs": progress.epochs, "step": progress.step, "phase": training.phase_name}
        self.now |= {"party": self.wire.who[self.wire.host], **told}
        if training.over:  # no step is left to take, and what was told of the last one stays
            before = last_told(self.place.parent, self.wire.host)
            self.now |= {"loss": before.loss, "steps_per_second": before.steps_per_second, "bytes": before.bytes}
        self.log.party = self.now["party"]
        self.log.write("training", epoch=progress.epoch, step=progress.step)
        self._count(progress)
        self._renew()
        if self._thread is None:  # a host that comes back to a run follows its training anew
            self._thread = threading.Thread(target=self._keep, daemon=True)
            self._thread.start()
        return self

    def on_step(self, progress: Progress, loss: float) -> None:
        """Take note of a step."""
        rate = (progress.step - self._first) / max(time.monotonic() - self._began, 1e-9)
        told = {
            "phase": self.training.phase_name,
            "epoch": progress.epoch,
            "epochs": progress.epochs,
            "step": progress.step,
        }
        self.now |= {**told, "loss": loss if math.isfinite(loss) else None, "steps_per_second": round(rate, 3)}
        self._count(progress)
        self.inner.on_step(progress, loss)

    def on_epoch(self, progress: Progress, lines: list[dict[str, Any]]) -> None:
        """Take note of an epoch, after its checkpoint was written."""
        self.now |= {"epoch": progress.epoch, "bytes": sum(self.wire.ledger.transport.values())}
        seconds = round(progress.seconds, 3)
        about = {"epoch": progress.epoch, "step": progress.step, "seconds": seconds, "bytes": self.now["bytes"]}
        self.log.write("epoch", **about)
        self.inner.on_epoch(progress, lines)

    def on_rollback(self, progress: Progress) -> None:
        """Take note that a round is taken again without a party that was lost."""
        members = self.wire.members
        gone = [self.wire.party(silo) for silo in range(members.silos) if silo not in members.present]
        self.now |= {"epoch": progress.epoch, "step": progress.step}
        self.log.write("rollback", epoch=progress.epoch, step=progress.step, without=gone)
        self.inner.on_rollback(progress)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        state = "finished" if kind is None else "failed"
        self._stop.set()
        told = {"why": str(error)[:1000]} if isinstance(error, PeerError) else {}
        why = told or ({} if kind is None else {"why": kind.__name__})  # other words may tell of this host's data
        with suppress(OSError):  # a disk that is full must not hide why the run ends
            self.log.write("end", state=state, step=self.now["step"], **({"error": kind.__name__} if kind else {}))
            if self._thread is not None:
                self._thread.join()
                self.now |= {"state": state, "waiting_for": [], **why}
                self._renew()

    def _count(self, progress: Progress) -> None:
        """Take note of what this host has counted so far, where the last time is long enough ago."""
        if time.monotonic() - self._counted < _RENEWED:
            return
        ledger, found = self.wire.ledger, self.wire.ledger.so_far()
        kinds = {KINDS[kind].value: counts.tolist() for kind, counts in found.kinds.items()}
        few = found.parties if len(found.parties) <= _MOST_PARTIES else found.parties[:0]
        parties = {ledger.party(number): ends for number, *ends in few.tolist()}
        self.now["crossed"] = {"step": progress.step, "kinds": kinds, "parties": parties}
        self._counted = time.monotonic()

    def _keep(self) -> None:
        """Renew the status file until the run has ended; a disk that refuses it once is asked again.

        Hosts wait for each other all the time, for a moment: it is told where no step has ended since the last look.
        """
        step = -1
        while not self._stop.wait(_RENEWED):
            self.now["waiting_for"] = self.wire.waiting_for() if self.now["step"] == step else []
            step = self.now["step"]
            with suppress(OSError):
                self._renew()

    def _renew(self) -> None:
        write_atomic(self.place, (json.dumps({**self.now, "updated": _now()}) + "\n").encode())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
