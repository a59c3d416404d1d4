"""The Gaussian mechanism: each payload is clipped and gets normal noise at its sender; off by default."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.kinds import Kind
from isthmus.core.parcel import Origin, Parcel
from isthmus.protect.base import Mechanism
from isthmus.protect.events import Clipped, Event, GaussianNoise
from isthmus.protect.secrets import Noise

SECRETS = ("", "seed", "random")


@dataclass(frozen=True)
class Gaussian(Mechanism):
    r"""x <- x min(1, clip / ||x||) + N(0, sigma^2 I), for each row or whole payload x that leaves.

    ``clip`` and ``sigma`` are those of released rows of nodes (embeddings, sums of features and of rows), the others
    those of adjoints, of weights (W) and of gradients (G). With clip = infinity and sigma = 0, the default, nothing is
    done and nothing is claimed. Noise is drawn once for a released row: all receivers get the same. A row that is not
    finite leaves as noise alone. ``delta`` and ``neighbours`` are those of the accountant.

    ``sigma_parameters`` and ``sigma_gradients`` are noise of each silo, added before silos are averaged: the mean of N
    silos that count alike has noise of deviation sigma / sqrt(N). CE-FedGNN's paper adds sigma to the mean itself; for
    as much noise there, take sigma sqrt(N) here.

    ``secrets``: noise comes from the ``seed`` (a simulation), or from ``random`` secrets of each silo; empty: the seed
    where all silos live in one process, else secrets. Secrets of silos are never written down.
    """

    name: ClassVar[str] = "gaussian"
    clip: float = math.inf
    sigma: float = 0.0
    clip_adjoints: float = math.inf
    sigma_adjoints: float = 0.0
    clip_parameters: float = math.inf
    sigma_parameters: float = 0.0
    clip_gradients: float = math.inf
    sigma_gradients: float = 0.0
    delta: float = 1e-4
    neighbours: int = 50
    secrets: str = ""
    _suffix: ClassVar[dict[Kind, str]] = {
        Kind.EMBEDDINGS: "",
        Kind.AGGREGATES: "",
        Kind.PARTIALS: "",
        Kind.ADJOINTS: "_adjoints",
        Kind.PARAMETERS: "_parameters",
        Kind.GRADIENTS: "_gradients",
    }
    # Whose presence the noise of one row or payload hides: a row that the model computed, a node's features, or all
    # that a silo's model has seen.
    _hidden: ClassVar[dict[Kind, str]] = {Kind.EMBEDDINGS: "row", Kind.PARTIALS: "row", Kind.AGGREGATES: "node"}

    def __post_init__(self) -> None:
        for suffix in dict.fromkeys(self._suffix.values()):
            clip, sigma = getattr(self, f"clip{suffix}"), getattr(self, f"sigma{suffix}")
            if not clip > 0:
                raise IsthmusError(f"protect.clip{suffix} is {clip}; it must be positive (inf: no clipping).")
            if not 0 <= sigma < math.inf:
                raise IsthmusError(f"protect.sigma{suffix} is {sigma}; it must be a finite number, 0 or more.")
        if not 0 < self.delta < 1:
            raise IsthmusError(f"protect.delta is {self.delta}; it must lie between 0 and 1, both excluded.")
        if self.neighbours < 1:
            raise IsthmusError(f"protect.neighbours is {self.neighbours}; it must be at least 1.")
        if self.secrets not in SECRETS:
            raise unknown("protect.secrets", self.secrets, [choice for choice in SECRETS if choice])

    def bounds(self, kind: Kind) -> tuple[float, float]:
        """Clip and sigma of a kind of message."""
        suffix = self._suffix.get(kind)
        if suffix is None:
            return math.inf, 0.0
        return float(getattr(self, f"clip{suffix}")), float(getattr(self, f"sigma{suffix}"))

    @property
    def noisy(self) -> bool:
        """Whether any kind leaves with noise."""
        return any(self.bounds(kind)[1] > 0 for kind in self._suffix)

    def separates(self, kind: Kind) -> bool:
        """Whether payloads of this kind are clipped or get noise: a sum over silos cannot be clipped silo by silo."""
        return self.bounds(kind) != (math.inf, 0.0)

    def seal(self, parcel: Parcel, noise: Noise) -> tuple[Tensor, Event | None, Tensor | None]:
        """Clip each row and add noise to it; rows that the server computed from noisy ones are not changed again."""
        clip, sigma = self.bounds(parcel.kind)
        if not self.separates(parcel.kind) or parcel.derived:
            return parcel.rows, None, None
        event = self._event(parcel.kind, clip, sigma)
        if parcel.by_server:
            return parcel.rows, event, None
        if not sigma:
            return clipped(parcel.rows, clip), event, None
        plain = clipped(finite(parcel.rows), clip)
        return plain + sigma * drawn(plain, parcel.origin, noise, noise.normal), event, plain

    def _event(self, kind: Kind, clip: float, sigma: float) -> Event:
        """The event of sealing a payload of this kind; without noise it hides nobody."""
        if not sigma:
            return Clipped(clip)
        return GaussianNoise(clip, sigma, self._hidden.get(kind, "silo"), self.delta, self.neighbours)


def clipped(rows: Tensor, clip: float) -> Tensor:
    """Rows x [n, ...], each scaled to a norm of at most ``clip``: x min(1, clip / ||x||)."""
    if clip == math.inf or not rows.numel():
        return rows
    norm = torch.linalg.vector_norm(rows.flatten(1), dim=1)
    factor: Tensor = (clip / norm.clamp(min=torch.finfo(rows.dtype).tiny)).clamp(max=1)
    return rows * factor.reshape(-1, *[1] * (rows.dim() - 1))


def finite(rows: Tensor) -> Tensor:
    """Rows [n, ...] with zeros for every row that holds NaN or infinity, which no clipping would bound."""
    if not rows.numel():
        return rows
    kept = rows.flatten(1).isfinite().all(1)
    return torch.where(kept.reshape(-1, *[1] * (rows.dim() - 1)), rows, torch.zeros_like(rows))


def drawn(rows: Tensor, origin: Origin, noise: Noise, draw: Callable[[int, int, int], Tensor]) -> Tensor:
    """Random numbers for rows [n, ...]; a row that is listed several times gets equal numbers.

    ``draw(silo, rows, width)`` is the kind of ``noise``, such as ``noise.normal``.
    """
    count = int(origin.row.max()) + 1 if len(origin.row) else 1
    each, place = (origin.silo.to(rows.device) * count + origin.row.to(rows.device)).unique(return_inverse=True)
    silos, sizes = (each // count).unique_consecutive(return_counts=True)
    width = rows.shape[1:].numel()
    parts = [draw(s, n, width) for s, n in zip(silos.tolist(), sizes.tolist(), strict=True)]
    noise.draws += 1  # on every host alike, also on one that has nothing to send
    numbers = torch.cat([*parts, torch.zeros(0, width, dtype=torch.float64)]).to(rows)
    return numbers[place].reshape(rows.shape)
