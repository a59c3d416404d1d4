"""The federation as one host knows it: the wire, its silos, and what was agreed with the others before training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from isthmus.core.kinds import DEVICE, SILO
from isthmus.core.name_lists import some_of
from isthmus.core.parcel import Level
from isthmus.federation.cross_edges import CLAIMED, MUTUAL, agree_edges
from isthmus.federation.edge_labels import agree_labels
from isthmus.federation.handshake import HaloPlan, check_single_owner, plan_halo
from isthmus.federation.scaling import Scaling, scale_features
from isthmus.federation.schema_agreement import agree_on_data
from isthmus.graph.encoding import Encoding
from isthmus.graph.graph import Schema
from isthmus.graph.silo import Silo, keep_edges
from isthmus.protect.drawn_lists import DrawnLists
from isthmus.protect.learnt_seeds import LearntSeeds
from isthmus.wire.level import DeviceLevel
from isthmus.wire.wire import Wire

KNOWN, UNKNOWN = "known", "unknown"
SIMULATED = (
    "Devices are simulated in the process of their silo, with keys that follow from the silo's secret; the ledger says "
    "what each party would receive if every device were a machine of its own. That each node has one owner was not "
    "checked."
)
UNCOMPARED = (
    "Times and features of cross edges were not compared between hosts, where a hash would give them away: each silo "
    "computes with its own."
)
CROSS = (KNOWN, UNKNOWN)  # whether silos know their edges to nodes of others


@dataclass
class Federation:
    """What a host holds of a federation: its own silos, nothing of others, what all agreed on, and notes to report."""

    wire: Wire
    silos: list[Silo]
    plan: HaloPlan
    schema: Schema  # agreed by all
    alone: Tensor  # [edges of my silos, end to end] bool: cross edges that the other silo does not list
    scaling: dict[str, Scaling] = field(default_factory=dict)  # of x and edge_attr
    notes: list[str] = field(default_factory=list)
    uncut: list[Silo] = field(default_factory=list)  # my silos with edges that they do not know; see ``simulated``
    columns: dict[str, Encoding] = field(default_factory=dict)  # by table, where features are not simply numbers
    drawn: DrawnLists = field(default_factory=DrawnLists)  # how often my silos' lists of neighbours were drawn from
    learnt: LearntSeeds = field(default_factory=LearntSeeds)  # how often labels were in bounded steps

    def note(self, sentence: str) -> None:
        """Remember something the user should know; it is printed and put into the report."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    @property
    def simulated(self) -> list[Silo]:
        """My silos with all edges between them, also those that nobody knows: for scores on the merged graph alone."""
        if not self.uncut:
            return self.silos
        return [replace(whole, x=known.x) for whole, known in zip(self.uncut, self.silos, strict=True)]


def open_federation(
    wire: Wire,
    silos: Sequence[Silo],
    seed: int = 0,
    scale: str = "none",
    agreed: bool = True,
    edges: str = MUTUAL,
    cross: str = KNOWN,
    level: str = SILO,
    categories: int = 20,
) -> Federation:
    """Run the handshake and return the federation: one schema, one owner for each node, common cross edges, halo plans.

    ``edges``: see ``federation/cross_edges.py``. ``cross``: with ``unknown``, edges between silos are cut before
    anything is said of nodes, so that nobody learns of them. ``level``: with ``device`` each node is a party of its own
    below its silo, and no list of nodes goes to the server. ``categories``: the most words that a column may have whose
    words become features.
    """
    told = agree_on_data(wire, silos, categories, agreed)
    silos, schema = told.silos, told.schema
    wire.level = DeviceLevel({silo.number: silo.n for silo in silos}) if level == DEVICE else Level()
    uncut = list(silos) if cross == UNKNOWN else []
    silos, cut = _without_cross_edges(silos) if cross == UNKNOWN else (silos, [])
    if level == SILO:
        check_single_owner(wire, silos, seed)
    silos, alone, notes = agree_edges(wire, silos, edges)
    silos, labels = agree_labels(wire, silos, schema, alone)
    plan = plan_halo(wire, silos, edges == CLAIMED)
    scaled, scaling = scale_features(wire, silos, schema, scale, agreed)
    federation = Federation(wire, scaled, plan, schema, alone, scaling, uncut=uncut, columns=told.columns)
    of_data = [note for silo in silos for note in silo.notes]
    if wire.hosts > 1 and (schema.timed or schema.edge_features) and any(bool(silo.crosses.any()) for silo in silos):
        federation.note(UNCOMPARED)
    for sentence in [*of_data, *cut, *notes, *labels, *_scaled(scaling)]:
        federation.note(sentence)
    if level == DEVICE:
        federation.note(SIMULATED)
    for silo in silos:
        if not silo.n:
            federation.note(f"{silo.name} owns no nodes.")
    return federation


def _without_cross_edges(silos: Sequence[Silo]) -> tuple[list[Silo], list[str]]:
    """The silos without edges to nodes of others, and a note on how many there were in the data of this host."""
    count = sum(int(silo.crosses.sum()) for silo in silos)
    note = (
        f"Nobody knows of edges between silos (data.cross=unknown): {count:,} ends of such edges in the data of "
        f"{some_of([silo.name for silo in silos])} were cut off first."
    )
    return [keep_edges(silo, ~silo.crosses) for silo in silos], [note] if count else []


def _scaled(scaling: dict[str, Scaling]) -> list[str]:
    """Sentences on tables of features for which ``data.scale=auto`` chose a scaling."""
    titles = {"x": "Node features", "edge_attr": "Edge features"}
    return [each.sentence(titles[name]) for name, each in scaling.items() if each.why and each.how != "none"]
