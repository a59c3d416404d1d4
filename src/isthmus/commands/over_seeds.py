"""The metrics of several seeds as those of one run: means of scores, and the worst of what is promised."""

from __future__ import annotations

import math
from statistics import fmean, stdev
from typing import Any

from isthmus.protect.accounting.guarantee import LISTS
from isthmus.train.alert_figures import mean_of_alerts

_COMPOSED = (
    "Epsilon is that of one seed, the worst one. {} runs on the same data release it as many times, and what they lose "
    "adds up."
)


def over_seeds(each: list[dict[str, Any]], seeds: list[int]) -> dict[str, Any]:
    """Metrics over seeds: means of scores, bytes and times, the worst epsilon, all notes; else the first seed's.

    Scores have deviations too; means of bytes are rounded to whole bytes.
    """
    combined = {**each[0], "seeds": seeds, "seconds": fmean(run["seconds"] for run in each)}
    worst = max(each, key=lambda run: float(run["epsilon"]))
    combined |= {"epsilon": worst["epsilon"], "privacy": worst_guarantees(each)}
    combined["link"] = _fold([run["link"] for run in each], fmean)
    combined |= {name: _mean_sizes([run[name] for run in each]) for name in ("bytes", "bytes_by_model", "transport")}
    ways = {how: _way_over([run["scored"][how] for run in each]) for how in each[0]["scored"]}
    notes = notes_over([run["notes"] for run in each], seeds)
    notes += [_COMPOSED.format(len(each))] if 0 < float(worst["epsilon"]) < math.inf else []
    notes += _partly_defined(each)
    return combined | _scores_over(each) | {"scored": ways, "notes": notes}


def _mean_sizes(each: list[dict[str, int]]) -> dict[str, int]:
    """Means of bytes by kind or by model; what a seed does not tell of is 0 bytes there."""
    names = dict.fromkeys(name for sizes in each for name in sizes)
    return {name: round(fmean(sizes.get(name, 0) for sizes in each)) for name in names}


def _way_over(each: list[dict[str, Any]]) -> dict[str, Any]:
    """One way of scoring over seeds: means of scores, and of the bytes of one test; else the first seed's."""
    return {**each[0], **_scores_over(each), "bytes": round(fmean(way["bytes"] for way in each))}


def _partly_defined(each: list[dict[str, Any]]) -> list[str]:
    """A note on test scores that some seeds lack, over whose others means are taken."""
    metric = each[0]["metric"]
    lacking = sum(run["test"].get(metric) is None for run in each)
    return (
        [f"Test {metric} is not defined with {lacking} of {len(each)} seeds; means are over the others."]
        if 0 < lacking < len(each)
        else []
    )


def notes_over(each: list[list[str]], seeds: list[int]) -> list[str]:
    """Notes of all seeds: once where all have the same, else with the seeds that have it in front."""
    found: dict[str, list[int]] = {}
    for seed, notes in zip(seeds, each, strict=True):
        for sentence in notes:
            found.setdefault(sentence, []).append(seed)
    named = {sentence: f"seed{'s' * (len(on) > 1)} {', '.join(map(str, on))}" for sentence, on in found.items()}
    return [
        sentence if len(on) == len(seeds) else f"With {named[sentence]}: {sentence}" for sentence, on in found.items()
    ]


def worst_guarantees(each: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of every guarantee that a seed told, by what it is of, its unit and notion, the worst; silos likewise."""
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for told in (told for run in each for told in run["privacy"]):
        found.setdefault((told["of"], told["unit"], told["notion"]), []).append(told)
    return [_worst_of(alike) for alike in found.values()]


def _worst_of(alike: list[dict[str, Any]]) -> dict[str, Any]:
    """The guarantee with the largest epsilon, of drawn lists the largest delta; each silo's figures are its worst."""
    first, second = ("delta", "epsilon") if alike[0]["of"] == LISTS else ("epsilon", "delta")

    def badness(figures: Any) -> tuple[float, float]:
        return _largest(figures.get(first, 0.0)), _largest(figures.get(second, 0.0))

    silos: dict[str, list[dict[str, Any]]] = {}
    for name, figures in (of_silo for told in alike for of_silo in told["silos"].items()):
        silos.setdefault(name, []).append(figures)
    return {**max(alike, key=badness), "silos": {name: max(each, key=badness) for name, each in silos.items()}}


def _largest(figure: Any) -> float:
    """A figure as a number; of several percentiles the largest."""
    return max(map(float, figure.values())) if isinstance(figure, dict) else float(figure)


def _scores_over(each: list[dict[str, Any]]) -> dict[str, Any]:
    """Means of scores over runs under their own keys, and deviations under keys that end in ``_std``."""
    combined: dict[str, Any] = {}
    combined |= {"alerts": mean_of_alerts([run["alerts"] for run in each])} if "alerts" in each[0] else {}
    for split in [key for key in ("valid", "test", "valid_pooled", "test_pooled") if key in each[0]]:
        parts = [run[split] for run in each]
        combined[split] = _fold(parts, fmean)
        combined[f"{split}_std"] = _fold(parts, stdev)
    return combined


def _fold(parts: list[dict[str, Any]], how: Any) -> dict[str, Any]:
    folded: dict[str, Any] = {}
    for key, first in parts[0].items():
        values = [part[key] for part in parts]
        if isinstance(first, dict):
            folded[key] = _fold(values, how)
        else:
            known = [value for value in values if value is not None]
            folded[key] = how(known) if len(known) > (how is stdev) else None
    return folded
