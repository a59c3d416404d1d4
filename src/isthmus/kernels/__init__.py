"""Compiled kernels where the machine has them, and the word why where it has not.

Everything here has a twin in plain torch (``isthmus.nn.monoid``), which gives the same numbers to rounding.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType

import torch

from isthmus.kernels.native import NoCompiler, library

CHOICES = ("auto", "plain")
_chosen = "auto"


def choose(kernels: str) -> None:
    """``auto``: compiled where possible; ``plain``: torch alone."""
    global _chosen
    _chosen = kernels


def compiled(device: torch.device, dtype: torch.dtype = torch.float32) -> ModuleType | None:
    """The module of kernels for a device and number format; None: plain torch."""
    if _chosen == "plain" or dtype not in (torch.float32, torch.float64):
        return None
    return _find(device.type)[0]


def describe(device: torch.device) -> str:
    """Which kernels run, for the record of a run."""
    if _chosen == "plain":
        return "plain torch, as chosen"
    module, words = _find(device.type)
    return words if module is not None else f"plain torch: {words}"


def missing(device: torch.device) -> str:
    """Why compiled kernels do not run although nobody declined them; empty where they run."""
    module, words = _find(device.type)
    return "" if module is not None or _chosen == "plain" else words


@cache
def _find(device: str) -> tuple[ModuleType | None, str]:
    """The kernels of a kind of device and their name, or why there are none."""
    try:
        if device == "cpu":
            from isthmus.kernels import cpu

            library()
            return cpu, "compiled C"
        if device == "cuda":
            from isthmus.kernels import cuda

            return cuda, "Triton"
    except (NoCompiler, ImportError) as problem:
        return None, str(problem)
    return None, f"no kernels for {device}"
