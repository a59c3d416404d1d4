"""What a run is started with on one machine."""

from __future__ import annotations

from dataclasses import dataclass, field

from isthmus.runs.config import RunConfig
from isthmus.runs.folder import RunFolder
from isthmus.train.watcher import Watcher
from isthmus.wire.meeting import MeetingPlace


@dataclass(frozen=True)
class Start:
    """One start of a run: its configuration, which all parties have alike, and what is this party's own.

    ``policy``: the file or the name of the policy of silos that have none in the folder of their part. ``place``: as
    which party, and where it meets the others; None: all silos are on this machine, or meet by rank.
    """

    config: RunConfig
    folder: RunFolder
    resume: bool = False
    watcher: Watcher = field(default_factory=Watcher)
    policy: str = ""
    place: MeetingPlace | None = None
