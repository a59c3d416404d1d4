"""The report's section on privacy loss: the epsilon a run is known by, by kind of message, and metric figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

from isthmus.core.kinds import Kind
from isthmus.protect.accounting.guarantee import (
    DP,
    EVERYTHING,
    LISTS,
    METRIC,
    NODE,
    OF_A_SAMPLE,
    ROW,
    STEPS_TAKEN,
    Guarantee,
    headline,
)
from isthmus.report.disclosure import protection
from isthmus.report.page import Cell, CellRow, table
from isthmus.runs.folder import RunFolder
from isthmus.runs.plain_words import WORDS
from isthmus.runs.summary import Flow, guarantees, is_merged, members
from isthmus.runs.text import epsilon_text, labels_line, lists_line, privacy_line

TITLE = "<h2>Privacy loss</h2>"
MEANING = (
    "Epsilon bounds how far releases can move the odds of any conclusion about one unit, whatever its two values are; "
    "∞: no bound. A node: its features and its label, which may be inside every payload that its silo has computed, "
    "and inside those sums of features that hold it. A row: what the model computed for one node, whose traces in the "
    "rows of others are then not counted. Each release moves by at most twice the clipping norm."
)
METRIC_MEANING = (
    "A weaker promise than epsilon above: a node's rows are hidden among rows within ρ, and not beyond. ρ: distance of "
    "a node's rows (as clipped, before noise) to those of its k-th nearest neighbour among the silo's released rows, "
    "as a root mean square over its releases, by percentile of nodes. Spread: such a distance of two rows taken at "
    "random. Distinct: different rows among a node's own and its k nearest, of the node with fewest. Alike: nodes "
    "whose k nearest all have the node's own row, of which this ε says nothing."
)
LABELS_MEANING = (
    "What follows from parameters, and how far it can move the odds of any conclusion about one training label. ε: any "
    "two values of the label, by the steps that it was in, who is in which step being known. As sampled: one label "
    "more or less, by the largest share of labels in a step, as DP-SGD is usually accounted."
)
_LABEL_EPSILONS = ("epsilon", "epsilon as sampled")
LISTS_MEANING = (
    "What was computed from draws of neighbour lists, and how far it can move the odds of any conclusion about one "
    "entry of one list. δ: the chance that an entry was drawn at least once, and so is open; above a half there is no "
    "guarantee, however small ε is. By the list that fared worst, each with its own length and its own count of draws."
)
_SHOWN = ("50", "90", "99", "100")  # percentiles; all are in metrics.json


def privacy(folder: RunFolder, flows: Sequence[Flow]) -> str:
    """The section as markup: one line for the run, a table by kind, and metric figures where rows left with noise."""
    if is_merged(folder):
        return f"{TITLE}<p>One party held everything, so epsilon is infinite.</p>"
    if not flows:
        return f"{TITLE}<p>Nothing crossed, so there is no loss: epsilon is 0.</p>"
    known = guarantees(folder)
    line = privacy_line(headline(known), lambda kind: WORDS[Kind(kind)].name)
    several = " This is the seed that lost most; what all seeds released adds up." * (len(members(folder)) > 1)
    metric = [_metric(each) for each in known if each.notion in (METRIC, OF_A_SAMPLE)]
    lead = f"<p><b>{escape(line[0].upper() + line[1:])}.</b>{several}</p>"
    return TITLE + lead + _kinds(known, flows) + "".join(metric) + _labels(known) + _lists(known)


def _kinds(known: Sequence[Guarantee], flows: Sequence[Flow]) -> str:
    """The table of epsilon by kind, of one row and of one node; empty where no kind carries data of nodes."""
    units = {unit: {each.of: each for each in known if (each.unit, each.notion) == (unit, DP)} for unit in (ROW, NODE)}
    rows: list[CellRow] = []
    for kind, node in units[NODE].items():
        if kind == EVERYTHING:
            continue
        row = units[ROW].get(kind)
        events = sorted({f.event for f in flows if f.kind == kind})
        cells = [cell for told in (row, node) for cell in _spent(told)]
        rows.append([Cell(WORDS[Kind(kind)].name, kind), " ".join(map(protection, events)), *cells])
    head = ["Kind", "Protection", "Releases of a row", "ε of a row", "Releases a node may be in", "ε of a node"]
    return table(head, rows, MEANING, left=2) if rows else ""


def _spent(told: Guarantee | None) -> list[str]:
    """Releases and epsilon as cells of a table; dashes where there is no guarantee of this unit."""
    if told is None:
        return ["–", "–"]
    return [f"{told.releases:,}", "no guarantee" if told.void else epsilon_text(told.epsilon)]


def _metric(told: Guarantee) -> str:
    """The table of metric figures by silo: nodes that left, neighbours, distances and epsilon within them."""
    of = " of a sample" if any(each["measured"] < each["nodes"] for each in told.silos.values()) else ""
    names = [f"ε {q} %{of}" for q in _SHOWN]
    head = ["Silo", "Nodes", "k", "Distinct", "Alike", f"ρ 90 %{of}", "Spread", *names]
    rows = [[silo, *_cells(each)] for silo, each in told.silos.items()]
    note = f"{METRIC_MEANING} Delta {told.delta:g}{', which is no guarantee' if told.void else ''}."
    alike, nodes = (sum(each[key] for each in told.silos.values()) for key in ("homogeneous", "measured"))
    warning = f"<p><b>Of {alike:,} of {nodes:,} nodes this says nothing: rows near them are all alike.</b></p>"
    title = f"<h3>{escape(told.of.capitalize())}: metric privacy within ρ</h3>"
    return title + (warning if alike else "") + table(head, rows, note)


def _labels(known: Sequence[Guarantee]) -> str:
    """The table of training labels by silo; empty where gradients of seeds were not bounded."""
    found = [each for each in known if each.of == STEPS_TAKEN]
    if not found:
        return ""
    names = ("seeds", "steps", "most", "times")
    rows = [
        [silo, *(f"{each[name]:,}" for name in names), *(epsilon_text(float(each[name])) for name in _LABEL_EPSILONS)]
        for silo, each in found[0].silos.items()
    ]
    head = ["Silo", "Labels", "Steps", "Seeds, at most", "Steps with a label", "ε", "ε as sampled"]
    assumed = f"{LABELS_MEANING} Delta {found[0].delta:g}. Assumed: {'; '.join(found[-1].assumptions)}."
    line = labels_line(known)
    return f"<h3>Labels: bounded steps</h3><p><b>{escape(line[0].upper() + line[1:])}.</b></p>" + table(
        head, rows, assumed
    )


def _lists(known: Sequence[Guarantee]) -> str:
    """The table of drawn neighbour lists by silo; empty where draws were not counted."""
    found = [each for each in known if each.of == LISTS]
    if not found:
        return ""
    held, line = found[0], lists_line(known)
    rows = []
    for silo, each in held.silos.items():
        told = replace(held, epsilon=float(each["epsilon"]), delta=float(each["delta"]))
        counts = [f"{each[name]:,}" for name in ("lists", "skipped", "draws", "shortest")]
        rows.append([silo, *counts, epsilon_text(told.epsilon), f"{told.delta:.3g}", "none" if told.void else "yes"])
    head = ["Silo", "Lists", "Below the floor", "Draws, at most", "Shortest", "ε", "δ", "Guarantee"]
    assumed = " Assumed: " + "; ".join(found[-1].assumptions) + "."
    title = f"<h3>Edges: draws of neighbour lists</h3><p><b>{escape(line[0].upper() + line[1:])}.</b></p>"
    return title + table(head, rows, LISTS_MEANING + assumed)


def _cells(each: Mapping[str, Any]) -> list[str]:
    """The figures of one silo as text."""
    of = " of a sample" if each["measured"] < each["nodes"] else ""
    counts = [f"{each['nodes']:,}", str(each["k"]), str(each["distinct rows"]["fewest"]), f"{each['homogeneous']:,}"]
    numbers = [each[f"rho{of}"]["90"], each["spread"], *(each[f"epsilon{of}"][q] for q in _SHOWN)]
    return [*counts, *(epsilon_text(float(number)) for number in numbers)]
