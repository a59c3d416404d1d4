"""The settings that all hosts of a run must have in common, and those that each host chooses for itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isthmus.core.version import VERSION
from isthmus.data.members import is_parts, member_names
from isthmus.runs.config import RunConfig, flat

# Settings that may differ from host to host: where and how fast it computes, where its parts lie, and where its noise
# comes from (the report names the hosts whose noise follows from the seed).
OF_HOST = (
    "data.folder",
    "system.device",
    "system.threads",
    "system.kernels",
    "system.timeout",
    "system.log",
    "system.track",
    "link.mbps",
    "link.latency_ms",
    "protect.secrets",
)


def common_settings(config: RunConfig, resume: bool, also: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The settings that must be equal on all hosts, by dotted key; hosts compare them before anything crosses.

    Parts may lie in folders of different names, but list the same silos in the same order. ``also``: what else parties
    must have in common, such as a summary of the rules that they agreed on.
    """
    settings = {key: value for key, value in flat(config.as_dict()).items() if key not in OF_HOST}
    if is_parts(config.data.name):
        settings["data.name"] = "parts of " + ", ".join(member_names(Path(config.data.name)))
    return {**settings, "version of isthmus": VERSION, "--resume": resume, **(also or {})}
