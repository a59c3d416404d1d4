"""Whether a model does better than a constant: one answer, or one score, for every node."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from isthmus.core.kinds import Kind
from isthmus.graph.graph import TEST, Schema
from isthmus.train.metrics import Scores
from isthmus.train.scorers import Scorer
from isthmus.wire.wire import Wire

MARGIN = 0.05  # a score counts as better than a constant's c only above c + MARGIN * min(c, 1 - c)


def label_counts(y: Tensor, ptr: Sequence[int], schema: Schema) -> Tensor:
    """How many labels of each class silos have: [silos, classes], or [silos, tasks, 2] of no and yes."""
    parts = [y[a:b].long() for a, b in zip(ptr, ptr[1:], strict=False)]
    if schema.task == "tasks":
        each = [torch.stack([(part == 0).sum(0), (part == 1).sum(0)], 1) for part in parts]
        return torch.stack(each).double() if each else torch.zeros(0, len(schema.labels), 2)
    counted = [torch.bincount(part[part >= 0], minlength=len(schema.labels)) for part in parts]
    return torch.stack(counted).double() if counted else torch.zeros(0, len(schema.labels))


def constant_scores(metric: str, counts: Tensor, minority: Tensor, schema: Schema) -> Tensor:
    """The scores of constant predictors in each silo: [silos, predictors]; nan where there is nothing to rank.

    With accuracy and macro F1 a predictor names one class, always; a ranking sees one predictor, which scores all
    alike and reaches the share of the rare class.
    """
    if schema.task == "tasks":
        rare = counts.gather(2, minority.reshape(1, -1, 1).expand(len(counts), -1, 1).to(counts.device))[..., 0]
        share = _share(rare, counts.sum(2))
        task = metric.removeprefix("pr_auc/")
        return share.nanmean(1, keepdim=True) if metric == "macro_pr_auc" else share[:, [schema.labels.index(task)]]
    rows = counts.sum(1, keepdim=True)
    if metric == "pr_auc":
        return _share(counts[:, [int(minority)]], rows)
    f1 = 2 * counts / (counts + rows).clamp(min=1)
    scores = {
        "accuracy": counts / rows.clamp(min=1),
        "f1_minority": f1[:, [int(minority)]],
        "macro_f1": f1 / ((counts > 0).sum(1, keepdim=True) + (counts == 0)),
    }
    return scores[metric].where(rows > 0, torch.nan)


def _share(part: Tensor, whole: Tensor) -> Tensor:
    """A part's share of the whole; nan where it is nothing or all, so that there is nothing to rank."""
    return (part / whole.clamp(min=1)).where((part > 0) & (part < whole), torch.nan)


def no_better_than_constant(score: float, constant: float) -> bool:
    """Whether score <= c + MARGIN * min(c, 1 - c), with c the score of a constant predictor."""
    return score <= constant + MARGIN * min(constant, 1 - constant)


def note_on_constant(scorer: Scorer, wire: Wire, test: Scores, minority: Tensor) -> str:
    """A sentence for a test score that is no better than a constant's; empty where it is better.

    Silos tell the server how constants would do on their test labels, as they told it their training labels before.
    """
    schema, metric, score = scorer.site.schema, test.names[0], float(test.overall[0])
    reached = _constants(scorer, wire, test, minority)
    best = torch.where(reached[1] > 0, reached[0] / reached[1].clamp(min=1e-12), -1.0).max(0)
    constant = float(best.values)
    if constant < 0 or not no_better_than_constant(score, constant):
        return ""
    if constant == 1:
        return (
            f"All test {schema.target}s that were scored have one and the same label, so that {metric} tells nothing."
        )
    label = {"accuracy": int(best.indices), "macro_f1": int(best.indices), "f1_minority": int(minority.reshape(-1)[0])}
    says = f"the answer '{schema.labels[label[metric]]}'" if metric in label else "one and the same score"
    return (
        f"NO BETTER THAN A CONSTANT: test {metric} is {score:.3f}, and {says} for every {schema.target} reaches "
        f"{constant:.3f}. Such a model is of no use: try another data.scale, another train.lr, or more epochs."
    )


def _constants(scorer: Scorer, wire: Wire, test: Scores, minority: Tensor) -> Tensor:
    """Scores of constant predictors times weights, and the weights, each summed over silos that have a score."""
    pool, schema = scorer.pool(TEST), scorer.site.schema
    labels, ptr = scorer.layout.labels[pool.index].cpu(), pool.ptr
    merged = len(test.members) != len(pool.counts)
    if merged:  # into one silo, whose labels are all here
        labels, ptr = _by_part(scorer, labels)
    each = constant_scores(test.names[0], label_counts(labels, ptr, schema), minority.cpu(), schema)
    mine = slice(None) if merged else list(wire.mine)
    known = torch.isfinite(each) & torch.isfinite(test.silos[mine, :1])
    weight = test.weights[mine, None] * known
    sums = torch.stack([each.nan_to_num() * weight, weight], 1).double()
    return sums.sum(0) if merged else wire.total(Kind.STATISTICS, sums)


def _by_part(scorer: Scorer, labels: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """Test labels of a merged silo, grouped by the silos that it was merged from."""
    index, stack = scorer.pool(TEST).index, scorer.layout.stack
    sizes = [size for _, size in scorer.site.federation.silos[0].merged_from]
    rows = index if scorer.site.schema.target == "node" else stack.seed_end(index)
    part = torch.searchsorted(torch.tensor(sizes).cumsum(0), rows.cpu(), right=True)
    counts = torch.bincount(part, minlength=len(sizes))
    return labels[torch.argsort(part, stable=True)], (0, *counts.cumsum(0).tolist())
