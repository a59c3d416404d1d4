"""The report's section on what an adversary can infer from what crossed: the findings of an audit."""

from __future__ import annotations

from html import escape

from isthmus.audit.findings import ERROR, HEAD, NONE, WORST_CASE, Audit, Finding, attack_text, read_audit
from isthmus.core.kinds import Kind
from isthmus.protect.accounting.guarantee import APART
from isthmus.report import plots
from isthmus.report.page import box, figure, table
from isthmus.runs.folder import RunFolder
from isthmus.runs.plain_words import WORDS
from isthmus.runs.summary import members

_TITLE = "<h2>What an adversary can do</h2>"


def adversary(folder: RunFolder) -> str:
    """The section as markup; empty where the run was not audited."""
    audit = read_audit(folder)
    if audit is None:
        return ""
    beside = [finding for finding in audit.findings if finding.attack == NONE and finding.kind in APART]
    lines = [finding.line() for finding in audit.findings if finding not in beside]
    shown = table(list(HEAD), lines, audit.note, left=len(HEAD))
    names = "; ".join(WORDS[Kind(finding.kind)].name for finding in beside)
    rest = f"<p>Not attacked, and covered by no ε: {escape(names)}.</p>" if beside else ""
    return f"{_TITLE}<p>{escape(_lead(audit, folder))}</p>{box(audit.notes)}{shown}{rest}{_curve(audit)}"


def _lead(audit: Audit, folder: RunFolder) -> str:
    """The leading sentences: who attacks, what they know, and how large their error is."""
    seeds = members(folder)
    which = f" (of the first of {len(seeds)} seeds)" if len(seeds) > 1 else ""
    if not any(finding.got is not None for finding in audit.findings):
        return f"Nothing that left{which} was attacked. That is no sign of safety: the table says what left."
    worst = "; in the worst case, where the table says so, also the node's neighbours" * _knows_neighbours(audit)
    found = "" if audit.error is None else f" Their best error is {attack_text(audit.error)} of a guess's."
    return (
        f"All silos but one, and the server, put together everything that this one released{which}, and infer "
        "features, labels and links of its nodes. They know what crossed, the parameters that silos agreed on or sent, "
        f"and their own nodes{worst}.{found} That is what these attacks achieve, not a bound on what others can."
    )


def _knows_neighbours(audit: Audit) -> bool:
    """Whether an attack was given the neighbours of its targets."""
    return any(finding.got is not None and WORST_CASE in finding.note for finding in audit.findings)


def _curve(audit: Audit) -> str:
    """The figure of the error of features inferred from rows, against noise; empty with a single level of noise."""
    rows = [f for f in audit.findings if f.kind == Kind.EMBEDDINGS and f.measure == ERROR and "misfit" in f.details]
    rows = [f for f in rows if any(f.layer == other.layer and f.sigma != other.sigma for other in rows)]
    levels = sorted({f.sigma for f in rows})
    if len(levels) < 2:
        return ""
    names = {f.layer: _name(f) for f in rows}
    ratio = {(f.layer, f.sigma): f.ratio for f in rows}
    shares = {name: [ratio.get((layer, level)) for level in levels] for layer, name in names.items()}
    near = rows[0].details["neighbours"] / rows[0].guess if rows[0].guess else 1.0
    caption = "Error of features inferred from rows, as a share of the guess's, against noise in each release."
    caption += " Only the lowest noise is the run's own; the others are added afterwards: what if." * any(
        f.what_if for f in rows
    )
    return figure(plots.attack_curve(levels, shares, near), caption)


def _name(finding: Finding) -> str:
    """The name of the rows that a finding is about."""
    return f"layer {finding.layer}" if finding.layer else "input"
