"""Reads the files that a run wrote on its releases: which rows left, and their last values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.runs.tables import RELEASES, read_columns

_T = TypeVar("_T")
Nodes = list[tuple[str, str]]  # silo and public id of each
LastRows = dict[int, tuple[Nodes, Tensor]]  # by layer: nodes, and their rows as they left last


def last_rows(folder: Path, hosts: int) -> LastRows:
    """By layer, the nodes whose embeddings have left in a run on so many hosts, and their rows as they left last."""
    found: LastRows = {}
    if not any(folder.glob("releases*.parquet")) and not any(folder.glob("released*.safetensors")):
        return found
    for host in range(hosts):
        for layer, (nodes, rows) in _of_host(folder, host).items():
            before = found.get(layer, ([], rows[:0]))
            found[layer] = [*before[0], *nodes], torch.cat([before[1], rows])
    return found


def _of_host(folder: Path, host: int) -> LastRows:
    """The released rows of one host by layer."""
    import pyarrow.compute as pc

    suffix = f"-host-{host}" if host else ""
    lines = _read(folder / f"releases{suffix}.parquet", host, partial(read_columns, RELEASES))
    tensors = _read(folder / f"released{suffix}.safetensors", host, load_file)
    found: LastRows = {}
    for name, rows in tensors.items():
        kind, _, layer = name.partition("/")
        if kind != Kind.EMBEDDINGS.value:
            continue
        mine = lines.filter(pc.and_(pc.equal(lines["kind"], kind), pc.equal(lines["layer"], int(layer))))
        if len(mine) != len(rows):
            raise IsthmusError(
                f"'{folder}' has {len(mine)} lines and {len(rows)} rows that left before layer {layer}, so its files "
                "belong to different runs; run it again."
            )
        nodes = list(zip(mine["silo"].to_pylist(), mine["node"].to_pylist(), strict=True))
        found[int(layer)] = nodes, rows.double()
    return found


def _read(path: Path, host: int, how: Callable[[Path], _T]) -> _T:
    """The content of a file that host ``host`` wrote; raises an error that says how to get it if it is missing."""
    if not path.is_file():
        where = f"copy it from the machine of host {host}" if host else "repeat the run"
        raise IsthmusError(f"'{path}' is missing; {where}.")
    try:
        return how(path)
    except PermissionError as error:  # not damaged: another user's
        error.filename = str(path)
        raise
    except (ValueError, OSError, SafetensorError) as error:  # what Arrow, the disk and safetensors raise
        reason = str(error).splitlines()[0]
        raise IsthmusError(f"'{path}' is damaged ({reason}); repeat the run, or go on with --resume.") from error
