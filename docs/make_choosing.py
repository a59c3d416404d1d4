"""``python docs/make_choosing.py``: make the tables of docs/choosing.md and docs/what-the-server-sees.md anew.

They stand between comments in these pages, and are made of what every method did when it was tried
(docs/method_facts.json).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

from make_methods import inside, slug, words  # noqa: E402
from method_flows import USUAL, of_devices, spelled, tried  # noqa: E402

from isthmus.core.kinds import Kind  # noqa: E402
from isthmus.methods import catalogue  # noqa: E402
from isthmus.protect.events import UNPROTECTED  # noqa: E402
from isthmus.runs.plain_words import WORDS  # noqa: E402

LEARNING = ("between phases", "every step", "at steps that cross", "when the server corrects", "every round")
ASKED = {
    "node labels": "node labels",
    "edge labels": "edge labels",
    "directed models": "directed models",
    "sampled batches": "sampled batches",
    "several hosts": "several hosts",
    "unknown cross edges": "edges nobody knows",
    "parties that come and go": "parties come and go",
}

MADE = re.compile(r"(<!-- made: (\w+) -->\n\n)(.*?)(\n\n<!-- end -->)", re.DOTALL)
PAGES = ("choosing.md", "what-the-server-sees.md")


def page(name: str) -> str:
    """A page with its tables made anew; what stands around them is kept."""
    make = {"goes": goes, "equals": equals, "usual": usual, "learnt": learnt, "kinds": kinds}
    return MADE.sub(lambda match: match[1] + make[match[2]]() + match[4], (DOCS / name).read_text())


def goes() -> str:
    """The table that tells which method goes with what."""
    heads = ["method", *ASKED.values(), "crosses while learning"]
    return table(heads, [[link(name), *marks(name), learning(name)] for name in catalogue.names()])


def equals() -> str:
    """The table that tells what methods equal."""
    return table(["method", "equals"], [[link(name), equal(name)] for name in catalogue.names() if equal(name)])


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def marks(name: str) -> list[str]:
    """The answers of a method as a table shows them."""
    given, alone = tried()[name]["answers"], inside(catalogue.get(name))
    found = []
    for asked in ASKED:
        yes = "own" if asked == "edge labels" and alone else "✓"
        found.append(yes if given[asked] == "yes" else "–")
    return found


def link(name: str) -> str:
    """A method's name, with a link to its page."""
    return f"[`{name}`](methods/{slug(name)}.md)"


def learning(name: str) -> str:
    """What crosses while a method learns, in plain words."""
    if catalogue.get(name).merged:
        return "nothing: one party has all"
    flows = [flow for flow in tried()[name]["flows"] if flow[0] in LEARNING or flow[2] not in USUAL and early(flow)]
    names = [WORDS[Kind(kind)].name for _, _, kind, _ in flows if Kind(kind) not in USUAL]
    return "; ".join(dict.fromkeys(names)) or "nothing"


def early(flow: list[str]) -> bool:
    """Whether something crossed before training."""
    return flow[0] == "before training"


def equal(name: str) -> str:
    """What a method equals, in words."""
    return "; ".join(what for what, _ in words()[name].get("equals", ()))


def learnt() -> str:
    """The table of what parties receive while a method learns."""
    heads = ["method", "the server receives", "silos get back of the server", "parties receive of each other"]
    return table(heads, [[link(name), *(received(name, ways) for ways in TO)] for name in catalogue.names()])


TO = ({"up"}, {"down"}, {"peer", "between_devices", "handed_in", "handed_down"})


def usual() -> str:
    """Kinds that every method sends, by direction."""
    everywhere = [{tuple(flow[1:3]) for flow in tried()[name]["flows"]} for name in catalogue.names() if of_silos(name)]
    common = set.intersection(*everywhere)
    sent = [WORDS[kind] for kind in Kind if ("up", kind.value) in common]
    rows = [[words.name, spelled(words.up or words.what), spelled(words.down or words.what)] for words in sent]
    return table(["kind", "silo → server", "server → silo"], rows)


def of_silos(name: str) -> bool:
    """Whether a method is one of parties that keep their data, with rows that belong to silos."""
    method = catalogue.get(name)
    return not method.merged and method.level == "silo"


def received(name: str, ways: set[str]) -> str:
    """What crosses in some directions while a method learns, kind by kind, with the moments."""
    told: dict[tuple[str, str], list[str]] = {}
    for when, way, kind, event in tried()[name]["flows"]:
        learnt = when in LEARNING or when == "before training"
        if way in ways and learnt and Kind(kind) not in USUAL and not catalogue.get(name).merged:
            told.setdefault((WORDS[Kind(kind)].name, event), []).append(when)
    parts = [
        f"[{kind}](#{anchor(kind)}), {', '.join(dict.fromkeys(whens))}{veiled(event)}"
        for (kind, event), whens in told.items()
    ]
    return "<br>".join(parts) or "–"


def veiled(event: str) -> str:
    """How a message was protected, in brackets; empty for one that was not."""
    return "" if event == UNPROTECTED else f" ({event})"


def anchor(kind: str) -> str:
    """The anchor of the section on a kind, from its plain name and what may follow it in brackets."""
    return "".join(c for c in kind.split(" (")[0].replace(" ", "-") if c.isalnum() or c == "-").lower()


def kinds() -> str:
    """A section for every kind that some method sends."""
    senders = {kind: [n for n in catalogue.names() if any(flow[2] == kind for flow in everything(n))] for kind in Kind}
    return "\n\n".join(section(kind, names) for kind, names in senders.items() if names)


def section(kind: Kind, senders: list[str]) -> str:
    """What a kind carries, what it was computed from, what can be learnt, and who sends it."""
    said = WORDS[kind]
    ways = {"to the server": said.up, "from the server": said.down, "between silos": said.peer}
    lines = [f"- {way.capitalize()}: {spelled(text)}" for way, text in ways.items() if text]
    lines += [f"- Between devices: {of_devices(said, 'between_devices')}"] if said.between_devices else []
    who = "every method" if len(senders) >= len(catalogue.names()) - 1 else ", ".join(map(link, senders))
    about = f"{spelled(said.what)} Computed from: {said.source}. {said.risk}"
    return "\n\n".join(filter(None, [f"### {said.name.capitalize()}", about, "\n".join(lines), f"Sent with {who}."]))


def everything(name: str) -> list[Any]:
    """All flows of a method, with full and with sampled batches."""
    facts = tried()[name]
    return [*facts["flows"], *facts["sampled"]]


if __name__ == "__main__":
    for name in PAGES:
        (DOCS / name).write_text(page(name))
