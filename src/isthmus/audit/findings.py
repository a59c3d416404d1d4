"""The findings of an audit as ``audit.json``, as tables and as text."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from isthmus.audit.measure import NEAR, Finding, TargetsDone
from isthmus.core.errors import IsthmusError
from isthmus.runs.folder import RunFolder
from isthmus.runs.summary import members

NOTHING = "nothing to attack"
UNMEASURED = "not measured: all nodes have the same features"
HEAD = ("Rows", "Noise σ", "Error", "Guess", "Error / guess", "Neighbours", "Targets", "Releases")
ATTACK_NOTE = (
    "Attack error: the squared error of features inferred from released rows, as a share of a guess's without them "
    "(the lower, the more was given away); –: not audited."
)
NOTE = (
    "Error: mean squared error of the inferred features. Guess: the same without the rows, from other silos' mean. "
    f"Neighbours: mean squared distance to the nearest {100 * NEAR:g} % of all nodes. Releases: how often a target's "
    "row left, on average; the attack has the last one (who keeps all of them can average noise away)."
)


@dataclass(frozen=True)
class Audit:
    """The findings of attribute inference against the rows of a run; there are none where no row was released."""

    findings: tuple[Finding, ...] = ()
    clip: float = math.inf
    sigma: float = 0.0
    seed: int = 0

    @property
    def error(self) -> float | None:
        """The smallest error of an attack on the rows as they left, as a share of a guess's error; None if unknown."""
        known = [f.ratio for f in self.findings if not f.what_if and not math.isnan(f.ratio)]
        return min(known, default=None)

    def as_dict(self) -> dict[str, Any]:
        """The content of ``audit.json``."""
        findings = [asdict(finding) | {"ratio": _json(finding.ratio)} for finding in self.findings]
        about = {"sigma": self.sigma, "clip": _json(self.clip), "seed": self.seed}
        return {"attack": "attribute inference", "attack_error": self.error, **about, "findings": findings}


def _json(value: float) -> float | str | None:
    """A number as JSON can hold it: None for NaN, ``"inf"`` for infinity."""
    return None if math.isnan(value) else "inf" if value == math.inf else value


def keep(folder: RunFolder, audit: Audit) -> Audit:
    """Write ``audit.json`` into a run folder; returns the audit."""
    folder.write_json("audit.json", audit.as_dict())
    return audit


def read_audit(folder: RunFolder) -> Audit | None:
    """The audit of a run, or of the first of its seeds; None where it was not audited."""
    path = members(folder)[0].path / "audit.json"
    if not path.is_file():
        return None
    try:
        told = json.loads(path.read_text())
        findings = [{k: v for k, v in each.items() if k != "ratio"} for each in told["findings"]]
        return Audit(tuple(Finding(**each) for each in findings), float(told["clip"]), told["sigma"], told["seed"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise IsthmusError(f"'{path}' is damaged ({error}); write it anew with: isthmus audit {folder.path}") from error


def attack_error(folder: RunFolder) -> float | str | None:
    """The attack's error as a share of a guess's; words where nothing was measured; None where not audited."""
    audit = read_audit(folder)
    if audit is None or audit.error is not None:
        return None if audit is None else audit.error
    return UNMEASURED if audit.findings else NOTHING


def attack_text(value: float | str | None) -> str:
    """An attack error as text: a percentage, the words themselves, or a dash."""
    if value is None or isinstance(value, str):
        return value or "–"
    return "–" if math.isnan(value) else "< 0.1 %" if value < 0.001 else f"{100 * value:.1f} %"


def lines(audit: Audit) -> list[list[str]]:
    """The findings as rows of a table with the columns ``HEAD``."""
    return [
        [
            "input" if f.layer == 0 else f"layer {f.layer}",
            f"{f.sigma:g}, what if" if f.what_if else f"{f.sigma:g}",
            *(f"{value:.3g}" for value in (f.error, f.guess)),
            attack_text(f.ratio),
            f"{f.neighbours:.3g}",
            str(f.targets),
            f"{f.releases:.0f}",
        ]
        for f in audit.findings
    ]


def audit_table(audit: Audit) -> Table:
    """The findings for the terminal."""
    out = Table(title="Attribute inference against released rows", title_justify="left", caption=NOTE)
    for title in HEAD:
        out.add_column(title, justify="left" if title == "Rows" else "right")
    for line in lines(audit):
        out.add_row(*line)
    return out


@contextmanager
def watched_audit() -> Iterator[Callable[[int], tuple[TargetsDone, Callable[[Finding], None]]]]:
    """Yield the ``watch`` of an audit: a bar on a terminal, a line for each finding where stderr is piped."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda total: (lambda done: None, _line)
        return
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("audit", total=None)

        def begin(total: int) -> tuple[TargetsDone, Callable[[Finding], None]]:
            progress.update(task, total=total)
            return lambda done: progress.advance(task, done), lambda finding: None

        yield begin


def _line(f: Finding) -> None:
    """Print one finding on stderr."""
    where = f"layer {f.layer}, sigma {f.sigma:g}{' (what if)' if f.what_if else ''}"
    print(f"audit: {where}: {attack_text(f.ratio)} of the guess's error", file=sys.stderr, flush=True)
