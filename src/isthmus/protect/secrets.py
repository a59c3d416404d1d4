"""Noise that nobody else can subtract again: from a silo's own secret, through a cryptographic generator."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError

_SECRET = 32  # bytes


class Noise:
    """Standard normal numbers of each silo: SHAKE-256 of (secret, how many draws there were before), then Box-Muller.

    A shared seed would let every silo subtract the noise of the others; hence the secrets. ``draws`` is checkpointed,
    so that a simulation, whose secrets follow from its seed, resumes to the same curve.
    """

    def __init__(self, secrets: Mapping[int, bytes] | None = None) -> None:
        self.secrets = dict(secrets or {})
        self.draws = 0

    def normal(self, silo: int, rows: int, width: int) -> Tensor:
        """One silo's numbers of this draw: float64, [rows, width]."""
        if silo not in self.secrets:
            raise IsthmusError(f"Silo {silo} has no secret to draw noise from; give the wire a Noise with one.")
        count = rows * width
        name = b"isthmus noise" + self.secrets[silo] + self.draws.to_bytes(8, "big")
        words = np.frombuffer(hashlib.shake_256(name).digest(16 * -(-count // 2)), dtype="<u8").reshape(2, -1)
        radius, angle = (words >> np.uint64(11)) * 2.0**-53  # 53 bits each: [0, 1)
        length = np.sqrt(-2 * np.log1p(-radius))
        pairs = np.stack([length * np.cos(2 * math.pi * angle), length * np.sin(2 * math.pi * angle)], 1)
        return torch.from_numpy(pairs.reshape(-1)[:count]).reshape(rows, width)


def secrets_from_seed(seed: int, silos: Sequence[int]) -> dict[int, bytes]:
    """Secrets for a simulation: whoever knows the run's seed knows them."""
    return {silo: hashlib.blake2b(f"{seed}/{silo}".encode(), digest_size=_SECRET).digest() for silo in silos}


def secrets_from_system(silos: Sequence[int]) -> dict[int, bytes]:
    """Each silo's own secret, drawn by the operating system. It is kept nowhere: a resumed run draws others."""
    return {silo: os.urandom(_SECRET) for silo in silos}
