"""Counter-based randomness: a pure function of (seed, purpose, step, layer, public id).

Neighbour choice, dropout and shuffles must not depend on who owns a node, in which row it lies, or on which device it
is computed; so they come from a hash of public things, compared as integers. Noise and secret shares never do.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import Tensor

from isthmus import kernels

_GOLDEN = -7046029254386353131  # 2^64 / golden ratio, as a signed integer: splitmix64's constants
_MIX1 = -4658895280553007687
_MIX2 = -7723592293110705685
_MASK = (1 << 64) - 1
_BLOCK = 1 << 15  # keys that are hashed at a time on a processor: with what lies between, they stay in its cache


def mix(x: Tensor) -> Tensor:
    """The finaliser of splitmix64 on int64 tensors (two's complement wraps, so CPU and GPU agree)."""
    x = (x ^ _shift(x, 30)) * _MIX1
    x = (x ^ _shift(x, 27)) * _MIX2
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """A logical shift to the right; torch's own keeps the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def stream(seed: int, purpose: str, *counters: int) -> int:
    """The key of one stream of random numbers, as a signed 64-bit integer."""
    text = f"{seed}/{purpose}/" + "/".join(map(str, counters))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def draw(key: int, ids: Tensor) -> Tensor:
    """One 64-bit number for each public key in ``ids``."""
    found = kernels.compiled(ids.device)
    if found is not None:
        drawn: Tensor = found.hash_ids(key, ids)
        return drawn
    return mix(mix(ids * _GOLDEN + key) + key)


def combine(a: Tensor, b: Tensor) -> Tensor:
    """One key out of two; the order matters."""
    if a.shape == b.shape and len(a) > _BLOCK and a.device.type == "cpu":
        return torch.cat([combine(*part) for part in zip(a.split(_BLOCK), b.split(_BLOCK), strict=True)])
    return mix(mix(a * _GOLDEN + 1) + b * _MIX1)


def keys_of(ids: np.ndarray) -> Tensor:
    """Public ids as 64-bit keys: integers stand for themselves, text is hashed."""
    if np.issubdtype(ids.dtype, np.integer):
        return torch.from_numpy(ids.astype(np.int64))
    digests = b"".join(hashlib.blake2b(str(i).encode(), digest_size=8).digest() for i in ids)
    return torch.from_numpy(np.frombuffer(digests, dtype=np.int64).copy())


def order(key: int, ids: Tensor) -> Tensor:
    """Positions of ``ids`` in shuffled order."""
    return torch.argsort(draw(key, ids), stable=True)


def normals(key: int, ids: Tensor, width: int) -> Tensor:
    """Standard normal numbers for the rows ``ids``, the same wherever a row lies: [n, width] float64.

    Each hash gives two uniform numbers, and these two normal ones (Box and Muller). They are public: no noise that
    protects anything.
    """
    lanes = torch.arange((width + 1) // 2, device=ids.device)
    bits = mix(draw(key, ids)[:, None] + lanes * _GOLDEN)
    uniform = (bits.view(torch.int32).double() + (2**31 + 0.5)) / 2**32
    length, angle = (-2 * uniform[:, 0::2].log()).sqrt(), 2 * torch.pi * uniform[:, 1::2]
    return torch.cat((length * angle.cos(), length * angle.sin()), 1)[:, :width]


def keep_mask(key: int, ids: Tensor, width: int, drop: float) -> Tensor:
    """Which entries of the rows ``ids`` survive dropout: [n, width] bool.

    One hash serves four neighbouring columns (16 bits each), so ``drop`` is rounded to a multiple of 2^-16.
    """
    if round(drop * 65536) == 65536:  # one more than 16 bits can be compared with
        return torch.zeros(len(ids), width, dtype=torch.bool, device=ids.device)
    lanes = torch.arange((width + 3) // 4, device=ids.device)
    bits = mix(draw(key, ids)[:, None] + lanes * _GOLDEN)
    sixteen = bits.view(torch.int16)[:, :width]
    return sixteen >= round(drop * 65536) - 32768
