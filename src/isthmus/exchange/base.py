"""What crosses the boundary during a forward pass, and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

from isthmus.errors import unknown
from isthmus.graph.features import Features
from isthmus.nn.monoid import State
from isthmus.sample.batches import Batch
from isthmus.sample.neighbours import Sample

if TYPE_CHECKING:
    from isthmus.state import Run

VIEWS = ("drop", "placeholder")


@dataclass(frozen=True)
class Beyond:
    """What a layer gets from beyond the boundary: source rows with the halo filled, or partial aggregates to merge."""

    rows: Features
    partial: State | None = None


@dataclass
class Exchange:
    """The nothing of this axis: no row crosses.

    ``halo`` says what stands in for far ends: ``drop`` leaves cross edges out; ``placeholder`` keeps them, the far end
    starts from the mean of the silo's own features and is computed from the edges that the silo knows.
    """

    halo: str = "drop"
    state: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)  # checkpointed

    def __post_init__(self) -> None:
        if self.halo not in VIEWS:
            raise unknown("exchange.halo", self.halo, VIEWS)

    @property
    def view(self) -> str:
        """Which rows and edges a silo computes on; see :func:`isthmus.graph.stack.build_stack`."""
        return self.halo

    def begin(self, run: Run) -> None:
        """Before the first step."""

    def sample(self, run: Run, roots: Tensor, step: int, purpose: str) -> Sample:
        """The neighbourhood of the seeds; here each silo expands what it knows by itself."""
        return run.sampler.sample(roots, step, purpose)

    def beyond(self, layer: int, h: Features, batch: Batch, run: Run) -> Beyond:
        """Before layer ``layer`` reads its source rows ``h``."""
        return Beyond(h)

    def settle(self, layer: int, pre: Tensor, batch: Batch, run: Run) -> Tensor:
        """After the layer, before normalisation and activation (moving averages live here)."""
        return pre

    def round_end(self, run: Run) -> None:
        """After a round of local training, before parameters are synchronised."""
