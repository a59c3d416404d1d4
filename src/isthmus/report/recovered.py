"""How well an audit recovered what messages of a kind were computed from: its best finding of every sort."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from isthmus.audit.findings import ACCURACY, AREA, DISCLOSED, ERROR, NOT_TRIED, Audit, Finding, attack_text

EXPOSED = 0.01  # share of a guess's squared error below which a feature counts as recovered
NOT_AUDITED, UNREAD = "not audited", "no attack read it"


def recovered(audit: Audit | None, kind: str) -> str:
    """What attacks on messages of a kind got, best of each sort, in words; why there is nothing to tell."""
    if audit is None:
        return NOT_AUDITED
    mine = [finding for finding in audit.findings if finding.kind == kind]
    best = best_of_each(mine)
    if best:
        return "; ".join(map(in_words, best))
    if any(finding.measure == DISCLOSED for finding in mine):
        return "the record itself: nothing to infer"
    known = [finding.attack for finding in mine if finding.measure == NOT_TRIED]
    return f"{UNREAD}; not tried: {', '.join(dict.fromkeys(known))}" if known else UNREAD


def best_of_each(findings: Sequence[Finding]) -> list[Finding]:
    """Of every sort of attack the finding that got most, without noise that was added afterwards."""
    sorts: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        if finding.got is not None and finding.guess is not None and not finding.what_if:
            sorts.setdefault((finding.attack, finding.measure), []).append(finding)
    return [_BEST[measure](each) for (_, measure), each in sorts.items()]


def _least(findings: Sequence[Finding]) -> Finding:
    """The finding with the smallest error beside a guess's."""
    return min(findings, key=lambda finding: float("inf") if finding.ratio is None else finding.ratio)


def _most(findings: Sequence[Finding]) -> Finding:
    """The finding that was right most often."""
    return max(findings, key=lambda finding: finding.got or 0.0)


_BEST: dict[str, Callable[[Sequence[Finding]], Finding]] = {ERROR: _least, ACCURACY: _most, AREA: _most}


def in_words(finding: Finding) -> str:
    """What an attack got, beside what a guess gets, in a few words."""
    assert finding.got is not None and finding.guess is not None
    if finding.measure in (ACCURACY, AREA) and finding.got <= finding.guess:
        return f"{finding.attack}, no better than a guess"
    if finding.measure == ACCURACY:
        return f"{finding.attack}, {100 * finding.got:.1f} % right (a guess: {100 * finding.guess:.1f} %)"
    if finding.measure == AREA:
        return f"{finding.attack}, AUC {finding.got:.2f} (a guess: {finding.guess:.2f})"
    if finding.ratio is None:
        return f"{finding.attack}, alike for all nodes"
    if finding.ratio >= 1:
        return f"{finding.attack}, no better than a guess"
    return f"{finding.attack}, error {attack_text(finding.ratio)} of a guess's"


def exposed(audit: Audit | None) -> list[Finding]:
    """The best findings by which features of nodes are as good as known."""
    best = best_of_each(audit.findings) if audit else []
    return [finding for finding in best if finding.ratio is not None and finding.ratio < EXPOSED]
