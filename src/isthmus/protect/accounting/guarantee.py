"""What an accountant says: of whom, in which sense, how much, and under which assumptions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

NODE_ROWS = "metric DP: a node's rows against rows within its rho"
WHOLE_PAYLOADS = "DP: one payload against any other within the clipping norm"
ASSUMED = ("noise secrets are unknown to readers", "who is released when is public")


@dataclass(frozen=True)
class Guarantee:
    """A bound on what releases can tell of one ``unit``: (epsilon, delta) in the sense of ``notion``."""

    unit: str  # node, edge, silo
    notion: str
    epsilon: float
    delta: float
    assumptions: tuple[str, ...] = ASSUMED

    def as_dict(self) -> dict[str, Any]:
        """The guarantee as JSON holds it; an infinite epsilon is the word inf."""
        spent = "inf" if self.epsilon == math.inf else self.epsilon
        return {
            "epsilon": spent,
            "unit": self.unit,
            "notion": self.notion,
            "delta": self.delta,
            "assumptions": list(self.assumptions),
        }
