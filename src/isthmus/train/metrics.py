"""Metrics of each silo's predictions: PR-AUC by scikit-learn, accuracy and F1 from counts of labels and answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import PeerError, unknown
from isthmus.graph.graph import Schema


def metric_names(schema: Schema) -> tuple[str, ...]:
    """Names of a task's metrics; models are selected by the first, unless ``train.metric`` names another."""
    if schema.task == "tasks":
        return ("macro_pr_auc", *(f"pr_auc/{label}" for label in schema.labels))
    if len(schema.labels) == 2:
        return ("pr_auc", "f1_minority", "macro_f1", "accuracy")
    return ("accuracy", "macro_f1")


def led_by(first: str, schema: Schema) -> list[int]:
    """The places of all metrics in the order in which a run reports them: ``first`` (empty: the usual one) leads."""
    names = metric_names(schema)
    if first and first not in names:
        raise unknown("train.metric", first, names)
    lead = names.index(first) if first else 0
    return [lead, *(place for place in range(len(names)) if place != lead)]


def score_silos(logits: Tensor, y: Tensor, ptr: tuple[int, ...], schema: Schema, minority: Tensor) -> Tensor:
    """Metrics of every silo: [silos, metrics], nan where it has nothing to score.

    ``minority`` is the rare class (of each task).
    """
    logits, y, minority = logits.detach().cpu().double(), y.cpu(), minority.cpu()
    rank = _score_tasks if schema.task == "tasks" else _score_classes
    rows = [
        rank(logits[a:b], y[a:b].long(), schema, minority)
        if b > a and bool(torch.isfinite(logits[a:b]).all())  # a model that has diverged has no score
        else [float("nan")] * len(metric_names(schema))
        for a, b in zip(ptr, ptr[1:], strict=False)
    ]
    return torch.tensor(rows, dtype=torch.float64).reshape(len(ptr) - 1, -1)


def _score_classes(logits: Tensor, y: Tensor, schema: Schema, minority: Tensor) -> list[float]:
    classes = len(schema.labels)
    counts = torch.bincount(y * classes + logits.argmax(1), minlength=classes * classes).reshape(classes, classes)
    hit, truth, said = counts.diagonal().double(), counts.sum(1).double(), counts.sum(0).double()
    seen = (truth + said) > 0  # scikit-learn leaves out classes that are neither there nor predicted
    f1 = 2 * hit / (truth + said).clamp(min=1)
    accuracy, macro = float(hit.sum() / truth.sum()), float(f1[seen].mean())
    if classes != 2:
        return [accuracy, macro]
    rare = int(minority)
    pr_auc = average_precision(y == rare, logits.softmax(1)[:, rare])
    return [pr_auc, float(f1[rare]), macro, accuracy]


def _score_tasks(logits: Tensor, y: Tensor, schema: Schema, minority: Tensor) -> list[float]:
    each = []
    for task in range(len(schema.labels)):
        known, sign = y[:, task] >= 0, 1 if int(minority[task]) == 1 else -1
        each.append(average_precision((y[:, task] == minority[task])[known], sign * logits[:, task][known]))
    return [float(np.nanmean(each)) if np.isfinite(each).any() else float("nan"), *each]


def average_precision(truth: Tensor, score: Tensor) -> float:
    """PR-AUC; nan where there is only one class, since no ranking can be judged there."""
    from sklearn.metrics import average_precision_score

    if not bool(truth.any()) or bool(truth.all()):
        return float("nan")
    return float(average_precision_score(truth.numpy(), score.numpy()))


def check_scores(silos: Tensor, names: Sequence[str]) -> None:
    """Refuse scores [silos, metrics] that are neither missing (nan) nor between 0 and 1, naming the silo."""
    wrong = ~(silos.isnan() | ((silos >= 0) & (silos <= 1 + 1e-9))).all(1)
    if bool(wrong.any()):
        place = int(wrong.nonzero()[0])
        told = ", ".join(f"{score:g}" for score in silos[place].tolist())
        raise PeerError(f"{names[place]} says that its scores are {told}; scores lie between 0 and 1.")


def weighted_mean(values: Tensor, weights: Tensor) -> Tensor:
    """Mean over silos [silos, metrics] -> [metrics]; silos without a value do not count."""
    known = torch.isfinite(values)
    weight = weights[:, None] * known
    total = (values.nan_to_num() * weight).sum(0)
    return torch.where(weight.sum(0) > 0, total / weight.sum(0).clamp(min=1e-12), torch.nan)


@dataclass(frozen=True)
class Scores:
    """Metrics of one split: of every silo, their mean by ``weights`` and, if asked for, of all predictions pooled.

    The first metric is the one that models are selected by.
    """

    names: tuple[str, ...]
    overall: Tensor  # [metrics], the mean over silos
    silos: Tensor  # [silos, metrics]
    weights: Tensor  # [silos]
    members: tuple[str, ...]  # names of the silos
    counts: Tensor  # [silos], how many nodes or edges were scored
    pooled: Tensor | None = None  # [metrics]

    def as_dict(self) -> dict[str, float | None]:
        """Overall metrics by name; None where nothing could be scored."""
        return _named(self.names, self.overall)

    def pooled_dict(self) -> dict[str, float | None]:
        """Metrics of all silos' predictions together, by name; empty unless asked for."""
        return {} if self.pooled is None else _named(self.names, self.pooled)

    def per_silo(self) -> dict[str, dict[str, float | None]]:
        """Metrics of each silo by name."""
        return {name: _named(self.names, row) for name, row in zip(self.members, self.silos, strict=True)}


def _named(names: tuple[str, ...], row: Tensor) -> dict[str, float | None]:
    return {n: float(v) if bool(torch.isfinite(v)) else None for n, v in zip(names, row, strict=True)}
