"""Noise that nobody else can take away again: from a silo's own secret, through a cryptographic generator."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from isthmus.errors import IsthmusError

_SECRET = 32  # bytes


class Noise:
    """Standard normal numbers of each silo: SHAKE-256 of (secret, how many draws there were before), then Box-Muller.

    A shared seed would let every silo subtract the noise of the others; hence the secrets. ``draws`` is checkpointed:
    a run that is resumed draws what it would have drawn, so that a step which is computed again releases nothing new.
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


def secrets_from_system(folder: Path, silos: Sequence[int], resume: bool) -> dict[int, bytes]:
    """Each silo's own secret, drawn by the operating system and kept in ``folder`` for when the run is resumed."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return {silo: _own_secret(folder / f"silo-{silo}", resume) for silo in silos}


def _own_secret(path: Path, resume: bool) -> bytes:
    if resume and path.is_file():
        secret = path.read_bytes()
        if len(secret) != _SECRET:
            raise IsthmusError(f"The secret '{path}' is damaged, so that noise cannot go on; start with --overwrite.")
        return secret
    secret = os.urandom(_SECRET)
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(secret)
    return secret
