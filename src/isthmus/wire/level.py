"""The level of devices: parties below a silo, each of which owns one of its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from isthmus.core.kinds import DEVICE, Kind, devices_of
from isthmus.core.parcel import Level, Traffic

# What single nodes say to each other: at the level of devices it goes from device to device, past their silos.
OF_NODES = (Kind.IDS, Kind.EDGES, Kind.PORTS)
# What a silo can only send once its devices have added it up.
SUMMED = (Kind.STATISTICS, Kind.METRICS)


@dataclass(frozen=True)
class DeviceLevel(Level):
    """The level of devices: a silo has a list of its devices, and reads neither their rows nor their edges.

    ``devices``: how many each silo of this host has. Devices are simulated in the process of their silo.
    """

    name: ClassVar[str] = DEVICE
    devices: Mapping[int, int] = field(default_factory=dict)

    def named(self, kind: Kind, traffic: Traffic) -> Traffic:
        """What silos say to each other of single nodes is said by devices."""
        between = (traffic.sender >= 0) & (traffic.receiver >= 0)
        if kind not in OF_NODES or not between.any():
            return traffic
        sender, receiver = (np.where(between, devices_of(end), end) for end in (traffic.sender, traffic.receiver))
        return Traffic(sender, receiver, traffic.rows)

    def below(self, kind: Kind, traffic: Traffic) -> Traffic | None:
        """For sums and scores of silos: one vector of each device on its way to its silo."""
        own = traffic.sender >= 0
        if kind not in SUMMED or not own.any():
            return None
        return self.handed_in(traffic.sender[own], traffic.rows[own])

    def handed_in(self, silos: np.ndarray, rows: np.ndarray) -> Traffic:
        """``rows`` vectors of every device of some silos, on their way to the silo."""
        return Traffic(devices_of(silos), silos, rows * self._sizes(silos))

    def handed_down(self, silos: np.ndarray) -> Traffic:
        """One vector of some silos on its way to each of their devices."""
        return Traffic(silos, devices_of(silos), self._sizes(silos))

    def _sizes(self, silos: np.ndarray) -> np.ndarray:
        return np.array([self.devices[int(silo)] for silo in silos], dtype=np.int64)
