"""What ``isthmus check`` finds: problems, and where there are none, what a run would do."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from isthmus.commands.check.outlook import columns_of, labels_of, rare_class, scaling_of
from isthmus.commands.check.problems import Problem, problems_of
from isthmus.commands.check.reading import CheckRequest, configured, read_all
from isthmus.commands.check.seeds import seeds_by_method


@dataclass(frozen=True)
class Checked:
    """Problems of data, and what a run would do with what could be read."""

    problems: list[Problem]
    target: str = ""
    labels: list[str] = field(default_factory=list)
    rare: str = ""
    silos: list[dict[str, Any]] = field(default_factory=list)
    columns: list[dict[str, Any]] = field(default_factory=list)
    scaling: dict[str, dict[str, str]] = field(default_factory=dict)
    methods: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Everything as JSON."""
        return asdict(self)


def check_command(request: CheckRequest) -> Checked:
    """Read data as a run would, find all problems, and tell what a run would do."""
    read = read_all(request, configured(request))
    problems = problems_of(read.errors)
    if not read.silos:
        return Checked(problems)
    told = read.federation.silos if read.federation is not None else read.silos
    labels = list(told[0].schema.labels)
    each = [labels_of(silo, list(silo.schema.labels)) for silo in told]
    notes = read.federation.notes if read.federation is not None else [n for silo in read.silos for n in silo.notes]
    return Checked(
        problems,
        told[0].schema.target,
        labels,
        rare_class(each, labels),
        each,
        columns_of(read.silos, read.federation),
        scaling_of(read.federation) if read.federation is not None else {},
        seeds_by_method(read.federation) if read.federation is not None and not problems else [],
        list(dict.fromkeys(notes)),
    )
