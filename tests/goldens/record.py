"""``python -m tests.goldens.record``: run every case, and write what came out."""

from __future__ import annotations

import json
from typing import Any

from tests.goldens.cases import HOSTS, SILOS, joined, on_one_host, outcomes_over, path_of
from tests.helpers.hosts import on_hosts, on_wire


def measured(hosts: int) -> dict[str, dict[str, Any]]:
    """The outcomes of this checkout."""
    return on_one_host() if hosts == 1 else joined(on_hosts(hosts, on_wire, SILOS, outcomes_over))


def main() -> None:
    """Write one file for each number of hosts."""
    for hosts in HOSTS:
        lines = [f" {json.dumps(name)}: {_line(found)}" for name, found in measured(hosts).items()]
        path_of(hosts).write_text("{\n" + ",\n".join(lines) + "\n}\n")
        print(f"{path_of(hosts)}: {len(lines)} cases")


def _line(found: dict[str, Any]) -> str:
    """A case on one line, its losses to 15 digits."""
    return json.dumps({**found, "losses": [float(f"{loss:.15g}") for loss in found["losses"]]})


if __name__ == "__main__":
    main()
