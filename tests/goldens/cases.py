"""The runs that goldens record: every method of the catalogue on small graphs, in full and sampled, and some more.

Methods that serve whole graphs alone have no sampled run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from isthmus.methods import catalogue
from isthmus.protect.releases import COUNTS
from isthmus.train.result import Result
from isthmus.wire.wire import Wire
from tests.helpers.small import losses, run_method, small_graph

FOLDER = Path(__file__).parent
HOSTS = (1, 3)
SILOS = 3
STEPS = 6
SAMPLED: dict[str, Any] = {"batch": 3, "fanout": (2,)}
NOISE = {f"{what}{kind}": 0.5 for what in ("clip", "sigma") for kind in ("", "_adjoints", "_parameters", "_gradients")}
NOISY = ("ce-fedgnn", "fedgcn", "optimes", "sync-sgd+fwd-bwd-le", "swift-fedgnn", "fedavg")
SHORT: dict[str, dict[str, Any]] = {  # so that more than one round fits into so few steps
    "llcg": {"sync": {"local_steps": 2, "growth": 1.25}},
}
ON_EDGES = ("fedavg", "ce-fedgnn", "sync-sgd+fwd-bwd-le")


def cases() -> dict[str, dict[str, Any]]:
    """The arguments of ``run_method`` by a name that tells them."""
    found: dict[str, dict[str, Any]] = {}
    for method in catalogue.names():
        made = catalogue.get(method)
        model = "gcn" if method == "fedgcn" else made.model or "sage"
        both = {"full": {}} if made.last.exchange.whole_graphs else {"full": {}, "sampled": SAMPLED}
        short = {"phase": {phase.name: {"epochs": 1} for phase in made.phases[:-1]}} if len(made.phases) > 1 else {}
        short = SHORT.get(method, short)
        both = {how: {**more, "options": short} if short else more for how, more in both.items()}
        found |= {f"{method} {how}": {"name": method, "model": model, **more} for how, more in both.items()}
    for method in NOISY:
        protected = {"protect": NOISE, "schedule": {"every": 2}} if method == "swift-fedgnn" else {"protect": NOISE}
        found[f"{method} noisy"] = {**found[f"{method} full"], "options": protected}
    for method in ON_EDGES:
        # Without batch normalisation, which on small batches makes differences of rounding large.
        plain = {"model": "multi-pna", "model_options": {"norm": "none"}, "edge_task": True, **SAMPLED}
        found[f"{method} on edges"] = {"name": method, **plain}
    rounded = {"options": {"protect": {"format": "bfloat16"}}}
    found["sync-sgd+fwd-bwd-le bfloat16"] = {**found["sync-sgd+fwd-bwd-le full"], **rounded}
    return found


def applies(case: dict[str, Any], hosts: int) -> bool:
    """Whether a case makes sense on so many hosts: one party alone has one host."""
    return hosts == 1 or case["name"] != "centralised"


def outcome(case: dict[str, Any], wire: Wire | None = None) -> dict[str, Any]:
    """Losses of every step, bytes by kind, and how often each row left by kind and layer; on this host."""
    options = dict(case)
    graph = small_graph(30, 140, edge_task=options.pop("edge_task", False))
    owner = torch.arange(30) % SILOS
    result = run_method(options.pop("name"), graph, owner, SILOS, wire=wire, steps=STEPS, **options)
    return {"losses": losses(result), "bytes": dict(sorted(result.bytes.items())), "releases": _releases(result)}


def _releases(result: Result) -> dict[str, list[int]]:
    state = result.training.wire.releases.state
    heads = [name for name in sorted(state) if name.startswith(f"{COUNTS}/")]
    return {name.removeprefix(f"{COUNTS}/"): state[name].tolist() for name in heads}


def on_one_host() -> dict[str, dict[str, Any]]:
    """The outcome of every case with all silos in this process."""
    return {name: outcome(case) for name, case in cases().items()}


def outcomes_over(wire: Wire, among: str = "") -> dict[str, dict[str, Any]]:
    """The outcome of every case whose name contains ``among``, on one of several hosts."""
    found = {}
    for name, case in cases().items():
        if applies(case, wire.hosts) and among in name:
            wire.ledger.__init__()  # type: ignore[misc]
            found[name] = outcome(case, wire)
    return found


def full_over(wire: Wire) -> dict[str, dict[str, Any]]:
    """The outcomes of full batches on one of several hosts."""
    return outcomes_over(wire, " full")


def joined(each: list[dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """What hosts found, as one: losses are known to all, bytes add up, rows lie in the order of hosts."""
    return {name: _joined([host[name] for host in each]) for name in each[0]}


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    kinds = sorted({kind for part in parts for kind in part["bytes"]})
    rows = sorted({row for part in parts for row in part["releases"]})
    return {
        "losses": parts[0]["losses"],
        "bytes": {kind: sum(part["bytes"].get(kind, 0) for part in parts) for kind in kinds},
        "releases": {row: [n for part in parts for n in part["releases"].get(row, [])] for row in rows},
    }


def path_of(hosts: int) -> Path:
    """The file of runs on so many hosts."""
    return FOLDER / f"hosts-{hosts}.json"


def read(hosts: int) -> dict[str, dict[str, Any]]:
    """The recorded outcomes."""
    recorded: dict[str, dict[str, Any]] = json.loads(path_of(hosts).read_text())
    return recorded
