"""The first screen of a run's report: a verdict in two or three sentences, and a table of what crossed."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from isthmus.audit.findings import Audit, attack_text
from isthmus.core.kinds import Kind
from isthmus.protect.accounting.guarantee import APART, headline
from isthmus.report.disclosure import treatment
from isthmus.report.page import CellRow, table
from isthmus.report.recovered import best_of_each, exposed, in_words, recovered
from isthmus.runs.folder import RunFolder
from isthmus.runs.plain_words import WORDS
from isthmus.runs.summary import (
    Flow,
    data_name,
    epsilon_of,
    final_score,
    guarantees,
    is_merged,
    primary,
    rank,
    run_label,
)
from isthmus.runs.text import epsilon_text, gain_text, list_names, metric_label, score_text

_HEAD = ["What left a silo", "Computed from", "How it left", "What an attack got"]


def verdict(folder: RunFolder, alone: RunFolder | None, flows: Sequence[Flow], audit: Audit | None) -> str:
    """The verdict: how good the model is, what left for it, and how much of the data that gave away."""
    if is_merged(folder):
        left = "One party held all data for it: for comparison, and no federation."
    elif not flows:
        left = "Nothing left a silo for it."
    else:
        left = " ".join([_left(folder, flows), attacked(audit)])
    return f"{_reached(folder, alone)} {left}".replace(" %", "\u00a0%")  # a number stays with its unit


def _reached(folder: RunFolder, alone: RunFolder | None) -> str:
    """The sentence on the test score and, where it is known, on the gain over each silo alone."""
    metric = primary(folder)
    best = final_score(folder, "test", metric)
    what = f"{run_label(folder)} on {data_name(folder)}"
    if best is None:
        return f"{what} has no test score."
    score = f"{what} reached a test {metric_label(metric)} of {score_text(metric, best)}"
    if alone is None:
        return f"{score}."
    gain = gain_text(metric, best, final_score(alone, "test", metric))
    return f"{score}, {gain} points over each silo alone."


def _left(folder: RunFolder, flows: Sequence[Flow]) -> str:
    """The sentence on data of nodes that left, and on epsilon."""
    kinds = charged_kinds(folder, flows)
    epsilon = epsilon_text(epsilon_of(folder))
    if not kinds:
        return f"No data of nodes left a silo beside names, ids, counts and scores (ε = {epsilon})."
    names = list_names([WORDS[kind].name for kind in kinds])
    bare = [WORDS[kind].name for kind in kinds if kind in headline(guarantees(folder)).bare]
    who = f"{list_names(bare)} " if 0 < len(bare) < len(kinds) else ""
    return f"For it {names} left silos, with ε = {epsilon}{f': {who}without noise' if bare else ''}."


def attacked(audit: Audit | None) -> str:
    """The sentence on what attacks got; on an audit that is missing, how to make it."""
    if audit is None:
        return "Nobody has tried what can be worked out from that (isthmus audit)."
    known = exposed(audit)
    if known:
        best = min(known, key=lambda finding: finding.ratio or 0.0)
        return (
            f"The audit recovered {best.attack} from them, with an error of {attack_text(best.ratio)} of a guess's: "
            "whoever received them has that data."
        )
    found = best_of_each(audit.findings)
    if not found:
        return "The audit attacked none of it, which is no sign of safety."
    return f"The audit's best: {'; '.join(map(in_words, found))}. That bounds nothing that others can do."


def charged_kinds(folder: RunFolder, flows: Sequence[Flow]) -> list[Kind]:
    """The kinds that carried data of nodes, the most revealing first; without names, ids, counts and scores."""
    bare = headline(guarantees(folder)).bare
    crossed = {Kind(flow.kind) for flow in flows}
    return sorted((kind for kind in crossed if kind not in APART or kind in bare), key=lambda kind: -rank(kind))


def what_crossed(folder: RunFolder, flows: Sequence[Flow], audit: Audit | None) -> str:
    """The table of what crossed, and a sentence on what crossed beside it that no epsilon is of, as markup."""
    kinds = charged_kinds(folder, flows)
    rows: list[CellRow] = [
        [
            _capital(WORDS[kind].name),
            WORDS[kind].source,
            treatment(kind, flows) or "as it is",
            recovered(audit, kind),
        ]
        for kind in kinds
    ]
    beside = sorted({Kind(flow.kind) for flow in flows} - set(kinds), key=rank)
    also = f"<p><b>Crossed beside that,</b> covered by no ε: {escape('; '.join(WORDS[k].name for k in beside))}.</p>"
    return (table(_HEAD, rows, left=len(_HEAD)) if rows else "") + (also if beside else "")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
