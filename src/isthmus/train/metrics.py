"""Metrics of each silo's predictions: PR-AUC by scikit-learn, accuracy and F1 from counts of labels and answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import PeerError, unknown
from isthmus.graph.graph import Schema
from isthmus.train.alert_figures import RareScores

OF_TASKS, OF_TASK = "macro_pr_auc", "pr_auc"  # the mean over tasks, and of one task: pr_auc/C2
OF_TWO = ("pr_auc", "f1_minority", "macro_f1", "accuracy")
OF_MANY = ("accuracy", "macro_f1")
METRICS = (OF_TASKS, *OF_TWO)  # of classes and tasks, but for those of a single task


def metric_names(schema: Schema) -> tuple[str, ...]:
    """Names of a task's metrics; models are selected by the first, unless ``train.metric`` names another."""
    if schema.task == "tasks":
        return (OF_TASKS, *(f"{OF_TASK}/{label}" for label in schema.labels))
    return OF_TWO if len(schema.labels) == 2 else OF_MANY


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
    logits, y, minority = logits.detach().cpu().double(), y.cpu().long(), minority.cpu()
    sizes = torch.tensor(ptr).diff()
    silo = torch.arange(len(sizes)).repeat_interleave(sizes)
    diverged = torch.bincount(silo[~torch.isfinite(logits).all(1)], minlength=len(sizes)) > 0
    parts = [slice(a, b) for a, b in zip(ptr, ptr[1:], strict=False)]
    if schema.task == "tasks":
        scores = _score_tasks(logits, y, parts, minority)
    else:
        scores = _score_classes(logits, y, silo, parts, minority)
    scores[diverged | (sizes == 0)] = torch.nan
    return scores


def _score_classes(logits: Tensor, y: Tensor, silo: Tensor, parts: Sequence[slice], minority: Tensor) -> Tensor:
    """Metrics of classes [silos, metrics], from one table of labels and answers a silo."""
    silos, classes = len(parts), logits.shape[1]
    pairs = (silo * classes + y) * classes + logits.argmax(1)
    counts = torch.bincount(pairs, minlength=silos * classes**2).reshape(silos, classes, classes)
    hit, truth, said = counts.diagonal(dim1=1, dim2=2).double(), counts.sum(2).double(), counts.sum(1).double()
    seen = (truth + said) > 0  # scikit-learn leaves out classes that are neither there nor predicted
    f1 = 2 * hit / (truth + said).clamp(min=1)
    accuracy, macro = hit.sum(1) / truth.sum(1), f1.sum(1) / seen.sum(1)
    if classes != 2:
        return torch.stack([accuracy, macro], 1)
    rare = int(minority)
    truths, shares = y == rare, logits.softmax(1)[:, rare]
    pr_auc = [average_precision(truths[part], shares[part]) for part in parts]
    return torch.stack([torch.tensor(pr_auc, dtype=torch.float64), f1[:, rare], macro, accuracy], 1)


def _score_tasks(logits: Tensor, y: Tensor, parts: Sequence[slice], minority: Tensor) -> Tensor:
    """PR-AUC of the rare class of each task, and their mean before them: [silos, 1 + tasks]."""
    rows = []
    for part in parts:
        each = []
        for task, rare in enumerate(minority.tolist()):
            known, sign = y[part, task] >= 0, 1 if rare == 1 else -1
            each.append(average_precision((y[part, task] == rare)[known], sign * logits[part, task][known]))
        rows.append([float(np.nanmean(each)) if np.isfinite(each).any() else float("nan"), *each])
    return torch.tensor(rows, dtype=torch.float64).reshape(len(parts), 1 + len(minority))


def average_precision(truth: Tensor, score: Tensor) -> float:
    """PR-AUC; nan where there is only one class, or a score that is no number: no ranking can be judged there."""
    from sklearn.metrics import average_precision_score

    if not bool(truth.any()) or bool(truth.all()) or not bool(torch.isfinite(score).all()):
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
    rare: RareScores | None = None  # predictions of the rare one of two classes on this host, where they were kept

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
