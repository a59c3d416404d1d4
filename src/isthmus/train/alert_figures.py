"""What a team that works through alerts wants to know of scores: how many of the highest ones are right.

Of two classes the rarer one is looked for. Every figure is of one silo's own predictions, computed where they are made,
and nothing of it crosses. Thresholds are chosen on validation predictions and applied to test ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from isthmus.graph.graph import Schema

DAY = 86_400  # seconds; times that are no timestamps are taken for seconds
_POINTS = 200  # of a curve


@dataclass(frozen=True)
class RareScores:
    """Predictions of one split on this host, grouped by silo: the score of the rare class, and whether it is right."""

    score: Tensor  # [seeds] float64
    truth: Tensor  # [seeds] bool
    day: Tensor | None  # [seeds] int64, of the time of an edge
    ptr: tuple[int, ...]
    names: tuple[str, ...]  # of the silos on this host

    def of_silo(self, place: int) -> RareScores:
        """The predictions of one silo."""
        span = slice(self.ptr[place], self.ptr[place + 1])
        day = None if self.day is None else self.day[span]
        score, truth = self.score[span], self.truth[span]
        return RareScores(score, truth, day, (0, len(score)), self.names[place : place + 1])

    @property
    def days(self) -> int:
        """On how many days there was something to score; 0 where there are no times."""
        return 0 if self.day is None else len(self.day.unique())


def rare_scores(
    logits: Tensor, y: Tensor, day: Tensor | None, ptr: tuple[int, ...], names: Sequence[str], rare: int
) -> RareScores:
    """Predictions from logits of two classes, of which ``rare`` is looked for."""
    score = logits.detach().cpu().double().softmax(1)[:, rare]
    return RareScores(score, y.cpu().long() == rare, day, ptr, tuple(names))


def can_alert(schema: Schema) -> bool:
    """Whether labels are of two classes, one of which is looked for."""
    return schema.task == "classes" and len(schema.labels) == 2


@dataclass(frozen=True)
class AlertSettings:
    """How many of the highest scores are looked at: each of ``top``, and ``a_day`` of every day (0: no such budget)."""

    top: tuple[int, ...]
    a_day: int


def alert_figures(valid: RareScores | None, test: RareScores, settings: AlertSettings, pool: bool) -> dict[str, Any]:
    """Figures of every silo on this host, and, to ``pool``, of all their predictions together."""
    silos = {
        name: _figures(None if valid is None else valid.of_silo(place), test.of_silo(place), settings)
        for place, name in enumerate(test.names)
    }
    found: dict[str, Any] = {"top": list(settings.top), "a_day": settings.a_day, "silos": silos}
    return found | ({"pooled": _figures(valid, test, settings)} if pool and len(silos) > 1 else {})


def _figures(valid: RareScores | None, test: RareScores, settings: AlertSettings) -> dict[str, Any]:
    """Figures of one silo, or of several pooled; None for what is not defined there."""
    scored, rare = len(test.score), int(test.truth.sum())
    found: dict[str, Any] = {"scored": scored, "rare": rare, "base_rate": rare / scored if scored else None}
    if not scored or not bool(torch.isfinite(test.score).all()):
        return found
    found["at"] = {str(k): _told(min(k, scored), hits_in(test, k), rare, scored) for k in settings.top}
    if test.days and settings.a_day:
        each = [_of_day(test, day) for day in test.day.unique()] if test.day is not None else []
        alerts = sum(min(settings.a_day, len(day.score)) for day in each)
        hits = sum(hits_in(day, settings.a_day) for day in each)
        found["daily"] = {"days": len(each), **_told(alerts, hits, rare, scored)}
    found["thresholds"] = _thresholds(valid, test, settings)
    found["curve"] = precision_recall(test)
    return found


def _of_day(scores: RareScores, day: Tensor) -> RareScores:
    assert scores.day is not None
    here = scores.day == day
    return RareScores(scores.score[here], scores.truth[here], None, (0, int(here.sum())), scores.names)


def hits_in(scores: RareScores, k: int) -> float:
    """How many of the k highest scores are right; of equal scores at the cut their share is counted."""
    if not len(scores.score):
        return 0.0
    k = min(k, len(scores.score))
    cut = scores.score.topk(k).values[-1]
    above, tied = scores.score > cut, scores.score == cut
    return float(scores.truth[above].sum()) + (k - int(above.sum())) * float(scores.truth[tied].double().mean())


def _told(alerts: int, hits: float, rare: int, scored: int) -> dict[str, float | None]:
    """Precision, recall, and lift (precision over the base rate) of some alerts; None where one is not defined."""
    precision = hits / alerts if alerts else None
    return {
        "alerts": alerts,
        "precision": precision,
        "recall": hits / rare if rare else None,
        "lift": precision * scored / rare if rare and precision is not None else None,
    }


def _thresholds(valid: RareScores | None, test: RareScores, settings: AlertSettings) -> dict[str, Any]:
    """What thresholds do on test that were chosen on validation: for the best F1, and for a budget of alerts a day."""
    if valid is None or not len(valid.score) or not bool(torch.isfinite(valid.score).all()):
        return {}
    found = {"f1": _above(test, best_f1(valid))} if bool(valid.truth.any()) else {}
    if valid.days and settings.a_day:
        threshold, equal = within_budget(valid.score, settings.a_day * valid.days)
        found["budget"] = _above(test, threshold) | {"equal": equal}
    return found


def _above(test: RareScores, threshold: float | None) -> dict[str, Any]:
    """What a threshold does on test: alerts at or above it, a day and on the busiest day; None: there are none."""
    above = torch.zeros_like(test.truth) if threshold is None else test.score >= threshold
    alerts = int(above.sum())
    told = _told(alerts, float(test.truth[above].sum()), int(test.truth.sum()), len(test.score))
    if test.day is None or not test.days:
        return {"threshold": threshold, **told}
    busiest = int(test.day[above].unique(return_counts=True)[1].max()) if alerts else 0
    return {"threshold": threshold, **told, "alerts_a_day": alerts / test.days, "busiest_day": busiest}


def within_budget(score: Tensor, budget: int) -> tuple[float | None, int]:
    """The lowest score at or above which there are no more than ``budget``, and how many equal scores it stopped at.

    Equal scores are alerts together: where they would exceed the budget, the threshold is the next higher score (None:
    there is none), and fewer alerts than the budget are left.
    """
    if budget >= len(score):
        return float(score.min()), 0
    first_out = score.topk(budget + 1).values[-1]
    inside = score[score > first_out]
    equal = int((score == first_out).sum()) if len(inside) < budget else 0
    return (float(inside.min()) if len(inside) else None), equal


def best_f1(scores: RareScores) -> float:
    """The threshold at or above which scores are alerts, for the best F1; the highest one of equals."""
    order = torch.argsort(scores.score, descending=True, stable=True)
    ranked, hits = scores.score[order], scores.truth[order].double().cumsum(0)
    last = torch.ones(len(ranked), dtype=torch.bool)
    last[:-1] = ranked[1:] != ranked[:-1]  # equal scores are alerts together
    alerts = torch.arange(1, len(ranked) + 1)
    f1 = 2 * hits / (alerts + scores.truth.sum())
    return float(ranked[int(f1.where(last, -1.0).argmax())])


def precision_recall(scores: RareScores) -> dict[str, list[float]]:
    """The curve of precision over recall, from the highest score down, thinned to a few hundred points."""
    rare = int(scores.truth.sum())
    if not rare:
        return {}
    order = torch.argsort(scores.score, descending=True, stable=True)
    ranked, hits = scores.score[order], scores.truth[order].double().cumsum(0)
    last = torch.ones(len(ranked), dtype=torch.bool)
    last[:-1] = ranked[1:] != ranked[:-1]
    places = last.nonzero().flatten()
    if len(places) > _POINTS:
        places = places[torch.linspace(0, len(places) - 1, _POINTS).round().long()]
    recall, precision = hits[places] / rare, hits[places] / (places + 1)
    return {name: [round(v, 6) for v in x.tolist()] for name, x in (("recall", recall), ("precision", precision))}


def mean_of_alerts(each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Figures over several seeds: means of numbers that all have; curves are those of the first."""
    found: dict[str, Any] = {}
    for key, first in each[0].items():
        values = [one.get(key) for one in each]
        if isinstance(first, Mapping):
            found[key] = mean_of_alerts([value for value in values if isinstance(value, Mapping)])
        elif isinstance(first, int | float) and not isinstance(first, bool):
            known = [value for value in values if value is not None]
            found[key] = first if all(value == first for value in known) else fmean(known)
        else:
            found[key] = first
    return found
