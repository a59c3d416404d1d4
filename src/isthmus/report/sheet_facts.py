"""Facts on a disclosure sheet in words: purpose, columns, server and wire, retention, what a plan cannot know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isthmus.core.kinds import KINDS, Kind
from isthmus.core.name_lists import some_of
from isthmus.protect.accounting.guarantee import EVERYTHING
from isthmus.report.disclosed import Disclosed
from isthmus.report.disclosure import place_of_server
from isthmus.runs.plain_words import WORDS
from isthmus.runs.text import count_text

_OF_VALUE = ("=", ":")  # between a column's name and one of its values, in the name of a feature
_NAMED = 40  # columns that the sheet has by name
_SCALED = {
    "none": "as they are",
    "lengths": "every row divided by its length",
    "rows": "every row divided by its sum",
    "columns": "to mean 0 and deviation 1",
}


@dataclass(frozen=True)
class Line:
    """A fact under its name; ``blank``: nobody has said it, so that it is filled in by hand."""

    term: str
    text: str
    blank: bool = False


def about(told: Disclosed, purpose: str) -> Iterator[Line]:
    """Yield what the run was for, how it was trained, on what, and for how long."""
    facts, data = told.facts, told.config.get("data", {})
    yield Line("Purpose", purpose, blank=not purpose)
    yield Line("What is trained", f"a model ({facts.get('model', 'not told')}) that {_task(facts.get('schema') or {})}")
    summary = facts.get("method_summary")
    yield Line("Method", f"{facts.get('label') or facts.get('method', 'not told')}{f': {summary}' if summary else ''}")
    split = data.get("split", "as given")
    how = "each silo's own tables" if split == "as given" else f"one graph, split by {split}: a simulation"
    yield Line("Data", f"{facts.get('data') or data.get('name', 'not told')}; {how}")
    seeds = f", {told.seeds} times with another seed" if told.seeds > 1 else ""
    yield Line("Length", f"{count_text(int(facts.get('epochs') or 0), 'epoch')}{seeds}")


def _task(schema: Mapping[str, Any]) -> str:
    """What the model predicts."""
    labels, target = [str(label) for label in schema.get("labels", ())], schema.get("target", "node")
    if schema.get("task") == "tasks":
        return f"predicts {count_text(len(labels), 'label')} of every {target}: {some_of(labels)}"
    if not labels:
        return f"predicts a label of every {target}"
    return f"predicts which of {len(labels)} classes every {target} is of: {some_of(labels)}"


def columns(told: Disclosed) -> Iterator[Line]:
    """Yield the columns that were used, of nodes and of edges, and how they were scaled."""
    schema, scale = told.facts.get("schema") or {}, told.facts.get("scale") or {}
    for what, width, names, table in (
        ("nodes", "features", "feature_names", "x"),
        ("edges", "edge_features", "edge_feature_names", "edge_attr"),
    ):
        wide, known = int(schema.get(width) or 0), [str(name) for name in schema.get(names) or ()]
        if wide or what == "nodes":
            text = some_of(_gathered(known), _NAMED) if known else f"{count_text(wide, 'column')} without names"
            done = _SCALED.get(str((scale.get(table) or {}).get("how", "")), "")
            yield Line(f"Features of {what}", f"{text}{f' ({done})' if done else ''}")
    unused = list(_unused(told.facts.get("columns") or {}))
    if unused:
        yield Line("Not used", "; ".join(unused))
    target = schema.get("target", "node")
    yield Line("Labels", f"of {target}s; those of training {target}s are learnt from")
    yield Line("Edges", f"which nodes are linked{', and when' if schema.get('timed') else ''}")


def _unused(tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """Yield the columns of all tables that no feature was made of, each with the reason."""
    for columns in tables.values():
        for column in columns:
            if column.get("kind") in ("unused", "empty"):
                why = str(column.get("why") or ("it is empty" if column["kind"] == "empty" else "not told"))
                yield f"{column.get('name')} ({why})"


def _gathered(names: Sequence[str]) -> list[str]:
    """Names of columns; those of features that stand for the values of one column, like ``paid=Euro``, as that one."""
    columns: dict[str, list[str]] = {}
    for name in names:
        column = next((name.partition(sign)[0] for sign in _OF_VALUE if sign in name), name)
        columns.setdefault(column, []).append(name)
    return [each[0] if len(each) == 1 else f"{column} ({len(each)} values)" for column, each in columns.items()]


def server_lines(told: Disclosed) -> Iterator[Line]:
    """Yield who runs the server, and how what parties send each other is encrypted and authenticated."""
    if told.planned:
        yield Line("Server", "not known before the run", blank=True)
        yield Line("Encryption, authentication", "not known before the run", blank=True)
        return
    facts = told.facts
    hosts, beside = int(facts.get("hosts") or 1), [str(name) for name in (facts.get("server") or {}).get("beside", ())]
    apart = "The server ran in a process of its own, apart from every silo."
    yield Line("Server", place_of_server(bool(facts.get("merged")), hosts, beside) or apart, blank=hosts > 1)
    wire = str(facts.get("wire") or "")
    yield Line("Encryption, authentication", wire or ("nothing left the process" if hosts == 1 else "not told"))


def retention(told: Disclosed, keep: str) -> Iterator[Line]:
    """Yield what is still kept of single nodes, and until when."""
    if told.planned:
        text = "Rows as they leave, and checkpoints, lie in every party's run folder until isthmus forget deletes them."
    elif told.kept:
        files = "; ".join(f"{name} ({what})" for name, what in told.kept.items())
        text = f"This run folder keeps of single nodes: {files}. isthmus forget deletes them."
    elif told.forgotten:
        text = f"What this run folder had kept of single nodes was deleted ({told.forgotten})."
    else:
        text = "This run folder keeps nothing of single nodes."
    yield Line("Kept", f"{text} What others received lies with them.")
    yield Line("To be deleted by", keep, blank=not keep)


def unknown_before(told: Disclosed) -> Iterator[str]:
    """Yield what nobody can know before a run; nothing of one that has ended."""
    if not told.planned:
        return
    yield "Who runs the server, on which machine, and how the wire between parties is secured."
    yield "What attacks get: an audit replays the run after its end (isthmus audit)."
    if told.estimated:
        names = ", ".join(WORDS[kind].name for kind in WORDS if kind in told.estimated)
        yield f"Exact amounts of {names} (marked ~), which depend on what is drawn; all other bytes are exact."
    for of, why in told.why_unknown.items():
        name = "everything that leaves" if of == EVERYTHING else WORDS[Kind(of)].name if of in KINDS else of
        yield f"The epsilon of {name}: {why}."
    yield (
        "Whether the parties run on machines of their own; then each silo also tells the server its list of messages "
        "(counts, no contents) at the end."
    )
