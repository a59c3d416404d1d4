"""The first sentences of a disclosure sheet: what leaves, what bounds it, and what attacks got."""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.protect.accounting.guarantee import EVERYTHING
from isthmus.protect.events import veil
from isthmus.report.disclosed import Disclosed
from isthmus.report.first_screen import attacked
from isthmus.runs.plain_words import WORDS
from isthmus.runs.text import epsilon_text, list_names

_LARGE = 20.0  # an epsilon above this promises next to nothing


def verdict_of(told: Disclosed, names: Sequence[str]) -> str:
    """The verdict; ``names`` are the kinds of messages in words that carry data of nodes."""
    if told.facts.get("merged"):
        return "One party holds the data of all: nothing leaves it. This is a simulation, for comparison."
    if not told.passages:
        return "Nothing leaves a silo."
    if not names:
        return "Beside names, ids, counts and scores nothing leaves a silo."
    what = list_names(list(names))
    left = f"{what[:1].upper()}{what[1:]} {'will leave' if told.planned else 'left'} the silos."
    after = "What can be worked out from that is tested after the run (isthmus audit)."
    return f"{left} {_bound(told)}{_veiled(told)} {after if told.planned else attacked(told.audit)}"


def _veiled(told: Disclosed) -> str:
    """The sentence on kinds of messages that nobody reads alone; empty where there are none."""
    sent = [each for each in told.passages if each.direction not in ("down", "handed_down")]
    kinds = [kind for kind in WORDS if any(each.kind == kind for each in sent)]
    veiled = [kind for kind in kinds if all(veil(each.event) for each in sent if each.kind == kind)]
    if not veiled:
        return ""
    names = list_names([WORDS[kind].name for kind in veiled])
    return f" As shares, or masked, so that nobody reads one alone: {names}."


def _bound(told: Disclosed) -> str:
    """The sentence on the epsilon of everything."""
    known = next((each for each in told.guarantees if each.of == EVERYTHING), None)
    if known is None or EVERYTHING in told.why_unknown:
        return "What bounds the loss of a node is not known."
    if known.epsilon == float("inf"):
        bare = [WORDS[kind].name for kind in WORDS if kind.value in known.bare]
        return f"Nothing bounds what can be worked out from it (ε = ∞): no noise was added to {list_names(bare)}."
    said = f"ε = {epsilon_text(known.epsilon)} for one {known.unit}, over everything"
    return f"{said}, which promises next to nothing." if known.epsilon > _LARGE else f"{said}."
