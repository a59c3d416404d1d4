"""What parameters were trained with, counted against budgets of labels and of edges: bounded steps, draws of lists."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from isthmus.protect.accounting.edge_lists import list_figures, list_guarantees
from isthmus.protect.drawn_lists import DRAWS, SEEN, WHOLE, DrawnLists
from isthmus.protect.events import GaussianNoise, NoisyGradients
from isthmus.protect.learnt_seeds import TIMES, LearntSeeds


@dataclass
class Trained:
    """The books of one host on steps and draws, as they grow from the beginning of a stretch of a run.

    ``by_draws``: every list of neighbours that training reads is drawn from, and the draws are counted.
    """

    learnt: LearntSeeds
    drawn: DrawnLists
    by_draws: bool
    places: dict[int, slice]  # rows of each silo in both books
    _steps: Tensor | None = None
    _draws: dict[str, Tensor] = field(default_factory=dict)
    _known: dict[int, tuple[Any, tuple[float, float], int]] = field(default_factory=dict)

    def begin(self) -> None:
        """Count from here on: what is in the books already was booked by an earlier stretch."""
        self._steps = self.learnt.state[TIMES].clone() if self.learnt.state else None
        self._draws = {name: table.clone() for name, table in self.drawn.state.items()}
        self._known = {}

    def steps(self, silo: int) -> int:
        """In how many steps the label of this silo was that was in most of them."""
        if not self.learnt.state:
            return 0
        times = self.learnt.state[TIMES]
        times = (times if self._steps is None else times - self._steps)[self.places[silo]]
        return int(times.max()) if len(times) else 0

    def pair(self, silo: int) -> tuple[tuple[float, float], int]:
        """(epsilon, delta) of the worst list of a silo, and draws from the list that was drawn from most often."""
        state = self.drawn.state
        mark = sum(int(table.sum()) for name, table in state.items() if name.startswith(DRAWS)), WHOLE in state
        if silo not in self._known or self._known[silo][0] != mark:
            since = DrawnLists()
            since.ptr, since.floor = self.drawn.ptr, self.drawn.floor
            since.state = {name: self._since(name, table) for name, table in state.items() if name != SEEN}
            figures = list_figures(since, self.places[silo])
            held = list_guarantees({"": figures})[0]
            self._known[silo] = mark, (held.epsilon, held.delta), figures.draws
        return self._known[silo][1:]

    def _since(self, name: str, table: Tensor) -> Tensor:
        counted = name.startswith(DRAWS) or name == WHOLE
        return table - self._draws[name] if counted and name in self._draws else table


def noise_of_steps(events: tuple[Any, ...]) -> GaussianNoise | None:
    """Bounded and noisy steps as the noise of one release of a label: it moves the sum of a step by 2 clip at most."""
    step = next((event for event in events if isinstance(event, NoisyGradients)), None)
    if step is None or not step.sigma or step.clip == math.inf:
        return None
    return GaussianNoise(1.0, step.sigma, "label", step.delta, 1)


def no_sums() -> Tensor:
    """Sums of no silo, by which a chain of mechanisms tells what it does at steps."""
    return torch.zeros(0, 1)
