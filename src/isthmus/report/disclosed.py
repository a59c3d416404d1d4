"""What a disclosure sheet is made of: the facts of a run that has ended, or the estimates of a plan."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isthmus.audit.findings import Audit, read_audit
from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.protect.accounting.guarantee import Guarantee
from isthmus.runs.circumstances import Circumstance, Circumstances
from isthmus.runs.folder import FORGOTTEN, RunFolder
from isthmus.runs.forgetting import ROWS
from isthmus.runs.passages import Passage, circumstances_of, passages_of
from isthmus.runs.summary import guarantees, is_merged, members, of_party, read_flows

PLANNED = "disclosure"  # the key of a plan's JSON that holds all of this
_LEDGER, _CONFIG = "ledger.parquet", "config.toml"


@dataclass(frozen=True)
class Disclosed:
    """The evidence of a sheet; where it is ``planned``, amounts and epsilons are estimates.

    ``facts`` and ``config`` are as ``metrics.json`` and ``config.toml`` have them. ``why_unknown``: by what a guarantee
    would be of, why there is none before the run. ``hashes``: SHA-256 by file. ``kept``: files of the run that hold
    rows of single nodes, and what these are; ``forgotten``: when they were deleted.
    """

    planned: bool
    facts: Mapping[str, Any]
    config: Mapping[str, Any]
    passages: tuple[Passage, ...]
    guarantees: tuple[Guarantee, ...]
    happened: Circumstances
    hashes: Mapping[str, str]
    why_unknown: Mapping[str, str] = field(default_factory=dict)
    estimated: frozenset[str] = frozenset()  # kinds whose amounts were extrapolated
    audit: Audit | None = None
    kept: Mapping[str, str] = field(default_factory=dict)
    forgotten: str = ""
    party: str = ""
    seeds: int = 1


def disclosed_of_run(folder: RunFolder) -> Disclosed:
    """The evidence in the folder of a run, or of one party of it."""
    parts = members(folder)
    merged = is_merged(folder)
    passages = () if merged else tuple(passages_of(read_flows(folder)))
    files = [folder.path / _CONFIG, *(part.path / _LEDGER for part in parts)]
    kept = {path.name: what for part in parts for name, what in ROWS.items() for path in sorted(part.path.glob(name))}
    return Disclosed(
        planned=False,
        facts={**parts[0].metrics, **folder.metrics},
        config=folder.config,
        passages=passages,
        guarantees=tuple(guarantees(folder)),
        happened=frozenset() if merged else circumstances_of(folder),
        hashes={str(path.relative_to(folder.path)): sha256(path.read_bytes()) for path in files},
        audit=read_audit(folder),
        kept=kept,
        forgotten=_forgotten(folder),
        party=of_party(folder),
        seeds=len(parts),
    )


def _forgotten(folder: RunFolder) -> str:
    """When the rows of a run were deleted; empty where they were not."""
    path = folder.path / FORGOTTEN
    if not path.is_file():
        return ""
    try:
        return str(json.loads(path.read_text())["when"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise IsthmusError(f"'{path}' is damaged ({error}); delete what is left with: isthmus forget.") from error


def sha256(content: bytes) -> str:
    """The SHA-256 of some bytes, as hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def disclosed_of_plan(plan: Mapping[str, Any], source: str) -> Disclosed:
    """The evidence in a plan, as ``isthmus plan --json`` prints it; ``source`` is where it comes from, for errors."""
    if PLANNED not in plan:
        raise IsthmusError(f"'{source}' is no plan of this version; write one with: isthmus plan ... --json > {source}")
    try:
        told = plan[PLANNED]
        return Disclosed(
            planned=True,
            facts=told["facts"],
            config=tomllib.loads(told["config"]),
            passages=tuple(_passage(each) for each in told["passages"]),
            guarantees=tuple(map(Guarantee.from_dict, told["privacy"])),
            happened=frozenset(map(Circumstance, told["happened"])),
            hashes={_CONFIG: sha256(told["config"].encode())},
            why_unknown=dict(told["why_unknown"]),
            estimated=frozenset(plan["extrapolated"]),
            seeds=int(plan.get("seeds", 1)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise IsthmusError(f"'{source}' is a damaged plan ({error}); write it anew with: isthmus plan") from error


def _passage(told: Mapping[str, Any]) -> Passage:
    """One passage of a plan's JSON, checked."""
    senders, receivers = (tuple(map(str, told[end])) for end in ("senders", "receivers"))
    messages, rows, size = (int(told[name]) for name in ("messages", "rows", "bytes"))
    how = (Kind(told["kind"]).value, str(told["direction"]), str(told["event"]))
    return Passage(*how, senders, receivers, messages, rows, size)


def read_plan(path: Path) -> Disclosed:
    """The evidence in a file that ``isthmus plan --json`` has printed."""
    try:
        plan = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise IsthmusError(f"'{path}' cannot be read as a plan ({error}); isthmus plan ... --json > FILE.") from error
    if not isinstance(plan, dict):
        raise IsthmusError(f"'{path}' is no plan; write one with: isthmus plan ... --json > {path}")
    return disclosed_of_plan(plan, str(path))
