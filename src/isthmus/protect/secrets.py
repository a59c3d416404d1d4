"""Noise that nobody else can subtract: a cryptographic generator makes it from a silo's own secret."""

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
    """Random numbers of each silo, and keys of streams, made from SHAKE-256 of (secret, number of earlier draws).

    A shared seed would let every silo subtract the noise of the others; hence the secrets. ``draws`` is checkpointed,
    so that a simulation, whose secrets follow from its seed, continues with the noise it would have had. ``common``:
    what the keys of pairs of silos are made of, which each pair would agree on by itself.
    """

    def __init__(self, secrets: Mapping[int, bytes] | None = None, common: bytes = b"") -> None:
        self.secrets, self.common = dict(secrets or {}), common
        self.draws = 0

    def normal(self, silo: int, rows: int, width: int) -> Tensor:
        """Standard normal numbers of one silo, by the Box-Muller transform: float64 [rows, width]."""
        count = rows * width
        radius, angle = _uniform(self.words(silo, 2 * -(-count // 2)).reshape(2, -1))
        length = np.sqrt(-2 * np.log1p(-radius))
        pairs = np.stack([length * np.cos(2 * math.pi * angle), length * np.sin(2 * math.pi * angle)], 1)
        return torch.from_numpy(pairs.reshape(-1)[:count]).reshape(rows, width)

    def laplace(self, silo: int, rows: int, width: int) -> Tensor:
        """Laplace numbers of scale 1 of one silo, as exponentials with a random sign: float64 [rows, width]."""
        words = self.words(silo, rows * width)
        sign = 1.0 - 2.0 * (words & np.uint64(1))  # a bit that the exponential does not read
        return torch.from_numpy(sign * -np.log1p(-_uniform(words))).reshape(rows, width)

    def words(self, silo: int, count: int) -> np.ndarray:
        """Random 64-bit words of one silo for this draw: [count]."""
        return np.frombuffer(self._bytes(b"isthmus noise", silo, 8 * count), dtype="<u8")

    def key(self, silo: int) -> bytes:
        """The key of one silo's stream of shares for this draw: 32 bytes."""
        return self._bytes(b"isthmus shares", silo, _SECRET)

    def pair_key(self, one: int, other: int) -> bytes:
        """The key of the masks that two silos share in this draw: 32 bytes."""
        pair = b"".join(silo.to_bytes(8, "big") for silo in sorted((one, other)))
        name = b"isthmus pair masks" + self.common + pair + self.draws.to_bytes(8, "big")
        return hashlib.shake_256(name).digest(_SECRET)

    def _bytes(self, purpose: bytes, silo: int, count: int) -> bytes:
        if silo not in self.secrets:
            raise IsthmusError(f"Silo {silo} has no secret to draw noise from; give the wire a Noise with one.")
        return hashlib.shake_256(purpose + self.secrets[silo] + self.draws.to_bytes(8, "big")).digest(count)


def _uniform(words: np.ndarray) -> np.ndarray:
    """Numbers in [0, 1) from the upper 53 bits of each word."""
    numbers: np.ndarray = (words >> np.uint64(11)) * 2.0**-53
    return numbers


def secrets_from_seed(seed: int, silos: Sequence[int]) -> dict[int, bytes]:
    """Secrets for a simulation: whoever knows the run's seed knows them."""
    return {silo: hashlib.blake2b(f"{seed}/{silo}".encode(), digest_size=_SECRET).digest() for silo in silos}


def common_from_seed(seed: int) -> bytes:
    """What keys of pairs are made of in a simulation: whoever knows the run's seed knows them."""
    return hashlib.blake2b(f"{seed}/pairs".encode(), digest_size=_SECRET).digest()


def secrets_from_system(silos: Sequence[int]) -> dict[int, bytes]:
    """Each silo's own secret, drawn by the operating system. It is kept nowhere: a resumed run draws others."""
    return {silo: os.urandom(_SECRET) for silo in silos}
