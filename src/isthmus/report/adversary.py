"""The report's section on what an adversary can infer from rows that crossed: the findings of an audit."""

from __future__ import annotations

from html import escape

from isthmus.audit.findings import HEAD, NOTE, NOTHING, Audit, attack_text, lines, read_audit
from isthmus.report import plots
from isthmus.report.page import figure, table
from isthmus.runs.folder import RunFolder
from isthmus.runs.summary import members

_TITLE = "<h2>What an adversary can do</h2>"


def adversary(folder: RunFolder) -> str:
    """The section as markup; empty where the run was not audited."""
    audit = read_audit(folder)
    if audit is None:
        return ""
    if not audit.findings:
        return f"{_TITLE}<p>No row has left a silo: {NOTHING}.</p>"
    shown = table(list(HEAD), lines(audit), NOTE)
    return f"{_TITLE}<p>{escape(_lead(audit, folder))}</p>{shown}{_curve(audit)}"


def _lead(audit: Audit, folder: RunFolder) -> str:
    """The leading sentences: who attacks, what they know, and how large their error is."""
    seeds = members(folder)
    which = f" (of the first of {len(seeds)} seeds)" if len(seeds) > 1 else ""
    found = "" if audit.error is None else f" Their error is {attack_text(audit.error)} of a guess's."
    return (
        f"All silos but a node's owner, and the server, infer its features from the row that left last{which}. "
        "They know all parameters that crossed, the other silos' nodes and, for rows of deeper layers, everything but "
        "the features of the node itself."
        f"{found} That is what this attack achieves, not a bound on what others can."
    )


def _curve(audit: Audit) -> str:
    """The figure of the attack's error against noise; empty with a single level of noise."""
    levels = sorted({f.sigma for f in audit.findings})
    if len(levels) < 2:
        return ""
    names = {f.layer: "input" if f.layer == 0 else f"layer {f.layer}" for f in audit.findings}
    ratio = {(f.layer, f.sigma): f.ratio for f in audit.findings}
    shares = {name: [ratio.get((layer, level)) for level in levels] for layer, name in names.items()}
    first = audit.findings[0]
    near = first.neighbours / first.guess if first.guess else 1.0
    caption = "Error of the attack, as a share of the guess's, against noise in the rows."
    caption += " Only the lowest noise is the run's own; the others are added afterwards: what if." * any(
        f.what_if for f in audit.findings
    )
    return figure(plots.attack_curve(levels, shares, near), caption)
