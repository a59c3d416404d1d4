"""The disclosure sheet: what each party saw during a run, in plain words, from the ledger alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from isthmus import methods
from isthmus.errors import IsthmusError
from isthmus.protect.base import UNPROTECTED
from isthmus.run.folder import RunFolder
from isthmus.run.plots import bytes_text, list_names, party_order
from isthmus.wire.ledger import SERVER, Kind, party


@dataclass(frozen=True)
class Words:
    """One kind of message in plain words; ``up``, ``down`` and ``peer`` say it for one direction only."""

    name: str
    what: str
    risk: str
    up: str = ""  # from a silo to the server
    down: str = ""  # from the server to a silo
    peer: str = ""  # from a silo to a silo

    def meaning(self, direction: str, empty: bool = False) -> str:
        """What the message carries, and what can be learnt from it."""
        return f"{getattr(self, direction) or self.what} {'Here it was empty.' if empty else self.risk}"


WORDS: dict[Kind, Words] = {
    Kind.SCHEMA: Words(
        "column names and label names",
        "Names of silos, columns and labels, and problems found while comparing them.",
        "This describes what sort of data a silo holds, not its records.",
        down="The label names of all silos together, and problems found while comparing schemas.",
    ),
    Kind.IDS: Words(
        "ids of nodes",
        "Ids of nodes, as they are or as hashes.",
        "They tell which nodes exist. Read a hash as the id itself: the run's seed is enough to undo it.",
        up="Keyed hashes of the ids of the nodes a silo owns, to find nodes with two owners.",
        down="The hashes that two silos both sent; an empty list where every node has one owner.",
        peer="Public ids of this silo's nodes that the sender's edges refer to, and keys of those edges.",
    ),
    Kind.ORDER: Words(
        "the order of training nodes",
        "Keyed hashes of training and evaluation ids, and their places in one common shuffle.",
        "They tell how many such nodes each silo has and, to whoever knows the run's seed, which.",
        up="Keyed hashes of a silo's training and evaluation ids, to be placed in one common shuffle.",
        down="The ranks of the silo's own nodes in the common shuffle.",
    ),
    Kind.STATISTICS: Words(
        "sums and counts over nodes",
        "Sums and counts over a silo's nodes: sizes of splits, degrees, moments of features and of batches.",
        "A sum over few nodes can reveal the value of one.",
        down="Sums over all silos, and every silo's number of nodes in each split.",
    ),
    Kind.PORTS: Words(
        "port numbers of cross edges",
        "Port numbers of cross edges: the place of a neighbour in a node's list of neighbours.",
        "A high number tells that the node has at least as many neighbours.",
    ),
    Kind.PARAMETERS: Words(
        "model weights",
        "Model weights.",
        "Weights carry traces of the training data: membership and inversion attacks can tell whether a node "
        "was trained on, or recover part of what it held.",
        up="The weights of a silo's model after training on its own data.",
        down="Weights combined from the models of all silos.",
    ),
    Kind.GRADIENTS: Words(
        "gradients",
        "Gradients of the loss for every model weight.",
        "Inversion and membership attacks can recover training inputs and labels from gradients, the better "
        "the fewer nodes they were taken over.",
        up="Gradients of the loss on a silo's own training nodes, for every model weight.",
        down="Gradients combined from all silos.",
    ),
    Kind.EMBEDDINGS: Words(
        "embeddings of single nodes",
        "Rows that the model computed for single boundary nodes, or for sums of a few of them.",
        "Rows are computed from features and neighbours of a node and can be used to infer its attributes.",
    ),
    Kind.ADJOINTS: Words(
        "derivatives for boundary rows",
        "Derivatives of the loss for rows that crossed the boundary.",
        "They depend on the labels and inputs of whoever computed the loss, and can reveal both in part.",
    ),
    Kind.METRICS: Words(
        "losses, scores and label counts",
        "Losses, scores, and numbers of nodes and of training labels of each class.",
        "Over few nodes they can reveal a single outcome.",
        down="Losses, scores and sizes of every silo, and label counts of all silos together.",
    ),
    Kind.SCORES: Words(
        "predictions and labels of single nodes",
        "The prediction and the true label of every evaluated node, one by one.",
        "These are individual records, labels included.",
    ),
}
NEVER = "node features, edge features and edges inside a silo"  # the wire has no kind of message for them


@dataclass(frozen=True)
class Flow:
    """All messages of one kind between two parties under one protection; ``setup``: bytes before training."""

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
        """``up`` to the server, ``down`` from it, ``peer`` between silos."""
        server = party(SERVER)
        return "up" if self.receiver == server else "down" if self.sender == server else "peer"


@dataclass(frozen=True)
class Seen:
    """One kind of message that a party received: what it means, how much of it, and how it was protected."""

    kind: str
    sender: str
    meaning: str
    amounts: str
    protection: str

    def __str__(self) -> str:
        start = f"{self.kind.capitalize()}, from {self.sender}"
        return f"{start}: {self.meaning} {self.amounts}. {self.protection}"


@dataclass(frozen=True)
class Paragraph:
    """A part of the sheet: a party (or what stayed at home), a leading sentence, and its items."""

    title: str
    lead: str
    seen: tuple[Seen, ...] = ()
    points: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([self.title, self.lead, *(f"- {item}" for item in (*self.seen, *self.points))])


def disclosure(folder: RunFolder) -> list[Paragraph]:
    """What every party saw, and what did not cross, as the ledger and the name of the method tell it."""
    flows = read_flows(folder)
    if is_merged(folder):
        return [_one_party(flows)]
    if not flows:
        return [Paragraph("Nothing crossed", "The ledger is empty: no party sent anything to another.")]
    receivers = {flow.receiver for flow in flows}
    silent = sorted({flow.sender for flow in flows} - receivers, key=party_order)
    groups: dict[frozenset[tuple[str, str, str]], list[str]] = {}
    for receiver in sorted(receivers, key=party_order):
        alike = frozenset((f.kind, f.direction, f.event) for f in flows if f.receiver == receiver)
        groups.setdefault(alike, []).append(receiver)
    sheet = [_party(flows, names) for names in groups.values()]
    sheet += [Paragraph(list_names(silent), "Received nothing.")] if silent else []
    return [*sheet, _absent(flows)]


def _party(flows: Sequence[Flow], receivers: Sequence[str]) -> Paragraph:
    """What one party saw, or several that saw the same kinds of messages in the same way."""
    of_group = [f for f in flows if f.receiver in receivers]
    keys = sorted({(_rank(f.kind), f.kind, f.direction, f.event) for f in of_group})
    seen = []
    for _, kind, direction, event in keys:
        lines = [f for f in of_group if (f.kind, f.direction, f.event) == (kind, direction, event)]
        words = WORDS[Kind(kind)].meaning(direction, empty=not any(f.bytes for f in lines))
        seen.append(Seen(kind, _sender(lines), words, _amounts(lines, receivers), protection(event)))
    total = bytes_text(sum(f.bytes for f in of_group))
    got = f"Received {total}" if len(receivers) == 1 else f"Each received the same kinds, {total} in all"
    bare = sum(event == str(UNPROTECTED) for *_, event in keys)
    how = "none of it protected" if bare == len(keys) else "part of it unprotected" if bare else "protected"
    how += ": there epsilon is infinite, so nothing bounds what can be worked out from it" if bare else ""
    return Paragraph(_title(receivers), f"{got}, {how}.", tuple(seen))


def _title(receivers: Sequence[str]) -> str:
    if list(receivers) == [party(SERVER)]:
        return "The server saw"
    return f"{list_names(receivers)} saw" if len(receivers) == 1 else f"Each of {list_names(receivers)} saw"


def _sender(lines: Sequence[Flow]) -> str:
    """The sender; other silos are named only where one party received, since a group's differ."""
    if {f.direction for f in lines} == {"down"}:
        return "the server"
    if len({f.receiver for f in lines}) > 1:
        return "other silos"
    return list_names(sorted({f.sender for f in lines}, key=party_order))


def _amounts(lines: Sequence[Flow], receivers: Sequence[str]) -> str:
    """Messages, rows and bytes: one party's, or the range over a group."""

    def span(name: str, text: Callable[[int], str], unit: str) -> str:
        each = sorted(sum(getattr(f, name) for f in lines if f.receiver == r) for r in receivers)
        low, high = text(each[0]), text(each[-1])
        return f"{low if low == high else f'{low} to {high}'}{unit if each[-1] != 1 else unit.rstrip('s')}"

    counts = (span(name, "{:,}".format, f" {name}") for name in ("messages", "rows"))
    return ", ".join([*counts, span("bytes", bytes_text, "")]) + (" each" if len(receivers) > 1 else "")


def protection(event: str) -> str:
    """What was done to a payload before it left, in plain words."""
    if event == str(UNPROTECTED):
        return "Unprotected: epsilon is infinite."
    mechanism, _, unit = event.partition("/")
    return f"Protected by {mechanism}{f', which hides any one {unit} up to epsilon' if unit else ''}."


def in_short(flows: Sequence[Flow]) -> tuple[list[str], list[str]]:
    """What crossed and what did not, as names; what reveals most comes first."""
    kinds = {flow.kind for flow in flows}
    order = sorted(WORDS, key=lambda kind: -_rank(kind))
    crossed = [WORDS[kind].name for kind in order if kind in kinds]
    return crossed, [NEVER, *(WORDS[kind].name for kind in order if kind not in kinds)]


def _absent(flows: Sequence[Flow]) -> Paragraph:
    """Kinds without a line in the ledger, and what has no kind at all."""
    raw, *names = in_short(flows)[1]
    rows = any(f.kind == Kind.EMBEDDINGS for f in flows)
    first = f"{raw.capitalize()} as they are: the wire has no kind of message for them"
    first += ", but embeddings are computed from them." if rows else "."
    points = (first, *(f"{name[0].upper()}{name[1:]}." for name in names))
    return Paragraph("What did not cross", "The ledger holds no line for any of these.", points=points)


def _one_party(flows: Sequence[Flow]) -> Paragraph:
    """A merged run discloses everything to whoever holds it, so the ledger cannot speak for it."""
    peers = sum(f.bytes for f in flows if f.direction == "peer")
    crossed = f"{bytes_text(peers)} crossed" if peers else "Nothing crossed"
    return Paragraph(
        "One party held everything",
        "All silos' nodes, features, labels and edges were merged and trained on in one place. "
        f"{crossed} between silos, because there was only one. This is a simulation, for comparison: silos "
        "that may not show their nodes cannot train like this.",
    )


def is_merged(folder: RunFolder) -> bool:
    """Whether the run's method puts all silos into one."""
    name = str(folder.config.get("method", folder.metrics.get("method", "")))
    return name in methods.names() and methods.get(name).merged


def members(folder: RunFolder) -> list[RunFolder]:
    """The runs behind a folder: one for each seed, or the folder itself."""
    parts = [RunFolder(folder.path / f"seed-{seed}") for seed in folder.metrics.get("seeds", ())]
    return parts if parts and all((part.path / "metrics.json").is_file() for part in parts) else [folder]


def read_flows(folder: RunFolder) -> list[Flow]:
    """The ledger summed over time (and seeds), by sender, receiver, kind and protection."""
    parts = members(folder)
    for part in parts:
        if not (part.path / "ledger.parquet").is_file():
            raise IsthmusError(f"'{part.path}' has no ledger.parquet, so it cannot be reported; run again.")
    table = pa.concat_tables([part.ledger for part in parts])
    early = pc.if_else(pc.equal(table["epoch"], 0), table["bytes"], 0)
    keys, sums = ["sender", "receiver", "kind", "event"], ["messages", "rows", "bytes", "setup"]
    table = table.append_column("setup", early).group_by(keys).aggregate([(name, "sum") for name in sums])
    flows = [Flow(*(row[k] for k in keys), *(row[f"{s}_sum"] for s in sums)) for row in table.to_pylist()]
    new = sorted({f.kind for f in flows} - {k.value for k in WORDS})
    if new:
        raise IsthmusError(f"'{folder.path}' has messages of unknown kind {', '.join(new)}; update isthmus.")
    parties = {name: party_order(name) for f in flows for name in (f.sender, f.receiver)}
    return sorted(flows, key=lambda f: (_rank(f.kind), parties[f.receiver], parties[f.sender], f.event))


def _rank(kind: str) -> int:
    """The place of a kind in the ledger's own order, which runs from names to records."""
    return [k.value for k in Kind].index(kind)
