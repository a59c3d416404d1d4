"""Reading what a run has kept of its releases: which rows left, their last values, and the parameters behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind

# Parameters that validation selected, that training ended with, and that each silo sent last, if it sent any.
PARAMETERS = ("selected", "last", "sent")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Page:
    """The rows of one layer that left: their nodes, how often each left, and its values when it left last."""

    nodes: list[tuple[str, str]]  # [r] silo and public id
    releases: Tensor  # [r]
    rows: Tensor  # [r, width]


@dataclass(frozen=True)
class Book:
    """The released rows of a run by layer, and the parameters of every host under each name in ``PARAMETERS``."""

    pages: dict[int, Page]
    held: dict[str, list[dict[str, Tensor]]]


def read_book(folder: Path, hosts: int) -> Book | None:
    """The released rows and kept parameters of a run on so many hosts; None where no embedding has left."""
    if not any(folder.glob("releases*.parquet")) and not any(folder.glob("released*.safetensors")):
        return None
    parts = [_of_host(folder, host) for host in range(hosts)]
    layers = sorted({layer for pages, _ in parts for layer in pages})
    pages = {layer: _joined([pages[layer] for pages, _ in parts if layer in pages]) for layer in layers}
    held = {name: [_below(tensors, f"{name}/") for _, tensors in parts] for name in PARAMETERS}
    if not any(held["selected"]):
        raise IsthmusError(f"'{folder}' is a run of an older version, without the parameters to audit; run it again.")
    held = {name: each for name, each in held.items() if any(each)}
    return Book(pages, held) if any(len(page.rows) for page in pages.values()) else None


def _of_host(folder: Path, host: int) -> tuple[dict[int, Page], dict[str, Tensor]]:
    """The released rows of one host by layer, and all tensors that it kept."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    suffix = f"-host-{host}" if host else ""
    lines = _read(folder / f"releases{suffix}.parquet", host, pq.read_table)
    tensors = _read(folder / f"released{suffix}.safetensors", host, load_file)
    pages = {}
    for name, rows in _below(tensors, f"{Kind.EMBEDDINGS.value}/").items():
        mine = pc.and_(pc.equal(lines["kind"], Kind.EMBEDDINGS.value), pc.equal(lines["layer"], int(name)))
        found = lines.filter(mine)
        if len(found) != len(rows):
            raise IsthmusError(
                f"'{folder}' has {len(found)} lines and {len(rows)} rows that left before layer {name}, so its files "
                "belong to different runs; run it again."
            )
        nodes = list(zip(found["silo"].to_pylist(), found["node"].to_pylist(), strict=True))
        pages[int(name)] = Page(nodes, torch.tensor(found["releases"].to_pylist()), rows.double())
    return pages, tensors


def _read(path: Path, host: int, how: Callable[[Path], _T]) -> _T:
    """The content of a file that host ``host`` wrote; raises an error that says how to get it if it is missing."""
    if not path.is_file():
        where = f"copy it from the machine of host {host}" if host else "repeat the run"
        raise IsthmusError(f"'{path}' is missing; {where}.")
    try:
        return how(path)
    except (ValueError, OSError, SafetensorError) as error:  # what Arrow, the disk and safetensors raise
        reason = str(error).splitlines()[0]
        raise IsthmusError(f"'{path}' is damaged ({reason}); repeat the run, or go on with --resume.") from error


def _below(tensors: dict[str, Tensor], head: str) -> dict[str, Tensor]:
    """The tensors whose names begin with ``head``, under the rest of their names."""
    return {name.removeprefix(head): tensor for name, tensor in tensors.items() if name.startswith(head)}


def _joined(pages: list[Page]) -> Page:
    """The released rows of one layer of all hosts, joined."""
    nodes = [node for page in pages for node in page.nodes]
    return Page(nodes, torch.cat([page.releases for page in pages]), torch.cat([page.rows for page in pages]))
