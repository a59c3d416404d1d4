"""Compiled kernels, where the machine can run them, and the reason where it cannot.

``cpu`` and ``cuda`` are modules with functions of the same names and arguments, one set of kernels for each kind of
device. Every kernel has a counterpart in plain torch (in ``isthmus.nn``) that gives equal numbers up to rounding. Sums
of whole numbers alone (``sum_near``) are compiled for the CPU only; ``isthmus.protect.field`` adds them elsewhere.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType

import torch

from isthmus.kernels.native import NoCompiler, library

CHOICES = ("auto", "plain")
_chosen = "auto"


def choose(kernels: str) -> None:
    """Choose the kernels of this process: ``auto`` (compiled where possible) or ``plain`` (torch alone)."""
    global _chosen
    if kernels not in CHOICES:
        raise ValueError(f"Unknown kernels '{kernels}'. Choose from: {', '.join(CHOICES)}.")
    _chosen = kernels


def chosen() -> str:
    """The choice of this process: ``auto`` or ``plain``."""
    return _chosen


def compiled(device: torch.device, dtype: torch.dtype = torch.float32) -> ModuleType | None:
    """The module of compiled kernels for a device and number format; None where plain torch is used."""
    if _chosen == "plain" or dtype not in (torch.float32, torch.float64):
        return None
    return _find(device.type)[0]


def describe_kernels(device: torch.device) -> str:
    """Which kernels run on a device, in words, as the metrics of a run record it."""
    if _chosen == "plain":
        return "plain torch, as chosen"
    module, words = _find(device.type)
    return words if module is not None else f"plain torch: {words}"


def why_not_compiled(device: torch.device) -> str:
    """Why compiled kernels do not run on a device; empty where they run, and where ``plain`` was chosen."""
    module, words = _find(device.type)
    return "" if module is not None or _chosen == "plain" else words


@cache
def _find(device: str) -> tuple[ModuleType | None, str]:
    """The module of kernels for a kind of device and its description; or None and the reason."""
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
