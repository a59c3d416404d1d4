"""What a run says of its releases: how often each node left, as what, and what that cost."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save
from torch import Tensor

from isthmus.protect.accountant import NAMES, node_losses, silo_loss
from isthmus.protect.base import ROWS
from isthmus.protect.gaussian import Gaussian
from isthmus.protect.noise import Noise, secrets_from_seed, secrets_from_system
from isthmus.run.folder import write_atomic
from isthmus.wire.base import Wire
from isthmus.wire.ledger import COLUMNS, KINDS, SERVER, Kind
from isthmus.wire.releases import COUNTS, LEFT

if TYPE_CHECKING:
    from isthmus.state import Run

BY_SEED = (
    "Noise was drawn from the run's seed, as a simulation does: whoever knows the seed can take it away again. "
    "For secrets of each silo: protect.secrets=random."
)
RESUMED = "This run was resumed: what left between its last checkpoint and the interruption is not in its counts."


def give_secrets(wire: Wire, seed: int) -> None:
    """Give the wire what its silos draw noise from, if they draw any."""
    if isinstance(wire.protect, Gaussian) and wire.protect.noisy:
        mine = wire.mine
        wire.noise = Noise(secrets_from_seed(seed, mine) if by_seed(wire) else secrets_from_system(mine))


def by_seed(wire: Wire) -> bool:
    """Whether noise follows from the run's seed."""
    secrets = wire.protect.secrets if isinstance(wire.protect, Gaussian) else "seed"
    return secrets == "seed" or (not secrets and wire.hosts == 1)


def notes_on_noise(wire: Wire) -> list[str]:
    """What a reader must know of the noise that was asked for."""
    if not isinstance(wire.protect, Gaussian) or not wire.protect.noisy:
        return []
    if not wire.noise.draws:
        return ["Noise was asked for, but nothing that it applies to has left a silo."]
    return [BY_SEED] if by_seed(wire) else []


def write_releases(run: Run, last: dict[str, Tensor], folder: Path) -> None:
    """``releases.parquet`` (how often each node left) and ``released.safetensors`` (as what it left last).

    Of this host's silos alone; both stay with the host. The rows of a kind and layer lie in the order of the lines.
    Beside them, for an audit: the parameters that may have made them, those ``selected``, the ``last`` ones, and those
    that each silo has ``sent`` last, where it has.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "audit.json").unlink(missing_ok=True)  # of an earlier end of this run
    releases, parts, rows = run.wire.releases, [], {}
    silo, node = _names(run)
    names, numbers = ("silo", "node", "kind"), ("layer", "releases")
    columns = pa.schema([*((name, pa.string()) for name in names), *((name, pa.int64()) for name in numbers)])
    for kind in ROWS:
        for layer in releases.layers(kind):
            counts = releases.get(COUNTS, kind, layer).cpu()
            at = (counts > 0).nonzero().flatten()
            fixed = {"kind": [kind.value] * len(at), "layer": [layer] * len(at)}
            here = {"silo": [silo[i] for i in at.tolist()], "node": [node[i] for i in at.tolist()]}
            parts.append(pa.table({**here, **fixed, "releases": counts[at].tolist()}, schema=columns))
            if kind == Kind.EMBEDDINGS:
                rows[f"{kind.value}/{layer}"] = releases.get(LEFT, kind, layer).cpu()[at].contiguous()
    if parts:
        for name, held in (("selected", run.sets.everything()), ("last", last), ("sent", _sent(run, last))):
            rows |= {f"{name}/{key}": held[key].cpu().contiguous() for key in run.sets.names() if held}
        suffix = f"-host-{run.wire.host}" if run.wire.host else ""
        pq.write_table(pa.concat_tables(parts), folder / f"releases{suffix}.parquet")
        write_atomic(folder / f"released{suffix}.safetensors", save(rows))


def _sent(run: Run, last: dict[str, Tensor]) -> dict[str, Tensor]:
    """The parameters that each silo has sent last, beside the ``last`` ones of what it keeps to itself."""
    flat = run.wire.releases.state.get(f"{LEFT}/{Kind.PARAMETERS.value}/0")
    if flat is None:
        return {}
    sent, at = dict(last), 0
    for name in filter(run.sync.shares, run.sets.names()):
        size = last[name][0].numel()
        sent[name] = flat[:, at : at + size].reshape(last[name].shape)
        at += size
    return sent


def _names(run: Run) -> tuple[list[str], list[str]]:
    """Silo and public id of every row of the book: owned, then halo, silo by silo."""
    silos, nodes = list[str](), list[str]()
    for silo in run.federation.silos:
        silos += [run.wire.party(silo.number)] * (silo.n + silo.h)
        nodes += [*map(str, silo.ids.tolist()), *map(str, silo.halo_ids.tolist())]
    return silos, nodes


def row_losses(run: Run) -> dict[Kind, Tensor]:
    """For each kind of rows that left with noise, what every silo says of its nodes: [silos, numbers]."""
    protect, found = run.wire.protect, dict[Kind, Tensor]()
    if not isinstance(protect, Gaussian):
        return found
    sizes = torch.tensor([silo.n + silo.h for silo in run.federation.silos])
    stops = sizes.cumsum(0).tolist()
    slices = [slice(stop - size, stop) for stop, size in zip(stops, sizes.tolist(), strict=True)]
    for kind in ROWS:
        if protect.bounds(kind)[1] and run.wire.releases.layers(kind):
            mine = torch.stack([node_losses(run.wire.releases, kind, each, protect).numbers() for each in slices])
            found[kind] = run.wire.share(Kind.METRICS, mine)
    return found


def privacy_of(run: Run, losses: dict[Kind, Tensor]) -> dict[str, Any]:
    """What the server's host knows of the losses: for each kind with noise its epsilon, worst of all silos, and how."""
    protect, known = run.wire.protect, dict[str, Any]()
    if not isinstance(protect, Gaussian):
        return known
    for kind, numbers in losses.items():
        each = {run.wire.party(i): _silo(row) for i, row in enumerate(numbers)}
        worst = max(row[NAMES.index("epsilon 100")].item() for row in numbers)
        known[kind.value] = {"epsilon": _json(worst), "unit": "node", "delta": protect.delta, "silos": each}
    for kind in (Kind.PARAMETERS, Kind.GRADIENTS):
        times = _times_up(run, kind)
        if protect.bounds(kind)[1] and max(times.values(), default=0):
            each = {run.wire.party(i): {"releases": n} for i, n in times.items()}
            loss = silo_loss(max(times.values()), kind, protect)
            known[kind.value] = {"epsilon": _json(loss), "unit": "silo", "delta": protect.delta, "silos": each}
    return known


def _silo(row: Tensor) -> dict[str, Any]:
    told = {name: _json(value) for name, value in zip(NAMES, row.tolist(), strict=True)}
    return {**told, **{name: int(told[name]) for name in ("nodes", "measured", "releases")}}


def _times_up(run: Run, kind: Kind) -> dict[int, int]:
    """How often each silo's own payload of a kind went up to the server, from the ledger."""
    lines = run.wire.ledger.lines()
    column = {name: lines[:, i] for i, name in enumerate(COLUMNS)}
    up = (column["kind"] == KINDS.index(kind)) & (column["receiver"] == SERVER)
    senders, counts = column["sender"][up], column["messages"][up]
    return {i: int(counts[senders == i].sum()) for i in range(run.wire.silos)}


def _json(value: float) -> float | str:
    return "inf" if value == math.inf else value
