"""What a run says of its releases: how often each node left, as what, and what that cost."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from isthmus.core.files import write_atomic
from isthmus.core.kinds import KINDS, ROWS, SERVER, Kind
from isthmus.core.tensors import stacked
from isthmus.protect.accounting.guarantee import NODE_ROWS, WHOLE_PAYLOADS, Guarantee
from isthmus.protect.accounting.rows import NAMES, node_losses, noise_of, silo_loss
from isthmus.protect.events import Events
from isthmus.protect.releases import COUNTS, LEFT
from isthmus.protect.secrets import Noise, secrets_from_seed, secrets_from_system
from isthmus.train.training import Training
from isthmus.wire.ledger import COLUMNS
from isthmus.wire.wire import Wire

BY_SEED = (
    "Noise was drawn from the run's seed, as a simulation does: whoever knows the seed can take it away again. "
    "For secrets of each silo: protect.secrets=random."
)
RESUMED = "This run was resumed: what left between its last checkpoint and the interruption is not in its counts."


def give_secrets(wire: Wire, seed: int) -> None:
    """Give the wire what its silos draw noise from, if they draw any."""
    if wire.protect.noisy:
        mine = wire.mine
        wire.noise = Noise(secrets_from_seed(seed, mine) if by_seed(wire) else secrets_from_system(mine))


def by_seed(wire: Wire) -> bool:
    """Whether noise follows from the run's seed."""
    secrets = wire.protect.secrets
    return secrets == "seed" or (not secrets and wire.hosts == 1)


def notes_on_noise(wire: Wire) -> list[str]:
    """What a reader must know of the noise that was asked for."""
    if not wire.protect.noisy:
        return []
    if not wire.noise.draws:
        return ["Noise was asked for, but nothing that it applies to has left a silo."]
    return [BY_SEED] if by_seed(wire) else []


def write_releases(training: Training, last: dict[str, Tensor], folder: Path) -> None:
    """``releases.parquet`` (how often each node left) and ``released.safetensors`` (as what it left last).

    Of this host's silos alone; both stay with the host. The rows of a kind and layer lie in the order of the lines.
    Beside them, for an audit: the parameters that may have made them, those ``selected``, the ``last`` ones, and those
    that each silo has ``sent`` last, where it has.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "audit.json").unlink(missing_ok=True)  # of an earlier end of this run
    releases, parts, rows = training.wire.releases, [], {}
    sets = training.learner.classifier.sets
    silo, node = _names(training)
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
        made_by = {"selected": sets.everything(), "last": last, "sent": _sent(training, last)}
        for name, held in made_by.items() if training.wire.mine else ():  # a server without silos has made no row
            rows |= {f"{name}/{key}": held[key].cpu().contiguous() for key in sets.names() if held}
        suffix = f"-host-{training.wire.host}" if training.wire.host else ""
        pq.write_table(pa.concat_tables(parts), folder / f"releases{suffix}.parquet")
        write_atomic(folder / f"released{suffix}.safetensors", save(rows))


def _sent(training: Training, last: dict[str, Tensor]) -> dict[str, Tensor]:
    """The parameters that each silo has sent last, beside the ``last`` ones of what it keeps to itself."""
    flat = training.wire.releases.state.get(f"{LEFT}/{Kind.PARAMETERS.value}/0")
    if flat is None or not len(flat):
        return {}
    sent, at = dict(last), 0
    for name in filter(training.stage.phase.sync.shares, training.learner.classifier.sets.names()):
        size = last[name][0].numel()
        sent[name] = flat[:, at : at + size].reshape(last[name].shape)
        at += size
    return sent


def _names(training: Training) -> tuple[list[str], list[str]]:
    """Silo and public id of every row of the book: owned, then halo, silo by silo."""
    silos, nodes = list[str](), list[str]()
    for silo in training.federation.silos:
        silos += [training.wire.party(silo.number)] * (silo.n + silo.h)
        nodes += [*map(str, silo.ids.tolist()), *map(str, silo.halo_ids.tolist())]
    return silos, nodes


def row_losses(training: Training) -> dict[Kind, Tensor]:
    """For each kind of rows that left with noise, what every silo says of its nodes: [silos, numbers].

    A kind of which any row left without noise is not in it: there is no bound on what that row tells.
    """
    wire, found = training.wire, dict[Kind, Tensor]()
    if not wire.protect.noisy:
        return found
    sizes = torch.tensor([silo.n + silo.h for silo in training.federation.silos], dtype=torch.int64)
    stops = sizes.cumsum(0).tolist()
    slices = [slice(stop - size, stop) for stop, size in zip(stops, sizes.tolist(), strict=True)]
    for kind in ROWS:
        noise = noise_of(wire.releases.events.get(kind, []))
        if noise is not None and wire.releases.layers(kind):
            mine = [node_losses(wire.releases, kind, each, noise).numbers() for each in slices]
            found[kind] = wire.share(Kind.METRICS, stacked(mine, torch.zeros(len(NAMES), dtype=torch.float64)))
    return found


def privacy_of(training: Training, losses: dict[Kind, Tensor]) -> dict[str, Any]:
    """What the server's host knows of the losses: for each kind with noise its epsilon, worst of all silos, and how."""
    wire, known = training.wire, dict[str, Any]()
    for kind, numbers in losses.items():
        each = {wire.party(i): _silo(row) for i, row in enumerate(numbers)}
        worst = max(row[NAMES.index("epsilon 100")].item() for row in numbers)
        noise = noise_of(wire.releases.events.get(kind, []))
        delta = noise.delta if noise is not None else 0.0
        known[kind.value] = {**Guarantee("node", NODE_ROWS, worst, delta).as_dict(), "silos": each}
    for kind in (Kind.PARAMETERS, Kind.GRADIENTS):
        times, noise = _times_up(training, kind), noise_of(_treatments(wire, kind))
        if noise is not None and max(times.values(), default=0):
            each = {wire.party(i): {"releases": n} for i, n in times.items()}
            loss = silo_loss(max(times.values()), noise)
            known[kind.value] = {**Guarantee("silo", WHOLE_PAYLOADS, loss, noise.delta).as_dict(), "silos": each}
    return known


def _treatments(wire: Wire, kind: Kind) -> list[Events]:
    """Everything that was done to payloads of a kind on their way to the server, from the ledger of all hosts."""
    lines = wire.ledger.lines()
    column = {name: lines[:, i] for i, name in enumerate(COLUMNS)}
    up = (column["kind"] == KINDS.index(kind)) & (column["receiver"] == SERVER)
    return [wire.ledger.events[i] for i in column["event"][up].unique().tolist()]


def _silo(row: Tensor) -> dict[str, Any]:
    told = {name: _json(value) for name, value in zip(NAMES, row.tolist(), strict=True)}
    return {**told, **{name: int(told[name]) for name in ("nodes", "measured", "releases")}}


def _times_up(training: Training, kind: Kind) -> dict[int, int]:
    """How often each silo's own payload of a kind went up to the server, from the ledger."""
    lines = training.wire.ledger.lines()
    column = {name: lines[:, i] for i, name in enumerate(COLUMNS)}
    up = (column["kind"] == KINDS.index(kind)) & (column["receiver"] == SERVER)
    senders, counts = column["sender"][up], column["messages"][up]
    return {i: int(counts[senders == i].sum()) for i in range(training.wire.silos)}


def _json(value: float) -> float | str:
    return "inf" if value == math.inf else value
