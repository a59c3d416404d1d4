"""What shares in the field of 2^61 - 1 cost: making them, adding them over neighbours, and decoding the sums.

    python benchmarks/shares.py

A random graph of 20,000 nodes and 90,000 edges, rows of width 64, one thread: the median of repeated calls, in
milliseconds of processor time. The sum of the same rows in float32 stands beside them. Drawing the random rows behind
shares is not part of it.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path

import torch
from measure import SEED, WORDS, now, record
from torch import Tensor

from isthmus import kernels
from isthmus.nn.block import Block
from isthmus.nn.maps import sum_rows
from isthmus.protect.field import PRIME, add_rows, add_whole, interpolate, share_out
from isthmus.testing import random_block


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--edges", type=int, default=90_000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--degree", type=int, default=1, help="T: so many shares tell nothing")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path, help="write the numbers here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    block = random_block(options.nodes, options.edges, SEED)
    generator = torch.Generator().manual_seed(SEED)
    drawn = torch.randint(0, PRIME, (options.nodes, options.degree + 1, options.width), generator=generator)
    print(f"compiled: {kernels.describe_kernels(block.src.device)}")
    found = measure(block, drawn, options.repeats)
    for name, milliseconds in found.items():
        print(f"{name:36} {milliseconds:8.2f} ms")
    record(options.json, WORDS[1], degree=options.degree, milliseconds=found)


def measure(block: Block, drawn: Tensor, repeats: int) -> dict[str, float]:
    """Milliseconds of each operation; the first of ``drawn`` [n, T + 1, w] is the row to share, the rest hide it."""
    h, lists = drawn[:, 0].contiguous(), (block.src, block.dst_ptr)
    shares = share_out(h, drawn.roll(-1, 1))  # the last of them is written over
    real, whole = h.float(), h >> 20
    found = {
        "share_out": median(lambda: share_out(h, shares), repeats),
        "interpolate": median(lambda: interpolate(shares), repeats),
        "sum of float32 rows": median(lambda: sum_rows(real, block), repeats),
    }
    for choice, name in (("auto", "compiled"), ("plain", "plain torch")):
        kernels.choose(choice)
        found[f"add_rows, one share, {name}"] = median(lambda: add_rows(h, *lists), repeats)
        found[f"add_rows, all shares, {name}"] = median(lambda: add_rows(shares, *lists), repeats)
        found[f"add_whole, no shares, {name}"] = median(lambda: add_whole(whole, *lists), repeats)
    return found


def median(work: Callable[[], Tensor], repeats: int) -> float:
    """The median processor time of ``work`` in milliseconds, after a call that warms up."""
    work()
    seconds = []
    for _ in range(repeats):
        started = now()[1]
        work()
        seconds.append(now()[1] - started)
    return 1e3 * statistics.median(seconds)


if __name__ == "__main__":
    main()
