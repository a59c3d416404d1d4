"""The stream of ChaCha20, from which shares and masks are drawn: compiled (kernels/chacha.c), or in plain torch.

ChaCha20 (Bernstein 2008; RFC 8439) is a stream cipher: who lacks the key cannot tell its stream from random words. Here
a key serves one draw, so that the nonce is 0, and the counter of blocks has 64 bits.
"""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.kernels import compiled

KEY = 32  # bytes
BLOCK = 8  # 64-bit words of a block
_CONSTANT = b"expand 32-byte k"
_AT_ONCE = 1 << 12  # blocks: what is worked on then stays in a processor's cache


def keystream(key: bytes, words: int, device: torch.device) -> Tensor:
    """The first ``words`` 64-bit words of the stream of a key: int64 [words]."""
    if len(key) != KEY:
        raise ValueError(f"A key of ChaCha20 has {KEY} bytes; this one has {len(key)}.")
    kernels = compiled(device) if device.type == "cpu" else None  # the GPU's module has no stream
    if kernels is not None:
        made: Tensor = kernels.chacha_words(key, words)
        return made
    return _in_torch(key, words, device)


def _in_torch(key: bytes, words: int, device: torch.device) -> Tensor:
    blocks = -(-words // BLOCK)
    made = [_blocks(key, torch.arange(b, min(b + _AT_ONCE, blocks), device=device)) for b in range(0, blocks, _AT_ONCE)]
    return torch.cat([*made, torch.empty(0, dtype=torch.int64, device=device)])[:words]


def _blocks(key: bytes, counter: Tensor) -> Tensor:
    """The blocks with the given counters, one after another: int64 [8 blocks]."""
    fixed = torch.frombuffer(bytearray(_CONSTANT + key), dtype=torch.int32).to(counter.device)
    halves = torch.stack([counter << 32 >> 32, counter >> 32]).int()
    last = torch.cat([halves, torch.zeros_like(halves)])  # the nonce is 0
    first = torch.cat([fixed[:, None].expand(-1, len(counter)), last]).reshape(4, 4, -1)
    a, b, c, d = first.unbind(0)
    for _ in range(10):
        a, b, c, d = _quarters(a, b, c, d)  # the four columns of the state, then its four diagonals
        a, b, c, d = _quarters(a, b.roll(-1, 0), c.roll(-2, 0), d.roll(-3, 0))
        b, c, d = b.roll(1, 0), c.roll(2, 0), d.roll(3, 0)
    halves = (torch.stack([a, b, c, d]) + first).reshape(BLOCK, 2, -1).long()
    return ((halves[:, 0] & 0xFFFFFFFF) | halves[:, 1] << 32).T.flatten()


def _quarters(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four quarter rounds at once, on int32 [4, blocks] each."""
    a = a + b
    d = _rotated(d ^ a, 16)
    c = c + d
    b = _rotated(b ^ c, 12)
    a = a + b
    d = _rotated(d ^ a, 8)
    c = c + d
    b = _rotated(b ^ c, 7)
    return a, b, c, d


def _rotated(x: Tensor, by: int) -> Tensor:
    """Bits of int32 numbers moved up by so many places, those that leave at the top returning at the bottom."""
    return (x << by) | ((x >> (32 - by)) & ((1 << by) - 1))
