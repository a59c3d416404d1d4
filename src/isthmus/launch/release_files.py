"""Files on a run's releases (how often each node left, and its last values), and secrets that noise comes from."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import save

from isthmus.core.files import write_atomic
from isthmus.core.kinds import ROWS, Kind
from isthmus.protect.base import Chain
from isthmus.protect.releases import COUNTS, LEFT
from isthmus.protect.secrets import Noise, common_from_seed, secrets_from_seed, secrets_from_system
from isthmus.runs.tables import write_checked
from isthmus.train.training import Training
from isthmus.wire.wire import Wire

BY_SEED = (
    "Noise, and what hides shares, was drawn from the run's seed, as a simulation does: whoever knows the seed can "
    "take it away again. For secrets of each silo: protect.secrets=random, or for dp-sgd protect.seed_secrets=random."
)
DRAWN_BY_SEED = (
    "Neighbours were drawn by the run's seed: whoever knows it can tell from draws which edges a list does not have. "
    "Edge-LDP is towards readers who do not know it."
)
RESUMED = "This run was resumed: what left between its last checkpoint and the interruption is not in its counts."


def give_secrets(wire: Wire, seed: int, noisy: bool) -> None:
    """Give the wire what masks of pairs are made of, and the secrets of its silos if any noise is drawn (``noisy``)."""
    mine = wire.mine if noisy else ()
    secrets = secrets_from_seed(seed, mine) if by_seed(wire) else secrets_from_system(mine)
    wire.noise = Noise(secrets, common_from_seed(seed))


def by_seed(wire: Wire) -> bool:
    """Whether noise follows from the run's seed."""
    secrets = wire.protect.secrets
    return secrets == "seed" or (not secrets and wire.hosts == 1)


def notes_on_noise(wire: Wire) -> list[str]:
    """What a reader must know of the noise that was asked for."""
    if not wire.noise.secrets:
        return []
    if not wire.noise.draws:
        return ["Noise was asked for, but nothing that it applies to has left a silo."]
    return [BY_SEED] if by_seed(wire) else []


def notes_on_idle_mechanisms(wire: Wire) -> list[str]:
    """A sentence on mechanisms that were asked for and have changed nothing that left; noise has one of its own."""
    left = [Kind(kind) for kind in wire.ledger.by_kind()]
    idle = [
        mechanism.name
        for mechanism in wire.protect.mechanisms
        if mechanism.changes_rows
        and not mechanism.noisy
        and not mechanism.bounds_seeds
        and not any(map(Chain((mechanism,)).events, left))
    ]
    if not idle:
        return []
    return [
        f"protect has {', '.join(idle)}, which changed nothing that left a silo: its options leave it off, or it acts "
        "on other kinds of messages."
    ]


def notes_on_draws(training: Training) -> list[str]:
    """What a reader must know of neighbours that were drawn for edge-LDP."""
    return [DRAWN_BY_SEED] if training.train.draws == "refill" and training.train.batch else []


def write_releases(training: Training, folder: Path, suffix: str = "") -> None:
    """Write ``releases.parquet`` (how often each node left) and ``released.safetensors`` (its last values).

    Of this host's silos alone; both stay with the host. The rows of a kind and layer lie in the order of the lines.
    ``suffix`` tells the files of hosts apart that write into one folder.
    """
    import pyarrow as pa

    (folder / "audit.json").unlink(missing_ok=True)  # left by an earlier end of this run
    releases, parts, rows = training.wire.releases, [], {}
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
            if kind == Kind.EMBEDDINGS and releases.has(LEFT, kind):  # else they left inside sums alone
                rows[f"{kind.value}/{layer}"] = releases.get(LEFT, kind, layer).cpu()[at].contiguous()
    if parts:
        write_checked(pa.concat_tables(parts), folder / f"releases{suffix}.parquet")
        write_atomic(folder / f"released{suffix}.safetensors", save(rows))


def _names(training: Training) -> tuple[list[str], list[str]]:
    """Silo and public id of every row of the book: owned, then halo, silo by silo."""
    silos, nodes = list[str](), list[str]()
    for silo in training.federation.silos:
        silos += [training.wire.party(silo.number)] * (silo.n + silo.h)
        nodes += [*map(str, silo.ids.tolist()), *map(str, silo.halo_ids.tolist())]
    return silos, nodes
