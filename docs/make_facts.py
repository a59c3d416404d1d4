"""``python docs/make_facts.py``: write docs/method_facts.json, what every method of the catalogue does when tried.

Each is trained for a few steps on 30 nodes between three silos. What it refuses is taken from its own errors, and what
crosses from its ledger; pages are made of this file by ``docs/make_methods.py`` and ``docs/make_choosing.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

import isthmus
from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import FINAL, Purpose
from isthmus.graph.cut import split_graph
from isthmus.graph.silo import Silo
from isthmus.launch.host import prepare
from isthmus.methods import catalogue
from isthmus.runs.config import resolve
from isthmus.runs.summary import Flow
from isthmus.testing.runs import small_graph

FILE = Path(__file__).parent / "method_facts.json"
STEPS = 18  # llcg's first round has 16
MODELS = {"fedgcn": "gcn", "local-mlp": "mlp"}  # of methods that go with one model, though they prescribe none
QUESTIONS: dict[str, dict[str, Any]] = {  # the settings that ask a method whether it can do something
    "node labels": {},
    "edge labels": {},
    "directed models": {"model.directed": True},
    "sampled batches": {"train.batch": 3, "train.fanout": [2]},
    "unknown cross edges": {"data.cross": "unknown"},
    "parties that come and go": {"federation.absent": "stale"},
}
WHEN = {
    Purpose.SETUP: "before training",
    Purpose.HANDOVER: "between phases",
    Purpose.ORDER: "every epoch",
    Purpose.LOSSES: "every epoch",
    Purpose.STEP: "every step",
    Purpose.CROSSING: "at steps that cross",
    Purpose.MIXED: "at steps that cross",
    Purpose.CORRECTION: "when the server corrects",
    Purpose.ROUND: "every round",
    Purpose.VALIDATION: "at validation",
    **dict.fromkeys(FINAL, "at the end"),
}


def facts() -> dict[str, dict[str, Any]]:
    """For every method: what it answers to each question, and what crosses, by full and by sampled batches."""
    torch.set_num_threads(1)
    return {name: of_method(name) for name in catalogue.names()}


def of_method(name: str) -> dict[str, Any]:
    """The facts about one method."""
    answers, flows = {}, {}
    for question, asked in QUESTIONS.items():
        try:
            result = tried(name, asked, on_edges=question == "edge labels")
        except IsthmusError as refusal:
            answers[question] = str(refusal)
        else:
            answers[question] = "yes"
            flows[question] = crossed(result)
    more = [flow for flow in flows.get("sampled batches", []) if flow not in flows["node labels"]]
    return {"answers": {**answers, "several hosts": on_hosts(name)}, "flows": flows["node labels"], "sampled": more}


def tried(name: str, asked: dict[str, Any], on_edges: bool) -> Any:
    """A few steps of a method; where nothing is asked, enough of them for a whole round of every method."""
    method = catalogue.get(name)
    phases = {f"phase.{phase.name}.epochs": 1 for phase in method.phases[:-1]}
    long = {"train.epochs": STEPS, "train.evaluate_every": STEPS} if not asked and not on_edges else {"train.steps": 2}
    settings = {**long, "model.hidden": 8, **phases, **asked}
    return isthmus.fit(silos(on_edges), name, model_of(name), settings=settings)


def silos(on_edges: bool) -> list[Silo]:
    """Three silos of 30 nodes, with labels on nodes or on edges."""
    return split_graph(small_graph(30, 140, edge_task=on_edges), torch.arange(30) % 3, 3)


def model_of(name: str) -> str:
    """The model that a method is tried with."""
    return catalogue.get(name).model or MODELS.get(name, "sage")


def crossed(result: Any) -> list[list[str]]:
    """What crossed: [when, direction, kind, protection], each once, in the order in which it first did."""
    ledger = result.training.wire.ledger
    lines = ledger.table().to_pylist()
    found = []
    for line in lines:
        flow = Flow(line["sender"], line["receiver"], line["kind"], line["event"], 0, 0, 0, 0)
        found.append([WHEN[Purpose(line["purpose"])], flow.direction, flow.kind, flow.event])
    return [list(each) for each in dict.fromkeys(map(tuple, found))]


def on_hosts(name: str) -> str:
    """Whether a method runs on several hosts, or why not."""
    try:
        prepare(
            resolve({"method": name, "data": {"silos": 3}, "model": {"name": model_of(name)}, "system": {"hosts": 3}})
        )
    except IsthmusError as refusal:
        return str(refusal)
    return "yes"


if __name__ == "__main__":
    FILE.write_text(json.dumps(facts(), indent=1) + "\n")
