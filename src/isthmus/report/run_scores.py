"""The scores in a run's ``metrics.json`` by their footing: what they saw, and by which mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from isthmus.report.compared_run import SAW

_Score = TypeVar("_Score")


def mean_is_pooled(metric: str, average: str) -> bool:
    """Whether the mean over silos is the score of all predictions together: of accuracies, weighted by how many."""
    return metric == "accuracy" and average != "silos"


def by_footing(
    ways: Iterable[tuple[str, _Score | None, _Score | None]], metric: str, average: str, merged: bool
) -> dict[str, _Score]:
    """Scores by footing: ``across``; or a mean over silos and a pooled score of it, where these differ.

    ``ways``: what a score saw, its mean over silos, and pooled. A merged run saw all edges, and has one silo, whatever
    else was asked of it.
    """
    alike = mean_is_pooled(metric, average)
    found: dict[str, _Score | None] = {}
    for saw, mean, pooled in ways:
        if merged:
            found[SAW["across"] + ("" if alike else ", pooled")] = mean
        elif alike:
            found[SAW[saw]] = mean
        else:
            found |= {f"{SAW[saw]}, mean over silos": mean, f"{SAW[saw]}, pooled": pooled}
    return {footing: value for footing, value in found.items() if value is not None}


def scores_by_footing(metrics: Mapping[str, Any], metric: str, split: str = "test") -> dict[str, float]:
    """The scores of one run by footing; of a run of an older version, which does not tell, as it was trained."""
    each = (metrics.get("scored") or {"": {**metrics, "sees": "trained"}}).values()
    ways = [(way["sees"], *((way.get(f"{split}{kind}") or {}).get(metric) for kind in ("", "_pooled"))) for way in each]
    return by_footing(ways, metric, str(metrics.get("average", "")), bool(metrics.get("merged")))
