"""The report's section on privacy loss: epsilon by kind of message, and by node where rows left with noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from isthmus.core.kinds import Kind
from isthmus.protect.accounting.metric_dp import PERCENTILES
from isthmus.report.disclosure import protection
from isthmus.report.page import table
from isthmus.runs.folder import RunFolder
from isthmus.runs.summary import Flow, epsilons, fact, is_merged
from isthmus.runs.text import epsilon_text

MEANING = "Epsilon bounds how far a release can move the odds of any conclusion about one protected unit; ∞: no bound."


def privacy(folder: RunFolder, flows: Sequence[Flow]) -> str:
    """The section as markup: the worst epsilon of each kind, and for noisy rows its distribution over nodes."""
    if is_merged(folder):
        return "<h2>Privacy loss</h2><p>One party held everything, so epsilon is infinite.</p>"
    rows = []
    for kind, value in epsilons(folder).items():
        events = sorted({f.event for f in flows if f.kind == kind})
        rows.append([kind, " ".join(map(protection, events)), epsilon_text(value)])
    if not rows:
        return "<h2>Privacy loss</h2><p>Nothing crossed, so there is no loss: epsilon is 0.</p>"
    known = fact(folder, "privacy", {})
    nodes = [_nodes(kind, part) for kind, part in known.items() if part["unit"] == "node"]
    return "<h2>Privacy loss</h2>" + table(["Kind", "Protection", "ε"], rows, MEANING, left=2) + "".join(nodes)


def _nodes(kind: str, part: Mapping[str, Any]) -> str:
    """The table of one kind by silo: nodes whose rows left, how often, distances to neighbours, and epsilon."""
    shown = [q for q in PERCENTILES if q != 95]  # all are in metrics.json
    head = ["Silo", "Nodes", "Most releases", "ρ 90 %", *(f"ε {q:g} %" for q in shown), "ε, any two"]
    rows = []
    for silo, told in part["silos"].items():
        numbers = [told["rho 90"], *(told[f"epsilon {q:g}"] for q in shown), told["epsilon of any two rows"]]
        counts = [f"{told['nodes']:,}", f"{told['releases']:,}"]
        rows.append([silo, *counts, *(epsilon_text(float(number)) for number in numbers)])
    sampled = any(told["measured"] < told["nodes"] for told in part["silos"].values())
    note = (
        f"Metric privacy of single nodes, delta {part['delta']:g}. ρ: distance of a node's released row (as clipped, "
        "before noise) to its k-th nearest neighbour among the silo's released rows of that layer, by percentile of "
        "nodes. ε: of a node against rows within its own ρ, over all its releases, by percentile of nodes. Any two: "
        "against any row within the clipping norm, for the node that left most often. Nodes: those that left."
    )
    note += " Of sums no rows are known: ρ is twice the clipping norm." * (kind == Kind.PARTIALS)
    note += " Distances were measured on a sample of the nodes." if sampled else ""
    return f"<h3>{escape(kind.capitalize())}: nodes</h3>" + table(head, rows, note)
