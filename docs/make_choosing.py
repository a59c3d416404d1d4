"""``python docs/make_choosing.py``: write docs/choosing.md and docs/what-the-server-sees.md.

Both are tables over the catalogue, made of what every method did when it was tried (docs/method_facts.json).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

from make_methods import slug, tried, words  # noqa: E402

from isthmus.core.kinds import Kind  # noqa: E402
from isthmus.methods import catalogue  # noqa: E402
from isthmus.protect.events import UNPROTECTED  # noqa: E402
from isthmus.runs.plain_words import WORDS  # noqa: E402

USUAL = {Kind.SCHEMA, Kind.IDS, Kind.STATISTICS, Kind.ORDER, Kind.METRICS, Kind.PORTS}  # every method sends some of them
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

CHOOSING = """# Choosing a method

This page is for whoever has a graph in several hands and asks which method may be used: with edge labels, with directed models, with
batches, on several hosts, and with what crossing. It is made from the code by `python docs/make_choosing.py`: each method was tried, and a
“–” is a refusal of the code, whose words stand on the method's page.

```sh
isthmus methods                                             # all of them
isthmus plan --data blocks --silos 5 --method ce-fedgnn     # what one would send, before anything does
```

## In short

- **You do not know yet?** [`fedavg`](methods/fedavg.md), scored across the boundary: `--method fedavg --set score=across`. Then measure
  on your own graph whether rows must cross in training too ([training or scoring](training-or-scoring.md)).
- **Labels on edges** (transactions): see the column *edge labels* below. Methods without exchange learn from edges inside a silo alone
  (“own”); among those that also learn from cross edges, [`ce-fedgnn`](methods/ce-fedgnn.md) and
  [`sync-sgd+fwd-bwd-le`](methods/sync-sgd-fwd-bwd-le.md) have been measured on transactions.
- **Exactness**: [`sync-sgd+fwd-bwd-le`](methods/sync-sgd-fwd-bwd-le.md) is centralised training, step by step.
- **Rows of nodes must never leave**: [`fedavg`](methods/fedavg.md), [`sync-sgd`](methods/sync-sgd.md), [`fed-pub`](methods/fed-pub.md), all with
  `score=own`.
- **Nobody knows of edges between parties**: the column *edges nobody knows*; [`feddep`](methods/feddep.md) and
  [`fed-pub`](methods/fed-pub.md) were made for it.
- **Every node is a person's device**: [`hifgl`](methods/hifgl.md).
- **Parties drop out**: the column *parties come and go* ([how](come-and-go.md)).

## What goes with what

✓: yes. own: yes, along edges inside each silo; cross edges are left out in training. –: refused.

"""

SEES = """# What the server sees

This page is for whoever must say what the server, and other parties, receive with each method: what kind of message, when, and what can be
learnt from it. It is made by `python docs/make_choosing.py` from the ledgers of one small run of each method.

```sh
isthmus plan --data blocks --silos 5 --method fedavg        # what would leave, by kind, before anything does
isthmus report runs/blocks-fedavg                           # of a run: what each party and the server saw, in plain words
```

The server is a role without data of its own; in a deployment it may have a [process, and a host, of its own](across-organisations.md).
Whatever reaches it or another party has passed [one door](architecture.md#one-way-out) and is in the ledger, from which the tables
below are read: full batches, three silos in one process, no protection but what the method brings along.

## With every method

Before training, and for every evaluation, these cross with any method; the [meaning of each](#what-each-kind-means) is below.

"""


def choosing() -> str:
    """The page that tells which method goes with what."""
    names = catalogue.names()
    goes = table(["method", *ASKED.values(), "crosses while learning"], [[link(n), *marks(n), learning(n)] for n in names])
    equals = table(["method", "equals"], [[link(n), equal(n)] for n in names if equal(n)])
    return f"{CHOOSING}{goes}\n\n{NOTES}\n\n## What equals what\n\n{EQUALS}\n\n{equals}\n"


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


NOTES = """“Crosses while learning” leaves out what every method sends (schema, hashes of ids, counts, losses and scores) and what scoring adds: with
`score=across` rows cross to be scored with any method. To try another composition, [swap its parts](methods.md#swapping-parts); to add a
method, see [adding your own](adding.md)."""

EQUALS = """In exact arithmetic, and tested on small graphs; the page of each method names its tests."""


def marks(name: str) -> list[str]:
    """The answers of a method as a table shows them."""
    method, given = catalogue.get(name), tried()[name]["answers"]
    inside = all(phase.exchange.view == "drop" for phase in method.phases) and not method.merged
    found = []
    for asked in ASKED:
        yes = "own" if asked == "edge labels" and inside else "✓"
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


def sees() -> str:
    """The page on what the server and other parties receive."""
    heads = ["method", "the server receives", "silos get back of the server", "parties receive of each other"]
    learnt = table(heads, [[link(name), *(received(name, ways) for ways in TO)] for name in catalogue.names()])
    return f"{SEES}{usual_table()}\n\n## While a method learns\n\n{learnt}\n\n## What each kind means\n\n{kinds()}\n"


TO = ({"up"}, {"down"}, {"peer", "between_devices", "handed_in", "handed_down"})


def usual_table() -> str:
    """Kinds that every method sends, by direction."""
    everywhere = [{tuple(flow[1:3]) for flow in tried()[name]["flows"]} for name in catalogue.names() if of_silos(name)]
    common = set.intersection(*everywhere)
    sent = [WORDS[kind] for kind in Kind if ("up", kind.value) in common]
    return table(["kind", "silo → server", "server → silo"], [[w.name, w.up or w.what, w.down or w.what] for w in sent])


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
        f"[{kind}](#{anchor(kind)}), {', '.join(dict.fromkeys(whens))}{veiled(event)}" for (kind, event), whens in told.items()
    ]
    return "<br>".join(parts) or "–"


def veiled(event: str) -> str:
    """How a message was protected, in brackets; empty for one that was not."""
    return "" if event == UNPROTECTED else f" ({event})"


def anchor(kind: str) -> str:
    """The anchor of the section on a kind, from its plain name and what may follow it in brackets."""
    return "".join(c for c in kind.split(" (")[0].replace(" ", "-") if c.isalnum() or c == "-").lower()


def kinds() -> str:
    """A section for every kind that some method sends: what it carries, what can be learnt, and who sends it."""
    found = []
    for kind in Kind:
        senders = [name for name in catalogue.names() if any(flow[2] == kind for flow in everything(name))]
        if not senders:
            continue
        said = WORDS[kind]
        ways = {"to the server": said.up, "from the server": said.down, "between silos": said.peer, "between devices": said.between_devices}
        more = [f"- {way.capitalize()}: {text}" for way, text in ways.items() if text]
        who = "every method" if len(senders) >= len(catalogue.names()) - 1 else ", ".join(map(link, senders))
        found.append("\n\n".join(filter(None, [f"### {said.name.capitalize()}", f"{said.what} {said.risk}", "\n".join(more), f"Sent with {who}."])))
    return "\n\n".join(found)


def everything(name: str) -> list[Any]:
    """All flows of a method, with full and with sampled batches."""
    facts = tried()[name]
    return [*facts["flows"], *facts["sampled"]]


if __name__ == "__main__":
    (DOCS / "choosing.md").write_text(choosing())
    (DOCS / "what-the-server-sees.md").write_text(sees())
