"""How a run stands, read from its folder alone: while it runs, when it has ended, and when it was cut off."""

from __future__ import annotations

import fcntl
import json
import math
import re
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from isthmus.core.errors import IsthmusError
from isthmus.runs.folder import LOCK

FILE = "status-host-{}.json"
STATES = ("starting", "running", "finished", "failed", "cut off", "not told")
SILENT = 15.0  # seconds without a word after which a host on another machine counts as gone


@dataclass(frozen=True)
class HostStatus:
    """What one host has last told of itself in ``status-host-N.json``; ``state`` is one of `STATES`.

    ``crossed`` has what the host's ledger had counted at a ``step``: by kind messages, rows and bytes, and by party the
    bytes that it sent and received. ``bytes`` are those that its transport has carried to other hosts.
    """

    host: int
    party: str = ""
    state: str = "not told"
    phase: str = ""
    epoch: int = 0
    epochs: int = 0
    step: int = 0
    loss: float | None = None
    steps_per_second: float = 0.0
    bytes: int = 0
    crossed: dict[str, Any] = field(default_factory=dict)
    waiting_for: list[str] = field(default_factory=list)
    why: str = ""
    pid: int = 0
    started: str = ""
    updated: str = ""


@dataclass(frozen=True)
class RunStatus:
    """How a whole run stands: its state, the last checkpoint of each host, what its hosts tell, what is damaged.

    Of a run with several seeds, hosts and checkpoints are those of the ``seed`` (its folder's name) that told last.
    """

    folder: str
    state: str
    hosts: list[HostStatus]
    checkpoints: dict[int, int]  # by host, the last epoch that it committed
    forgotten: str  # when its rows were deleted
    damaged: list[str]
    seed: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The status as ``isthmus status --json`` prints it."""
        return asdict(self)


def status_of(path: Path) -> RunStatus:
    """How the run in a folder stands; damaged files are listed, and never keep one from seeing the others."""
    if not (path / "config.toml").is_file():
        raise IsthmusError(f"'{path}' is not a run (no config.toml); give the folder of a run, like runs/demo/fedavg.")
    damaged: list[str] = []
    held = is_held(path)
    seed = _newest_seed(path)
    told_in = seed or path
    hosts = [_host(told_in, number, damaged, held) for number in _numbers(told_in, FILE)]
    finished = _read(path / "metrics.json", damaged)
    forgotten = _read(path / "forgotten.json", damaged)
    return RunStatus(
        str(path),
        _state(hosts, bool(finished), held),
        hosts,
        _checkpoints(told_in),
        str(forgotten.get("when", "")),
        damaged,
        seed.name if seed else "",
    )


def last_told(path: Path, number: int) -> HostStatus:
    """What a host of the run in a folder has told last, whether it still runs or not."""
    return _host(path, number, [], held=True)


def _newest_seed(path: Path) -> Path | None:
    """The folder of the seed whose first host has told last; None in a run with one seed, or before it tells."""
    told = path.glob(f"seed-*/{FILE.format(0)}")
    newest = max(told, key=lambda file: file.stat().st_mtime, default=None)
    return None if newest is None else newest.parent


def epochs_taken(path: Path) -> int:
    """The epochs that a run has taken, or the seed that is furthest: by its metrics, and by what all hosts committed.

    Files that are damaged count for nothing here; whoever reads them says so.
    """
    timed = _read(path / "metrics.json", []).get("seconds_by_epoch")
    ended = len(timed) if isinstance(timed, list) else 0
    seeds = [epochs_taken(each) for each in path.glob("seed-*") if (each / "config.toml").is_file()]
    return max(ended, min(_checkpoints(path).values(), default=0), *seeds, 0)


def is_held(path: Path) -> bool:
    """Whether a process of this machine works in a run folder now."""
    try:
        with open(path / LOCK) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there is no lock
        return False
    return False


def _state(hosts: list[HostStatus], finished: bool, held: bool) -> str:
    """The state of a run: of the first host that has not come as far as the others."""
    if held:
        return "running" if hosts else "starting"
    told = {host.state for host in hosts}
    for state in ("failed", "cut off", "running"):
        if state in told:
            return state
    return "finished" if finished else "cut off"


def _host(path: Path, number: int, damaged: list[str], held: bool) -> HostStatus:
    """What a host has told; one that says it runs, and neither holds the folder nor has told anything new, is gone."""
    told = _read(path / FILE.format(number), damaged)
    kinds = {name: type(value) for name, value in asdict(HostStatus(number)).items() if value is not None}
    for name, value in told.items():
        right = name in kinds and isinstance(value, kinds[name]) or (name == "loss" and _is_number(value))
        if not right and not (kinds.get(name) is float and isinstance(value, int)):
            damaged.append(f"{FILE.format(number)}: {name}")
            return HostStatus(number)
    found = HostStatus(**{**told, "host": number})
    if found.state != "running" or held:
        return found
    return found if _age(found.updated) < SILENT else HostStatus(**{**told, "host": number, "state": "cut off"})


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and math.isfinite(value))


def _age(when: str) -> float:
    """Seconds since a time as hosts write it; endless where it is none."""
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(when)).total_seconds()
    except (ValueError, TypeError):
        return math.inf


def _read(path: Path, damaged: list[str]) -> dict[str, Any]:
    """A JSON table from a file; empty where there is none, and where it is damaged, which is listed."""
    if not path.is_file():
        return {}
    try:
        told = json.loads(path.read_bytes())
    except ValueError:
        told = None
    if isinstance(told, dict):
        return told
    damaged.append(path.name)
    return {}


def _numbers(path: Path, name: str) -> list[int]:
    """The numbers of hosts that have left a file of this name."""
    pattern = re.compile(re.escape(name).replace(r"\{\}", "([0-9]{1,6})"))
    return sorted(int(match[1]) for match in (pattern.fullmatch(each.name) for each in path.iterdir()) if match)


def _checkpoints(path: Path) -> dict[int, int]:
    """The last epoch that each host has committed."""
    last: dict[int, int] = {}
    for folder in sorted(path.glob("checkpoint/epoch-*")):
        if folder.name[6:].isdigit() and folder.is_dir():
            for host in _numbers(folder, "host-{}.json"):
                last[host] = max(last.get(host, 0), int(folder.name[6:]))
    return last
