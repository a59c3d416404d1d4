"""The scores in a run's ``metrics.json`` by their footing: what they saw, and by which mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isthmus.report.compared_run import SAW


def mean_is_pooled(metric: str, average: str) -> bool:
    """Whether the mean over silos is the score of all predictions together: of accuracy, weighted by their numbers."""
    return metric == "accuracy" and average != "silos"


def scores_by_footing(metrics: Mapping[str, Any], metric: str, split: str = "test") -> dict[str, float]:
    """The scores of one run by footing: ``across``; or its mean over silos and its pooled score, where these differ.

    A merged run saw all edges and pooled all predictions, whatever else was asked of it.
    """
    alike = mean_is_pooled(metric, str(metrics.get("average", "")))
    found: dict[str, float | None] = {}
    for way in (metrics.get("scored") or {"": {**metrics, "sees": "trained"}}).values():
        mean, pooled = ((way.get(f"{split}{kind}") or {}).get(metric) for kind in ("", "_pooled"))
        if metrics.get("merged"):
            found[SAW["across"] + ("" if alike else ", pooled")] = mean if pooled is None else pooled
        elif alike:
            found[SAW[way["sees"]]] = mean
        else:
            found |= {f"{SAW[way['sees']]}, mean over silos": mean, f"{SAW[way['sees']]}, pooled": pooled}
    return {footing: float(value) for footing, value in found.items() if value is not None}
