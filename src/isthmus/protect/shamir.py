"""Shamir's secret sharing (1979) of 32-byte secrets: any t shares give the secret, t - 1 say nothing about it.

A secret is 16 words of 16 bits. Each word is the value at 0 of a polynomial of degree t - 1 over the field of the prime
2^31 - 1, whose other coefficients are uniform; a share is the polynomials' values at one point. Products of two field
elements fit into an int64, so that all shares of a secret are a few array operations.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np

from isthmus.core.errors import IsthmusError

PRIME = 2**31 - 1
WORDS = 16  # of a secret
SECRET = 2 * WORDS  # bytes
SHARE = 4 * WORDS  # bytes


def share(secret: bytes, threshold: int, points: Sequence[int]) -> dict[int, bytes]:
    """Shares {point: 64 bytes} of a secret, any ``threshold`` of which give it; points are positive and differ."""
    x = np.array(points, dtype=np.int64)
    if len(secret) != SECRET or not 1 <= threshold <= len(set(points)) or len(set(points)) < len(x) or min(x) < 1:
        raise IsthmusError(
            f"A secret of {len(secret)} bytes in shares at the points {list(points)}, {threshold} of which are to give "
            f"it back: secrets have {SECRET} bytes, points are positive and differ, and there are enough of them."
        )
    y = np.zeros((len(x), WORDS), dtype=np.int64)
    for coefficients in (*_uniform(threshold - 1), np.frombuffer(secret, dtype="<u2")):  # Horner's scheme
        y = (y * x[:, None] + coefficients) % PRIME
    return {point: words.astype("<u4").tobytes() for point, words in zip(points, y, strict=True)}


def reconstruct(shares: Mapping[int, bytes]) -> bytes:
    """The secret behind shares {point: 64 bytes}; from too few, or wrong ones, it is some other 32 bytes.

    A word that no secret has (above 16 bits) is cut, since with too few shares nearly all words are such.
    """
    words = np.zeros(WORDS, dtype=np.int64)
    for point, told in shares.items():
        y = np.frombuffer(told, dtype="<u4").astype(np.int64)
        words = (words + _at_zero(point, shares) * y) % PRIME
    return words.astype("<u2").tobytes()


def _at_zero(point: int, points: Mapping[int, bytes]) -> int:
    """Lagrange's polynomial of ``point`` at 0: the product of x / (x - point) over the other points x."""
    top = bottom = 1
    for other in points:
        if other != point:
            top, bottom = top * other % PRIME, bottom * (other - point) % PRIME
    return top * pow(bottom, -1, PRIME) % PRIME


def _uniform(rows: int) -> np.ndarray:
    """Uniform field elements from the operating system: [rows, WORDS]; what lies outside the field is drawn again."""
    drawn = np.full(rows * WORDS, PRIME, dtype=np.int64)
    while len(out := np.flatnonzero(drawn == PRIME)):
        drawn[out] = np.frombuffer(os.urandom(4 * len(out)), dtype="<u4") & PRIME
    return drawn.reshape(rows, WORDS)
