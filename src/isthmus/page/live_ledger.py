"""The ledger of a run that goes on: what its hosts had counted at their last checkpoints, as the table of its end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.core.errors import IsthmusError
from isthmus.page.shelf import bounded

if TYPE_CHECKING:
    import pyarrow as pa
    import torch

MOST = 512_000_000  # bytes of one ledger that are read
_MOST_META = 64_000_000


def read_live(run: Path, silos: int, hosts: int) -> tuple[pa.Table | None, str]:
    """The ledger as a table, and a sentence on how far it reaches; no table before the first checkpoint."""
    import pyarrow as pa

    tables, epochs = [], []
    for host in range(max(hosts, 1)):
        epoch, meta = _newest(run, host)
        if meta:
            epochs.append(epoch)
            tables.append(_host_table(run, host, epoch, meta, _names(meta, host, silos, hosts)))
    if not tables:
        return None, "There is no checkpoint yet, and the ledger is kept with each."
    return pa.concat_tables(tables), f"As of the checkpoint after epoch {min(epochs):,}; validations of it included."


def _newest(run: Path, host: int) -> tuple[int, dict[str, Any]]:
    """The newest checkpoint of a host that is whole, and what it tells beside tensors; empty where there is none."""
    folders = sorted((run / "checkpoint").glob("epoch-*"), reverse=True)
    for folder in (each for each in folders if each.name[6:].isdigit()):
        path = folder / f"host-{host}.json"
        if path.is_file():
            try:
                meta = json.loads(bounded(path, _MOST_META).read_bytes().splitlines()[0])
            except (ValueError, IndexError):  # cut short: the one before it serves
                continue
            return int(folder.name[6:]), meta
    return 0, {}


def _names(meta: dict[str, Any], host: int, silos: int, hosts: int) -> dict[int, str]:
    """Names of the silos on a host by number, as far as its checkpoint tells them; others go by their number."""
    from isthmus.wire.membership import Membership

    here = Membership.dealt(silos, hosts).carried(host) if 1 <= hosts <= silos + 1 else ()
    return dict(zip(here, (str(name) for name in meta.get("data", {})), strict=False))


def _host_table(run: Path, host: int, epoch: int, meta: dict[str, Any], names: dict[int, str]) -> pa.Table:
    """The lines that one host had counted at a checkpoint, with names instead of numbers."""
    from isthmus.core.kinds import KINDS, PURPOSES
    from isthmus.protect.events import describe, from_json
    from isthmus.wire.books import COLUMNS
    from isthmus.wire.counts import as_table
    from isthmus.wire.ledger import Ledger

    if meta.get("columns") != list(COLUMNS):
        raise IsthmusError("The ledger of this run is counted by another version of isthmus; open it with that.")
    parties = Ledger()
    parties.names |= names
    events = [describe(from_json(each)) for each in meta["events"]]
    words = {
        "purpose": lambda number: PURPOSES[number].value,
        "kind": lambda number: KINDS[number].value,
        "sender": parties.party,
        "receiver": parties.party,
        "event": lambda number: events[number],
        "model": lambda number: "",
    }
    return as_table(_lines(run, host, epoch, meta), COLUMNS, words)


def _lines(run: Path, host: int, epoch: int, meta: dict[str, Any]) -> torch.Tensor:
    """Lines of the book ``ledger`` up to a checkpoint: those of single steps, then sums over later steps."""
    import numpy as np
    import torch

    from isthmus.wire.books import COLUMNS
    from isthmus.wire.counts import as_lines, sums_of

    size = int(meta["pages"]["ledger"][0])
    path = bounded(run / "checkpoint" / f"ledger-host-{host}.bin", MOST)
    with open(path, "rb") as file:
        content = file.read(size)
    if len(content) < size:
        raise IsthmusError(f"'{path.name}' is shorter than its checkpoint says; it may be written anew just now.")
    single = torch.from_numpy(np.frombuffer(content, np.int64).reshape(-1, len(COLUMNS)).copy())
    keys, sums = _sums(run / "checkpoint" / f"epoch-{epoch:06d}" / f"host-{host}.safetensors")
    known = sorted(sums_of(keys, sums).items())
    later = [counts.lines([*since, purpose], key) for (purpose, *key), (since, counts) in known]
    return torch.cat([single, as_lines(later, len(COLUMNS))])


def _sums(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and counts of the sums over steps in a checkpoint; no other tensor is read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return file.get_tensor("ledger/keys"), file.get_tensor("ledger/sums")
    except (SafetensorError, OSError) as error:
        raise IsthmusError(f"'{path.name}' of the last checkpoint is damaged, or just deleted.") from error
