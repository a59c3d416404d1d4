"""The disclosure sheet: what an officer signs, made of the evidence of a run, or of a plan before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from isthmus.audit.findings import NONE, NOT_TRIED, Finding
from isthmus.core.kinds import SERVER_NAME, Kind, devices_name
from isthmus.protect.accounting.guarantee import APART, DERIVED, DP, EDGE, EVERYTHING, NODE, Guarantee, as_json
from isthmus.report.disclosed import Disclosed
from isthmus.report.promises import Promise, promises
from isthmus.report.recovered import best_of_each, in_words, recovered
from isthmus.report.sheet_facts import Line, about, columns, retention, server_lines, unknown_before
from isthmus.report.sheet_verdict import verdict_of
from isthmus.runs.passages import Passage
from isthmus.runs.plain_words import WORDS
from isthmus.runs.text import epsilon_text, list_names


@dataclass(frozen=True)
class Statement:
    """What nobody but the parties can say: what a run is for, and how long what it left behind is kept."""

    purpose: str = ""
    keep: str = ""


@dataclass(frozen=True)
class KindOnSheet:
    """One kind of message on the sheet; ``legs`` say who gave it to whom, ``epsilon`` is that of one node's data."""

    kind: str
    name: str
    source: str
    meaning: str
    legs: tuple[str, ...]
    recipients: tuple[str, ...]
    messages: int
    rows: int
    bytes: int
    estimated: bool
    protection: tuple[str, ...]
    epsilon: str
    recovered: str


@dataclass(frozen=True)
class PartyOnSheet:
    """A party: how much of its data took part, and what it has told of itself."""

    name: str
    nodes: int | None
    training: int | None
    certificate: str = ""  # the fingerprint by which the others knew it
    policy: str = ""  # a hash of what its policy permits of the run, which parties can compare


@dataclass(frozen=True)
class AttackOnSheet:
    """An attack that was tried: on what, and what it got."""

    read: str
    got: str


@dataclass(frozen=True)
class DisclosureSheet:
    """All that the sheet says, in the order in which it says it."""

    title: str
    planned: bool
    party: str
    verdict: str
    about: tuple[Line, ...]
    parties: tuple[PartyOnSheet, ...]
    server: tuple[Line, ...]
    columns: tuple[Line, ...]
    leaving: tuple[KindOnSheet, ...]
    beside: tuple[KindOnSheet, ...]
    promises: tuple[Promise, ...]
    attacks: tuple[AttackOnSheet, ...]
    not_tried: tuple[str, ...]
    audited: bool
    notes: tuple[str, ...]
    retention: tuple[Line, ...]
    unknown: tuple[str, ...]
    hashes: dict[str, str]
    signatures: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The sheet as JSON."""
        told = asdict(self)
        told["promises"] = [{key: as_json(value) for key, value in each.items()} for each in told["promises"]]
        return told


def sheet_of(told: Disclosed, said: Statement = Statement()) -> DisclosureSheet:
    """The sheet of a run, of one party of a run, or of a plan."""
    facts = told.facts
    each = list(_leaving(told))
    silos = [str(name) for name in facts.get("silo_nodes", {})]
    data = [leaving for leaving in each if _is_data(told, leaving.kind)]
    of_audit = told.audit.notes if told.audit else ()
    return DisclosureSheet(
        title=f"{facts.get('label') or facts.get('method', 'run')} on {_data_name(told)}",
        planned=told.planned,
        party=told.party,
        verdict=verdict_of(told, [leaving.name for leaving in data]),
        about=tuple(about(told, said.purpose)),
        parties=tuple(_parties(told)),
        server=tuple(server_lines(told)),
        columns=tuple(columns(told)),
        leaving=tuple(data),
        beside=tuple(leaving for leaving in each if leaving not in data),
        promises=tuple(promises(told)),
        attacks=tuple(_attacks(told)),
        not_tried=tuple(_not_tried(told)),
        audited=told.audit is not None,
        notes=(*map(str, facts.get("notes") or ()), *(f"Audit: {note}" for note in of_audit)),
        retention=tuple(retention(told, said.keep)),
        unknown=tuple(unknown_before(told)),
        hashes=dict(told.hashes),
        signatures=tuple(_signatures(told, silos)),
    )


def _data_name(told: Disclosed) -> str:
    """The name of the data; of a folder the last part of its path."""
    return str(told.facts.get("data") or told.config.get("data", {}).get("name", "data")).rstrip("/").rpartition("/")[2]


def _is_data(told: Disclosed, kind: str) -> bool:
    """Whether messages of a kind are made of nodes' data, and not names, ids, counts and scores alone."""
    bare = next((each.bare for each in told.guarantees if each.of == EVERYTHING), ())
    return Kind(kind) not in APART or kind in bare


def _leaving(told: Disclosed) -> Iterator[KindOnSheet]:
    """Yield what left, one kind after the other, the most revealing first."""
    for kind in dict.fromkeys(each.kind for each in told.passages):
        mine = [each for each in reversed(told.passages) if each.kind == kind]  # up before down
        words = WORDS[Kind(kind)]
        yield KindOnSheet(
            kind,
            words.name,
            words.source,
            " ".join(dict.fromkeys(words.meaning(each.direction, not each.bytes, told.happened) for each in mine)),
            tuple(dict.fromkeys(f"{_who(told, each.senders)} → {_who(told, each.receivers)}" for each in mine)),
            tuple(dict.fromkeys(name for each in mine for name in each.receivers)),
            sum(each.messages for each in mine),
            sum(each.rows for each in mine),
            sum(each.bytes for each in mine),
            estimated=kind in told.estimated,
            protection=tuple(dict.fromkeys(each.event.partition("/")[0] for each in _sent_by_silos(mine))),
            epsilon=_epsilon(told, kind),
            recovered="tried after the run" if told.planned else recovered(told.audit, kind),
        )


def _sent_by_silos(passages: Sequence[Passage]) -> Sequence[Passage]:
    """Passages without what the server tells silos, which is nobody's own, as far as there are others."""
    sent = [each for each in passages if each.direction not in ("down", "handed_down")]
    return sent or passages


def _who(told: Disclosed, names: Sequence[str]) -> str:
    """Parties in a few words: all silos as such."""
    silos = list(told.facts.get("silo_nodes", {}))
    if len(silos) > 1 and not told.party:
        for whole, said in ((silos, "silos"), (list(map(devices_name, silos)), "devices")):
            if set(names) == set(whole):
                return said
    return list_names(names) if len(names) <= 4 or len(list_names(names)) <= 40 else f"{len(names):,} parties"


def _epsilon(told: Disclosed, kind: str) -> str:
    """The epsilon of one node by messages of a kind, as text; why there is none."""
    if kind in told.why_unknown:
        return "not known"
    for each in told.guarantees:
        if each.of == kind and each.unit in (NODE, EDGE) and each.notion == DP:
            return _spent(each)
    if Kind(kind) in DERIVED:
        return "in that of rows"
    return "∞" if _is_data(told, kind) else "not covered"


def _spent(told: Guarantee) -> str:
    return "no guarantee" if told.void else epsilon_text(told.epsilon)


def _parties(told: Disclosed) -> Iterator[PartyOnSheet]:
    """Yield all silos of the federation; of others than the party's own, sizes are not in its files."""
    sizes = told.facts.get("silo_nodes", {})
    everybody = (told.facts.get("party") or {}).get("federation") or list(sizes)
    introduced = told.facts.get("parties") or {}
    for name in [*everybody, *(other for other in introduced if other not in everybody)]:
        size, said = sizes.get(name, {}), introduced.get(name) or {}
        papers = (str(said.get("certificate", "")), str(said.get("permits", "")))
        yield PartyOnSheet(str(name), size.get("nodes"), size.get("train"), *papers)


def _attacks(told: Disclosed) -> Iterator[AttackOnSheet]:
    """Yield what attacks got, the best of each sort and kind."""
    findings = told.audit.findings if told.audit else ()
    for kind in dict.fromkeys(finding.kind for finding in findings):
        for finding in best_of_each([each for each in findings if each.kind == kind]):
            yield AttackOnSheet(_read(finding), in_words(finding))


def _read(finding: Finding) -> str:
    """What an attack read."""
    return finding.line()[-1]


def _not_tried(told: Disclosed) -> Iterator[str]:
    """Yield attacks that were not tried though what they would read has left, and kinds that nobody attacked."""
    for finding in told.audit.findings if told.audit else ():
        if finding.measure == NOT_TRIED and finding.kind:
            yield f"{finding.attack}, from {WORDS[Kind(finding.kind)].name}"
        elif finding.attack == NONE and Kind(finding.kind) not in APART:
            yield f"{WORDS[Kind(finding.kind)].name}: {finding.measure}"


def _signatures(told: Disclosed, silos: Sequence[str]) -> Iterator[str]:
    """Yield who signs: of a party's own sheet that party, else every silo, and who runs the server apart from them."""
    if told.party:
        yield told.party
        return
    yield from silos
    if not told.planned and int(told.facts.get("hosts", 1)) > 1 and not told.facts.get("server", {}).get("beside"):
        yield f"who runs the {SERVER_NAME}"
