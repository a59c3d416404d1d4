"""What each party saw during a run, in plain words, according to the ledger."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from isthmus.core.kinds import SERVER_NAME, Kind, owner_of_devices
from isthmus.protect.events import UNPROTECTED, hides, silos_in_sum, veil
from isthmus.runs.circumstances import Circumstances, of_event
from isthmus.runs.folder import RunFolder
from isthmus.runs.passages import circumstances_of
from isthmus.runs.plain_words import WORDS
from isthmus.runs.summary import DEVICES, OTHERS, Flow, fact, is_merged, of_party, rank, read_flows
from isthmus.runs.text import bytes_text, list_names, party_order

SIMULATED = "Keys of these masks follow from the run's seed, which stands for keys that silos agree on: a simulation."
_NAMED = 12  # parties that a sentence has by name
_VEILS = {
    "shares": "as shares, which nobody reads alone",
    "masked sums": "masked, so that sums alone are read",
}  # of messages, by what their events say
_FORMAT = re.compile(r"(?:^|, )sent as ([^,/]+)")  # how a ledger describes a number format among other mechanisms


@dataclass(frozen=True)
class Seen:
    """One kind of message that a party received: its meaning, its amounts, and how it was protected."""

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
    """A paragraph of the sheet, about one party or several: a leading sentence, and what they received."""

    title: str
    lead: str
    seen: tuple[Seen, ...] = ()

    def __str__(self) -> str:
        return "\n".join([self.title, self.lead, *(f"- {item}" for item in self.seen)])


def disclosure(folder: RunFolder) -> list[Paragraph]:
    """The paragraphs of the sheet: what every party saw, in words for what happened and for nothing else."""
    flows = read_flows(folder)
    if is_merged(folder):
        return [_one_party(flows)]
    if not flows:
        return [Paragraph("Nothing crossed", "The ledger is empty: no party sent anything to another.")]
    received: dict[str, list[Flow]] = {}
    for flow in flows:
        received.setdefault(flow.receiver, []).append(flow)
    silent = sorted({flow.sender for flow in flows} - {OTHERS, DEVICES, *received}, key=party_order)
    silent = [] if of_party(folder) else silent  # one party's ledger does not tell what others received of each other
    groups: dict[frozenset[tuple[str, str, str]], list[str]] = {}
    for receiver in sorted(received, key=party_order):
        alike = frozenset((f.kind, f.direction, f.event) for f in received[receiver])
        groups.setdefault(alike, []).append(receiver)
    happened = circumstances_of(folder)
    sheet = [_party([f for name in names for f in received[name]], names, happened) for names in groups.values()]
    return [*sheet, *([Paragraph(_names(silent), "Received nothing.")] if silent else [])]


def _party(of_group: Sequence[Flow], receivers: Sequence[str], happened: Circumstances) -> Paragraph:
    """The paragraph of one party, or of several that received the same kinds under the same protection.

    ``of_group``: what these have received; ``happened``: the circumstances of the run.
    """
    alike: dict[tuple[str, str, str], list[Flow]] = {}
    for f in of_group:
        alike.setdefault((f.kind, f.direction, f.event), []).append(f)
    keys = sorted((rank(kind), kind, direction, event) for kind, direction, event in alike)
    seen = []
    for _, kind, direction, event in keys:
        lines = alike[kind, direction, event]
        empty = not any(f.bytes for f in lines)
        words = WORDS[Kind(kind)].meaning(direction, empty, happened | of_event(event))
        seen.append(Seen(kind, _sender(lines), words, _amounts(lines, receivers), protection(event)))
    total = bytes_text(sum(f.bytes for f in of_group))
    got = f"Received {total}" if len(receivers) == 1 else f"Each received the same kinds, {total} in all"
    return Paragraph(
        _title(receivers), f"{got}, {_how([event for *_, event in keys])}.{_together(receivers)}", tuple(seen)
    )


def _how(events: Sequence[str]) -> str:
    """How the payloads that a party received were protected, in half a sentence."""
    bare = [event for event in events if not hides(event)]
    if not bare:
        return "protected"
    bound = "there epsilon is infinite, so nothing bounds what can be worked out from it"
    if any(veil(event) for event in bare):
        veiled = "part of it as shares, or as sums over groups, of which nobody reads one by itself"
        return f"{veiled}. No noise was added: {bound}"
    return f"{'none of it protected' if len(bare) == len(events) else 'part of it unprotected'}: {bound}"


def _together(receivers: Sequence[str]) -> str:
    """A sentence on devices, which are counted by silo; empty where there are none."""
    if not any(owner_of_devices(name) for name in receivers):
        return ""
    return " Amounts are those of all devices of a silo together; each device got its own part of them alone."


def _title(receivers: Sequence[str]) -> str:
    """The heading of a paragraph about one or several parties."""
    if list(receivers) == [SERVER_NAME]:
        return "The server saw"
    if all(owner_of_devices(name) for name in receivers):
        return f"The {_names(receivers)} saw"
    return f"{receivers[0]} saw" if len(receivers) == 1 else f"Each of {_names(receivers)} saw"


def _names(parties: Sequence[str]) -> str:
    """Parties by name; of many, the first and how many more there are."""
    told = list_names(parties)
    if len(parties) <= _NAMED or len(told) <= 60:  # consecutive silos are short
        return told
    return f"{', '.join(parties[:_NAMED])} and {len(parties) - _NAMED:,} more"


def _sender(lines: Sequence[Flow]) -> str:
    """The senders in words; silos are named only where a single party received, since those of a group differ."""
    if {f.direction for f in lines} == {"down"}:
        return "the server"
    if {f.direction for f in lines} == {"handed_down"}:
        return "their silo"
    if {f.direction for f in lines} == {"handed_in"}:
        return (
            "its devices" if all(owner_of_devices(f.sender) == f.receiver for f in lines) else "devices of neighbours"
        )
    if len({f.receiver for f in lines}) > 1:
        return "devices of neighbours" if lines[0].direction == "between_devices" else "other silos"
    return _names(sorted({f.sender for f in lines}, key=party_order))


def _amounts(lines: Sequence[Flow], receivers: Sequence[str]) -> str:
    """Numbers of messages, rows and bytes in words: of one party, or the range over several."""

    def span(name: str, text: Callable[[int], str], unit: str) -> str:
        sums = dict.fromkeys(receivers, 0)
        for f in lines:
            sums[f.receiver] += getattr(f, name)
        each = sorted(sums.values())
        low, high = text(each[0]), text(each[-1])
        return f"{low if low == high else f'{low} to {high}'}{unit if each[-1] != 1 else unit.rstrip('s')}"

    counts = (span(name, "{:,}".format, f" {name}") for name in ("messages", "rows"))
    return ", ".join([*counts, span("bytes", bytes_text, "")]) + (" each" if len(receivers) > 1 else "")


def protection(event: str) -> str:
    """What was done to a payload before it left, in plain words; a number format is said to protect nothing."""
    done, unit = event.partition("/")[0], hides(event)
    formats = _FORMAT.findall(done)
    mechanism = _FORMAT.sub("", done).removeprefix(", ") or UNPROTECTED
    if unit:
        said = [f"Protected by {mechanism}, which hides any one {unit} up to epsilon."]
    else:
        said = [f"{mechanism[0].upper()}{mechanism[1:]}: epsilon is infinite."]
    said += [f"Sent as {name}, a number format, which {_saving(name)} nothing." for name in formats]
    said += ["Who holds one part of it alone reads nothing; who holds all parts reads it."] if veil(event) else []
    said += [SIMULATED] if silos_in_sum(event) else []
    return " ".join(said)


def _saving(name: str) -> str:
    """What a number format does beside protecting nothing, in words."""
    return "makes sums exact and protects" if name.startswith("fixed point") else "saves bytes and protects"


def server_place(folder: RunFolder) -> str:
    """Where the server ran, if silos ran in that process too, and whose ledger it is, if one party's; in words."""
    beside = [str(silo) for silo in fact(folder, "server", {}).get("beside") or ()]
    hosts, party = int(fact(folder, "hosts", 1)), of_party(folder)
    place = place_of_server(is_merged(folder), hosts, beside)
    alone = f"It tells what {party} sent and received, and not what others sent to each other." if party else ""
    return f"{place} {alone * (hosts > 1)}".strip()


def place_of_server(merged: bool, hosts: int, beside: Sequence[str]) -> str:
    """Where the server ran, if silos (``beside`` it) ran in that process too, in words."""
    if merged:
        return ""
    if hosts == 1:
        return "All silos and the server ran in one process: a simulation, whose ledger counts what would cross."
    if not beside:
        return ""
    owners = "its owner also sees" if len(beside) == 1 else "their owners also see"
    return f"The server ran in the process of {list_names(beside)}, so that {owners} what the server sees."


def wire_words(folder: RunFolder) -> str:
    """A sentence on how the wire between hosts was secured; empty where there was none."""
    told = str(fact(folder, "wire", ""))
    return f"The wire between hosts was {told}." if told else ""


def treatment(kind: str, flows: Sequence[Flow]) -> str:
    """How all messages of a kind left that were not plain, in words; of some alone, whose these are; else empty.

    What the server tells silos, and they their devices, is a sum or a mean that is nobody's own, and does not count.
    """
    sent = [flow for flow in flows if flow.kind == kind and flow.direction not in ("down", "handed_down")]
    of_devices = [flow for flow in sent if owner_of_devices(flow.sender)]
    if said := _how_left(sent):
        return said
    if of_devices and (said := _how_left(of_devices)):
        return f"{said} where devices sent them, else plain"
    return ""


def _how_left(flows: Sequence[Flow]) -> str:
    """The treatment that all flows have in common, in plain words; empty where there is none."""
    veils, units = ({of(flow.event) for flow in flows} for of in (veil, hides))
    noise = ["with noise"] if units and "" not in units else []
    word = next(iter(veils)) if len(veils) == 1 else ""
    return ", ".join([*noise, *([_VEILS[word]] if word else [])])


def _one_party(flows: Sequence[Flow]) -> Paragraph:
    """The paragraph of a merged run, in which one party held all data, so that the ledger says nothing about it."""
    peers = sum(f.bytes for f in flows if f.direction == "peer")
    crossed = f"{bytes_text(peers)} crossed" if peers else "Nothing crossed"
    return Paragraph(
        "One party held everything",
        "All silos' nodes, features, labels and edges were merged and trained on in one place. "
        f"{crossed} between silos, because there was only one. This is a simulation, for comparison: silos "
        "that may not show their nodes cannot train like this.",
    )
