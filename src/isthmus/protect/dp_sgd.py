"""DP-SGD: each seed's gradient is clipped, and their sum gets noise, before a silo takes a step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError, unknown
from isthmus.protect.base import Mechanism
from isthmus.protect.events import Event, NoisyGradients
from isthmus.protect.gaussian import SECRETS, clipped
from isthmus.protect.secrets import Noise


@dataclass(frozen=True)
class DPSGD(Mechanism):
    r"""g <- (sum over seeds i of g_i min(1, C / ||g_i||) + N(0, (sigma C)^2 I)) / seeds,  at every step of every silo.

    g_i is the gradient of the loss of seed i with respect to all parameters that learn, C is ``seed_clip`` and sigma is
    ``seed_sigma`` (Abadi et al. 2016). Parameters that leave are not changed again: whatever they tell of a training
    label has passed these steps. The accountant states epsilon for ``seed_delta``. ``seed_secrets`` says where noise
    comes from: the run's ``seed`` or ``random`` secrets (empty: the seed in a simulation, else secrets).

    Without clip and noise it computes what ordinary training does, seed by seed.
    """

    name: ClassVar[str] = "dp-sgd"
    bounds_seeds: ClassVar[bool] = True
    seed_clip: float = math.inf
    seed_sigma: float = 0.0
    seed_delta: float = 1e-4
    seed_secrets: str = ""

    def __post_init__(self) -> None:
        if not self.seed_clip > 0:
            raise IsthmusError(f"protect.seed_clip is {self.seed_clip}; it must be positive (inf: no clipping).")
        if not 0 <= self.seed_sigma < math.inf:
            raise IsthmusError(f"protect.seed_sigma is {self.seed_sigma}; it must be a finite number, 0 or more.")
        if self.seed_sigma and self.seed_clip == math.inf:
            raise IsthmusError(
                f"protect.seed_sigma is {self.seed_sigma}, a multiple of protect.seed_clip, which is infinite; give "
                "both."
            )
        if not 0 < self.seed_delta < 1:
            raise IsthmusError(f"protect.seed_delta is {self.seed_delta}; it must lie between 0 and 1, both excluded.")

        if self.seed_secrets not in SECRETS:
            raise unknown("protect.seed_secrets", self.seed_secrets, [choice for choice in SECRETS if choice])

    @property
    def secrets(self) -> str:
        """Where noise comes from: ``seed``, ``random``, or empty for the default of the wire."""
        return self.seed_secrets

    @property
    def noisy(self) -> bool:
        """Whether steps get noise."""
        return self.seed_sigma > 0

    def bound_each(self, gradients: Tensor) -> Tensor:
        """Gradients of single seeds [n, numbers], each brought to a norm of at most C."""
        return clipped(gradients, self.seed_clip)

    def perturb(self, sums: Tensor, silos: Sequence[int], noise: Noise) -> tuple[Tensor, Event | None]:
        """Sums of bounded gradients [n, numbers], one for each of ``silos``, with noise from that silo's secret."""
        event = NoisyGradients(self.seed_clip, self.seed_sigma, self.seed_delta)
        if not self.noisy:
            return sums, event
        drawn = [noise.normal(silo, 1, sums.shape[1]) for silo in silos]
        noise.draws += 1  # on every host alike, also on one whose silos have no seeds
        numbers = torch.cat([*drawn, torch.zeros(0, sums.shape[1], dtype=torch.float64)]).to(sums)
        return sums + self.seed_sigma * self.seed_clip * numbers, event
