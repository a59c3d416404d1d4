"""Contracts: tests that every part of a kind must pass. Subclass one in the tests of a part of your own.

.. code-block:: python

    from isthmus.testing import SyncContract

    class TestMine(SyncContract):
        part = Mine  # or staticmethod(lambda: Mine(option=3))

Plain pytest then runs every truth of the contract against it. ``isthmus.testing.runs`` has the tiny graphs and short
runs that contracts train on.
"""

from isthmus.testing.contract import PartContract
from isthmus.testing.exchanges import ExchangeContract
from isthmus.testing.layers import (
    EDGE,
    INPUTS,
    OUTPUTS,
    LayerContract,
    close,
    join,
    permute,
    random_block,
    some_edges,
    some_targets,
    turned,
)
from isthmus.testing.mechanisms import ProtectContract
from isthmus.testing.objectives import ObjectiveContract
from isthmus.testing.schedules import ScheduleContract
from isthmus.testing.syncs import SyncContract
from isthmus.testing.wires import WireContract

__all__ = [
    "EDGE", "INPUTS", "OUTPUTS", "ExchangeContract", "LayerContract", "ObjectiveContract", "PartContract",
    "ProtectContract", "ScheduleContract", "SyncContract", "WireContract", "close", "join", "permute", "random_block",
    "some_edges", "some_targets", "turned",
]  # fmt: skip
