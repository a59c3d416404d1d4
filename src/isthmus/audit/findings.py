"""Findings of an audit: for every attack what it got and what a guess gets, as ``audit.json`` and as a table."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.table import Table
from rich.text import Text

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.runs.folder import RunFolder
from isthmus.runs.plain_words import WORDS
from isthmus.runs.summary import members

NEAR = 0.01  # share of all nodes that count as a node's near neighbours
FEATURES, MEANS, LABELS, LINKS = "features of nodes", "mean features of groups", "labels", "links inside a silo"
ERROR, ACCURACY, AREA = "squared error", "accuracy", "AUC"
NONE = "none"  # the attack of a finding on what nobody attacked
WORST_CASE = "worst case"  # in notes on attacks that were given more than an adversary is sure to have
NOT_TRIED, NOT_ATTACKED, DISCLOSED = "not tried", "not attacked", "left as it is: nothing to infer"
SHORT = {
    Kind.EMBEDDINGS.value: "rows",
    Kind.ADJOINTS.value: "derivatives of the loss by rows",
    Kind.PARTIALS.value: "sums of rows",
    Kind.AGGREGATES.value: "sums of features",
    Kind.PROTOTYPES.value: "prototypes",
}
UNMEASURED = "not measured: all nodes have the same features"
HEAD = ("Attack", "What it got", "What a guess gets", "On what")
ATTACK_NOTE = (
    "Attack error: the squared error of features inferred from what left, as a share of a guess's without it "
    "(the lower, the more was given away; 'not attacked': nothing that left was); –: not audited."
)
# What the table of findings explains where it has a measure, an attack, or distances of near neighbours.
_EXPLAINED = {
    ERROR: "Squared errors are per feature, in brackets as a share of the guess's, which is the mean of other silos' "
    "nodes.",
    "near": f"Near neighbours: the nearest {100 * NEAR:g} % of all nodes lie that far away.",
    LABELS: "A guess of a label is the most frequent one.",
    AREA: "AUC: how often what is sought (a link, a positive label) has a higher score than what is not.",
}


@dataclass(frozen=True)
class Finding:
    """One attack: what it was after, what it got, and on what; ``got`` is None where nothing was measured."""

    attack: str
    kind: str = ""  # what it read, a member of Kind
    measure: str = NOT_TRIED  # ERROR, ACCURACY, AREA, or why there is no number
    got: float | None = None
    guess: float | None = None
    layer: int | None = None  # the layer that reads the rows; None where that has no meaning
    releases: float = 0.0  # of a target, on average; all of them were used
    targets: int = 0
    sigma: float = 0.0
    what_if: bool = False  # noise was added afterwards
    note: str = ""
    unit: str = "nodes"  # what targets are
    details: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """A squared error as a share of the guess's; None where there is none."""
        if self.measure != ERROR or self.got is None or not self.guess:
            return None
        return self.got / self.guess

    def line(self) -> list[str]:
        """The finding as a row of the table with the columns ``HEAD``."""
        if self.got is None or self.guess is None:
            return [self.attack, self.measure, "–", self._on()]
        got, guess = (_number(self.measure, value) for value in (self.got, self.guess))
        near = self.details.get("neighbours")
        share = "" if self.ratio is None else f" ({attack_text(self.ratio)})"
        beside = "" if near is None or self.what_if else f"; near neighbours {near:.3g}"
        return [self.attack, got + share, guess + beside, self._on()]

    def _on(self) -> str:
        """What the attack read, in words."""
        what = SHORT.get(self.kind) or (WORDS[Kind(self.kind)].name if self.kind else "")
        where = {None: "", 0: " before the first layer"}.get(self.layer, f" after layer {self.layer}")
        targets = f"{self.targets:,} {self.unit}" if self.targets else ""
        noun = "sum" if self.kind in (Kind.PARTIALS, Kind.AGGREGATES) else "release"
        times = f"{self.releases:,.0f}" if self.releases >= 100 else f"{self.releases:.3g}"
        releases = f"{times} {noun}{'s' if self.releases != 1 else ''} each" if self.releases else ""
        noise = f"σ = {self.sigma:.3g}{', what if' if self.what_if else ''}" if self.sigma else ""
        return ", ".join(each for each in (what + where, targets, releases, noise, self.note) if each)


def _number(measure: str, value: float) -> str:
    """A measured number as text."""
    if measure == ERROR:
        return f"error {value:.3g}"
    return f"{100 * value:.1f} % right" if measure == ACCURACY else f"AUC {value:.2f}"


@dataclass(frozen=True)
class Audit:
    """The findings of an audit, the run's clip and noise, the audit's seed, and notes on the replay."""

    findings: tuple[Finding, ...] = ()
    clip: float = math.inf
    sigma: float = 0.0
    seed: int = 0
    notes: tuple[str, ...] = ()

    @property
    def error(self) -> float | None:
        """The smallest ratio error / guess's error of inferred features, without noise added later; None if unknown."""
        known = [f.ratio for f in self.findings if f.attack == FEATURES and not f.what_if and f.ratio is not None]
        return min(known, default=None)

    def as_dict(self) -> dict[str, Any]:
        """The content of ``audit.json``."""
        about = {"sigma": self.sigma, "clip": "inf" if self.clip == math.inf else self.clip, "seed": self.seed}
        findings = [asdict(finding) | {"ratio": finding.ratio} for finding in self.findings]
        return {"attack_error": self.error, **about, "notes": list(self.notes), "attacks": findings}

    @property
    def note(self) -> str:
        """What the measures of these findings mean; nothing of those that it has none of."""
        measured = [finding for finding in self.findings if finding.got is not None]
        there = {name for finding in measured for name in (finding.measure, finding.attack)}
        there |= {"near"} if any("neighbours" in finding.details for finding in measured) else set()
        return " ".join(text for name, text in _EXPLAINED.items() if name in there)

    def lines(self) -> list[list[str]]:
        """The findings as rows of a table with the columns ``HEAD``."""
        return [finding.line() for finding in self.findings]


def keep(folder: RunFolder, audit: Audit) -> Audit:
    """Write ``audit.json`` into a run folder; returns the audit."""
    folder.write_json("audit.json", audit.as_dict())
    return audit


def read_audit(folder: RunFolder) -> Audit | None:
    """The audit of a run, or of the first of its seeds; None where it was not audited."""
    path = members(folder)[0].path / "audit.json"
    if not path.is_file():
        return None
    try:
        told = json.loads(path.read_text())
        findings = [Finding(**{k: v for k, v in each.items() if k != "ratio"}) for each in told["attacks"]]
        for finding in findings:
            finding.line()
        return Audit(tuple(findings), float(told["clip"]), told["sigma"], told["seed"], tuple(told["notes"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise IsthmusError(f"'{path}' is damaged ({error}); write it anew with: isthmus audit {folder.path}") from error


def attack_error(folder: RunFolder) -> float | str | None:
    """The smallest attack error of a run as a share of a guess's; words if not measured, None if not audited."""
    audit = read_audit(folder)
    if audit is None or audit.error is not None:
        return None if audit is None else audit.error
    return UNMEASURED if any(f.measure == ERROR for f in audit.findings) else NOT_ATTACKED


def attack_text(value: float | str | None) -> str:
    """An attack error as text: a percentage, the words themselves, or a dash."""
    if value is None or isinstance(value, str):
        return value or "–"
    return "–" if math.isnan(value) else "< 0.1 %" if value < 0.001 else f"{100 * value:.1f} %"


def audit_table(audit: Audit) -> Table:
    """The findings for the terminal."""
    out = Table(title="Attacks on what the run released", title_justify="left", caption=Text(audit.note))
    for title in HEAD:
        out.add_column(title, overflow="fold")
    for line in audit.lines():
        out.add_row(*map(Text, line))
    return out


def not_tried(kinds: Collection[str], extremes: bool) -> list[Finding]:
    """Attacks that are known and were not tried, each with what it would read of the ``kinds`` that left.

    ``extremes``: whether aggregates of the run hold largest or smallest entries.
    """
    told = [kind for kind in kinds if kind != Kind.PARTIALS or extremes]
    return [_untried(attack, reads, told) for attack, reads in _KNOWN.items()]


_KNOWN = {
    "gradient inversion": (Kind.GRADIENTS, Kind.PARAMETERS),
    "membership inference": (Kind.PARAMETERS, Kind.GRADIENTS),
    "features from extremes (PNA)": (Kind.PARTIALS,),
}


def _untried(attack: str, reads: Sequence[Kind], kinds: Collection[str]) -> Finding:
    """The finding of an attack that was not tried, with the first kind that left and that it would read."""
    there = [kind.value for kind in reads if kind.value in kinds]
    note = "" if there else "nothing that it would read has left"
    return Finding(attack, there[0] if there else "", NOT_TRIED, note=note)
