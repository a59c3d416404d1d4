"""Facts about a finished run, read from its folder: scores, curves, sizes, and sums over its ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import BELOW, SERVER_NAME, Kind, Purpose, devices_name, owner_of_devices
from isthmus.protect.accounting.guarantee import CHARGED, DP, EVERYTHING, NODE, RECORDS, Guarantee, headline
from isthmus.protect.events import hides
from isthmus.runs.folder import RunFolder
from isthmus.runs.text import list_names, party_order


def is_merged(folder: RunFolder) -> bool:
    """Whether the run's method merged all silos into one."""
    return bool(fact(folder, "merged", False))


def members(folder: RunFolder) -> list[RunFolder]:
    """The folders of the single runs in a folder: one for each seed, or the folder itself where none of them is there.

    Raises where some seeds have their metrics and others have not, so that none is left out in silence.
    """
    parts = [RunFolder(folder.path / f"seed-{seed}") for seed in folder.metrics.get("seeds", ())]
    lacking = [part.path for part in parts if not (part.path / "metrics.json").is_file()]
    if lacking and len(lacking) < len(parts):
        raise IsthmusError(
            f"'{lacking[0] / 'metrics.json'}' is missing, while other seeds of '{folder.path}' have theirs; "
            "restore it, or repeat the run."
        )
    return [folder] if lacking or not parts else parts


def fact(folder: RunFolder, key: str, default: Any) -> Any:
    """A value of ``metrics.json``: of the run, else of its first seed, else the default."""
    for source in (folder.metrics, members(folder)[0].metrics):
        if source.get(key) is not None:
            return source[key]
    return default


def run_label(folder: RunFolder) -> str:
    """The name of the run's method, and the parts that are not its own: ``fedavg, exchange=optimes``."""
    return str(fact(folder, "label", fact(folder, "method", "run")))


def data_name(folder: RunFolder) -> str:
    """The name of the run's data set; for a folder the last part of its path."""
    return Path(str(fact(folder, "data", folder.config.get("data", {}).get("name", "data")))).name


def steps_of(folder: RunFolder) -> int:
    """The number of steps of a run, summed over its seeds; at least 1."""
    return max(sum(int(part.metrics.get("steps") or 0) for part in members(folder)), 1)


def finished(folder: RunFolder) -> datetime | None:
    """When the run, or the last of its seeds, ended, in UTC; None where it is not recorded."""
    times = [(part.metrics.get("environment") or {}).get("finished") for part in members(folder)]
    return max((datetime.fromisoformat(time).astimezone(UTC) for time in times if time), default=None)


def final_score(folder: RunFolder, split: str, metric: str, silo: str = "") -> float | None:
    """A final score of the federation, or of a silo; the split ``test_std`` gives the deviation over seeds."""
    scores = folder.metrics.get(split) or {}
    scores = (scores.get("silos") or {}).get(silo) or {} if silo else scores
    value = scores.get(metric)
    return None if value is None else float(value)


def curve_names(folder: RunFolder) -> list[str]:
    """Names of the silos that curves are of, in their order: of all, also where scores are those of one party."""
    return [str(name) for name in fact(folder, "party", {}).get("federation", silo_names(folder))]


def silo_names(folder: RunFolder) -> list[str]:
    """Names of the silos in the final scores or sizes, in the order of silos."""
    parts = [(folder.metrics.get(split) or {}).get("silos") or {} for split in ("valid", "test")]
    parts.append(fact(folder, "silo_nodes", {}))
    return list(dict.fromkeys(name for part in parts for name in part))


def primary(folder: RunFolder) -> str:
    """The name of the metric that the run is judged by."""
    return str(folder.metrics.get("metric") or next(iter(folder.metrics.get("test") or {"score": None})))


@dataclass(frozen=True)
class Curves:
    """The learning curves of a run: means over seeds, at the steps and epochs that all seeds reached."""

    steps: list[int]
    loss: list[float | None]
    epochs: list[int]
    valid: list[float | None]
    silos: list[list[float | None]]


def curves(folder: RunFolder) -> Curves:
    """The learning curves of a run, or their means over its seeds."""
    runs = [part.history for part in members(folder) if (part.path / "metrics.jsonl").is_file()]
    loss = [{line["step"]: line.get("loss") for line in run if "valid" not in line} for run in runs]
    seen = [{line["epoch"]: line for line in run if "valid" in line} for run in runs]
    steps = sorted(set.intersection(*map(set, loss))) if loss else []
    epochs = sorted(set.intersection(*map(set, seen))) if seen else []
    width = max((len(line.get("silo_valid", ())) for run in seen for line in run.values()), default=0)
    metric = primary(folder)
    return Curves(
        steps,
        [_mean([run[step] for run in loss]) for step in steps],
        epochs,
        [_mean([(run[epoch]["valid"] or {}).get(metric) for run in seen]) for epoch in epochs],
        [[_mean([_at(run[e].get("silo_valid"), i) for run in seen]) for e in epochs] for i in range(width)],
    )


def _at(values: Sequence[float | None] | None, place: int) -> float | None:
    """The value at a place; None where there is none."""
    return values[place] if values and place < len(values) else None


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean of the known values; None where there is none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


OTHERS, DEVICES = "other silos", devices_name("any silo")
_PAIRS = 20_000  # pairs of parties that a report can name


@dataclass(frozen=True)
class Flow:
    """All messages of one kind from one party to another under one protection; ``setup`` are bytes before training."""

    sender: str
    receiver: str
    kind: str
    event: str
    messages: int
    rows: int
    bytes: int
    setup: int

    @property
    def direction(self) -> str:
        """``up`` to the server, ``down`` from it, ``peer`` between silos; of devices, see ``Words``."""
        sent, got = (owner_of_devices(name) is not None for name in (self.sender, self.receiver))
        if sent or got:
            return "between_devices" if sent and got else "handed_in" if sent else "handed_down"
        server = SERVER_NAME
        return "up" if self.receiver == server else "down" if self.sender == server else "peer"


def read_flows(folder: RunFolder) -> list[Flow]:
    """The flows of a run: its ledger summed over time and seeds, by sender, receiver, kind and protection.

    With more than 20,000 pairs of parties, whatever a silo gets from other silos counts as from one sender, ``OTHERS``,
    and whatever a party gets from devices as from ``DEVICES``.
    """
    known = vars(folder)  # read once for each folder object, like the ledger itself
    if "flows" not in known:
        known["flows"] = _read_flows(folder)
    flows: list[Flow] = known["flows"]
    return flows


def _read_flows(folder: RunFolder) -> list[Flow]:
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = members(folder)
    for part in parts:
        if not (part.path / "ledger.parquet").is_file():
            raise IsthmusError(f"'{part.path}' has no ledger.parquet, so it cannot be reported; run again.")
    table = pa.concat_tables([part.ledger for part in parts])
    if len(pair_bytes(folder)) > _PAIRS:
        between = pc.and_(*(pc.not_equal(table[end], SERVER_NAME) for end in ("sender", "receiver")))
        told = pc.if_else(pc.starts_with(table["sender"], BELOW), DEVICES, OTHERS)
        senders = pc.if_else(between, told, table["sender"])
        table = table.set_column(table.column_names.index("sender"), "sender", senders)
    early = pc.if_else(pc.equal(table["purpose"], Purpose.SETUP), table["bytes"], 0)
    keys, sums = ["sender", "receiver", "kind", "event"], ["messages", "rows", "bytes", "setup"]
    table = table.append_column("setup", early).group_by(keys).aggregate([(name, "sum") for name in sums])
    columns = (table[name].to_pylist() for name in (*keys, *(f"{name}_sum" for name in sums)))
    flows = [Flow(*row) for row in zip(*columns, strict=True)]
    new = sorted({f.kind for f in flows} - {k.value for k in Kind})
    if new:
        raise IsthmusError(f"'{folder.path}' has messages of unknown kind {', '.join(new)}; update isthmus.")
    names = {name for f in flows for name in (f.sender, f.receiver)}
    parties = {name: place for place, name in enumerate(sorted(names, key=party_order))}
    ranks = {kind: rank(kind) for kind in {f.kind for f in flows}}
    return sorted(flows, key=lambda f: (ranks[f.kind], parties[f.receiver], parties[f.sender], f.event))


def pair_bytes(folder: RunFolder) -> dict[tuple[str, str], int]:
    """Bytes by sender and receiver, summed over seeds."""
    found: dict[tuple[str, str], int] = {}
    for part in members(folder):
        table = part.ledger.group_by(["sender", "receiver"]).aggregate([("bytes", "sum")])
        columns = (table[name].to_pylist() for name in ("sender", "receiver", "bytes_sum"))
        for sender, receiver, size in zip(*columns, strict=True):
            found[sender, receiver] = found.get((sender, receiver), 0) + size
    return found


def rank(kind: str) -> int:
    """The place of a kind in the order from what reveals least (names) to what reveals most (records)."""
    first = (Kind.SCHEMA, Kind.LEDGER, Kind.KEYS, Kind.KEY_SHARES)  # counts and keys reveal hardly more than names
    order = [*first, *(each for each in Kind if each not in first)]
    return order.index(Kind(kind))


def guarantees(folder: RunFolder) -> list[Guarantee]:
    """The privacy guarantees of a run, first its headline (of everything that left); of seeds, those of the worst.

    Whatever was written down, epsilon is infinite where the ledger has data of nodes that no noise hides.
    """
    told = fact(folder, "privacy", [])
    found = [Guarantee.from_dict(each) for each in told] if isinstance(told, list) else []
    flows = [f for f in read_flows(folder) if _is_charged(folder, f)]
    bare = [kind for kind in (*CHARGED, *RECORDS) if any(f.kind == kind and not hides(f.event) for f in flows)]
    if not any(each.of == EVERYTHING for each in found):  # of an older version
        return [Guarantee(EVERYTHING, NODE, DP, float("inf") if flows else 0.0, 0.0, bare=tuple(bare))]
    return [replace(each, epsilon=float("inf")) if bare and each.of in (EVERYTHING, *bare) else each for each in found]


def _is_charged(folder: RunFolder, flow: Flow) -> bool:
    """Whether the guarantees of a folder are of what a flow holds: those of one party are of what it has sent."""
    silos = fact(folder, "party", {}).get("silos")
    return silos is None or (owner_of_devices(flow.sender) or flow.sender) in silos


def of_party(folder: RunFolder) -> str:
    """Whose files a folder holds: the names of its parties; empty where it is that of the whole run."""
    told = fact(folder, "party", {})
    names = [*told.get("silos", ()), *([SERVER_NAME] if told.get("server") else [])]
    return list_names(names) if names else ""


def epsilon_of(folder: RunFolder) -> float:
    """The headline epsilon of a run: of everything that left it, between any two values; infinite if void."""
    told = None if is_merged(folder) else headline(guarantees(folder))
    return float("inf") if told is None or told.void else told.epsilon


def carried_bytes(folder: RunFolder) -> dict[str, int]:
    """Bytes of each kind that moved between hosts, summed over seeds."""
    total: dict[str, int] = {}
    for part in members(folder):
        for kind, size in (part.metrics.get("transport") or {}).items():
            total[kind] = total.get(kind, 0) + int(size)
    return total
