"""What a run leaves to each party: its model, its own scores, and the ledger of what it sent and received."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from isthmus.core.files import private, write_atomic
from isthmus.core.kinds import SERVER, SERVER_NAME
from isthmus.launch.ledgers import Collected
from isthmus.launch.own_ledger import sent_by
from isthmus.launch.privacy import Accounts, privacy_of
from isthmus.protect.accounting.guarantee import Guarantee
from isthmus.runs.config import RunConfig
from isthmus.runs.folder import RunFolder
from isthmus.train.training import Training
from isthmus.wire.ledger import Ledger
from isthmus.wire.wire import Wire

TOLD_EVERYBODY = ("test", "valid", "scored", "best_epoch", "seeds_scored", "drift", "schema", "scale", "steps")
_PLAIN = re.compile(r"[\w .,@+=()-]+")  # names of parties that serve as names of folders
_LONGEST_NAME = 60  # characters, as many as 240 bytes
SUMMED = "Beyond 100,000 lines steps.parquet and ledger.parquet of a party have sums over steps."


@dataclass(frozen=True)
class Perspective:
    """Whose results a ``metrics.json`` holds: of all silos, or of those that one host carries."""

    ledger: Ledger
    transport: Mapping[str, int]
    notes: list[str]
    privacy: list[Guarantee]
    silos: tuple[str, ...] | None = None  # None: of all

    def of_mine(self, each: Mapping[str, Any]) -> dict[str, Any]:
        """Of figures by silo's name, those of this view's silos."""
        return {name: value for name, value in each.items() if self.silos is None or name in self.silos}


def party_view(training: Training, accounts: Accounts, collected: Collected, notes: list[str]) -> Perspective:
    """The view of the parties on this host: what they sent and received, and the guarantees of their own silos."""
    wire = training.wire
    mine = tuple(map(wire.party, wire.mine))
    own = replace(
        accounts,
        lists={name: each for name, each in accounts.lists.items() if name in mine},
        labels={name: each for name, each in accounts.labels.items() if name in mine},
    )
    told = [*notes, *([SUMMED] if wire.ledger.summed_since is not None else [])]
    privacy = privacy_of(training, own, sent_by(wire, collected.own))
    return Perspective(collected.own, dict(wire.ledger.transport), told, privacy, mine)


def about_party(wire: Wire) -> dict[str, Any]:
    """The table ``party`` of ``metrics.json``: whose they are, and which of its numbers everybody was told."""
    return {
        "silos": [wire.party(silo) for silo in wire.mine],
        "server": wire.houses(SERVER),
        "federation": [wire.party(silo) for silo in range(wire.silos)],
        "told_everybody": list(TOLD_EVERYBODY),
    }


def party_folder(folder: RunFolder, wire: Wire) -> RunFolder:
    """Where the parties of this host get what is theirs: the run folder, or below it where hosts have it in common."""
    if not folder.shared:
        return folder
    path = folder.path / "parties" / folder_name(party_name(wire))
    shutil.rmtree(path, ignore_errors=True)  # left by an earlier end of this run
    with private():
        path.mkdir(parents=True)
    return RunFolder(path)


def party_name(wire: Wire) -> str:
    """The name of the folder of this host's parties: its silo, the first of several, or the server."""
    names = [wire.party(silo) for silo in wire.mine]
    if len(names) > 1:
        return f"{names[0]}-and-{len(names) - 1}-more"
    return names[0] if names else SERVER_NAME


def folder_name(name: str) -> str:
    """The name of a folder for a party, whatever its name is: one folder, which no name leads out of."""
    plain = quote(name, safe=" ").replace(".", "%2E") if name.startswith(".") or not _PLAIN.fullmatch(name) else name
    if len(plain) <= _LONGEST_NAME:
        return plain
    return f"{plain[:_LONGEST_NAME]}-{hashlib.blake2b(name.encode(), digest_size=8).hexdigest()}"


def write_what_all_know(training: Training, config: RunConfig, own: RunFolder) -> None:
    """Write the configuration and the curves of a run, which every host has, into a party's folder."""
    write_atomic(own.path / "config.toml", config.toml().encode())
    lines = "".join(json.dumps(line) + "\n" for line in training.progress.history)
    write_atomic(own.path / "metrics.jsonl", lines.encode())
