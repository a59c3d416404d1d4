"""In how many DP-SGD steps (bounded, noisy gradients) each training label was: the bookkeeping for its accountant."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from isthmus.core.tensors import renumbered
from isthmus.protect.events import NoisyGradients

TIMES, STEPS, MOST, BOUNDS = "times", "steps", "most", "bounds"


class LearntSeeds:
    """Counts steps by seed, on the host that takes them; ``state`` is checkpointed.

    - ``times`` [rows]: in how many steps the label of a row was; rows are owned and halo rows, silo after silo
    - ``steps`` [my silos]: steps that a silo has taken
    - ``most`` [my silos]: seeds of its largest step
    - ``bounds`` [kinds of steps, 3]: clip, noise in multiples of it and delta of every kind of step that was taken
    """

    def __init__(self) -> None:
        self.ptr: tuple[int, ...] = (0,)
        self.state: dict[str, Tensor] = {}

    def open(self, sizes: Sequence[int]) -> None:
        """Begin an empty book; ``sizes`` are the rows of each of this host's silos, owned and halo."""
        self.ptr, self.state = (0, *torch.tensor(sizes, dtype=torch.int64).cumsum(0).tolist()), {}

    def record(self, ptr: Sequence[int], seeds: Tensor, counts: Tensor, event: NoisyGradients) -> None:
        """Count one step on ``seeds``, rows of a stack whose silos begin at ``ptr``; ``counts`` [my silos] of each."""
        bounds = torch.tensor([[event.clip, event.sigma, event.delta]], dtype=torch.float64)
        if not self.state:
            self.state = {
                TIMES: torch.zeros(self.ptr[-1], dtype=torch.int64),
                STEPS: torch.zeros_like(counts),
                MOST: torch.zeros_like(counts),
                BOUNDS: bounds,
            }
        self.state[TIMES][renumbered(seeds.cpu(), ptr, self.ptr)] += 1
        self.state[STEPS] += counts > 0
        self.state[MOST] = torch.maximum(self.state[MOST], counts)
        self.state[BOUNDS] = torch.cat([self.state[BOUNDS], bounds]).unique(dim=0)

    @property
    def event(self) -> NoisyGradients | None:
        """The weakest bounds of all steps: largest clip, smallest sigma and delta; None before the first step."""
        if not self.state:
            return None
        clip, sigma, delta = self.state[BOUNDS].unbind(1)
        return NoisyGradients(float(clip.max()), float(sigma.min()), float(delta.min()))
