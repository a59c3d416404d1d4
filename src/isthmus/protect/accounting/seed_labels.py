"""Guarantees of training labels under DP-SGD: by counted steps, and with random batches assumed, as is usual."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from isthmus.protect.accounting.guarantee import AS_SAMPLED, ASSUMED, DP, LABEL, STEPS_TAKEN, Guarantee
from isthmus.protect.accounting.metric_dp import composed_epsilon
from isthmus.protect.accounting.subsampled import subsampled_epsilon
from isthmus.protect.events import NoisyGradients
from isthmus.protect.learnt_seeds import MOST, STEPS, TIMES, LearntSeeds

LABELS_ASSUMED = (
    *ASSUMED,
    "the graph, all features and all other labels are known: a node's features and edges are in the gradients of every "
    "seed whose sample reaches it, which no bound here covers",
    "rows and prototypes that leave beside parameters were made of features and edges, by models that took no other "
    "steps: of labels they tell what parameters do",
    "losses, scores and counts of labels, which are told beside parameters, are not in it",
)
POISSON = (
    "every step takes each seed by a coin of its own, unknown to readers; here batches are cut from a shuffle that "
    "follows from the run's seed"
)


@dataclass(frozen=True)
class SeedFigures:
    """In how many noisy steps a silo's training labels were.

    ``times``: steps of the label that was in most of them; ``steps``: all steps of the silo; ``most``: seeds of its
    largest step; ``seeds``: its training labels.
    """

    times: int = 0
    steps: int = 0
    most: int = 0
    seeds: int = 0


def seed_figures(book: LearntSeeds, rows: slice, place: int, seeds: int) -> SeedFigures:
    """The figures of one silo: the ``place``-th of this host, with ``rows`` in the book and ``seeds`` labels."""
    if not book.state:
        return SeedFigures(seeds=seeds)
    times = book.state[TIMES][rows]
    most = int(times.max()) if len(times) else 0
    return SeedFigures(most, int(book.state[STEPS][place]), int(book.state[MOST][place]), seeds)


def label_guarantees(
    silos: Mapping[str, SeedFigures], event: NoisyGradients, bare: Sequence[str], apart: Sequence[str]
) -> list[Guarantee]:
    """Two guarantees of one training label. First by counted steps: a label moves the sum of a step by 2 clip at most.

    The second is of one label more or less, as if every batch were a Poisson sample. ``bare``: kinds of messages that
    carried labels without noise; they make both infinite.
    """
    counted = {name: _counted(each.times, event) for name, each in silos.items()}
    sampled = {name: _sampled(each, event) for name, each in silos.items()}
    told = {
        name: {**vars(each), "epsilon": counted[name], "epsilon as sampled": sampled[name]}
        for name, each in silos.items()
    }
    first = Guarantee(
        STEPS_TAKEN,
        LABEL,
        DP,
        math.inf if bare else max(counted.values(), default=0.0),
        event.delta,
        max((each.times for each in silos.values()), default=0),
        LABELS_ASSUMED,
        tuple(bare),
        tuple(apart),
        told,
    )
    as_sampled = math.inf if bare else max(sampled.values(), default=0.0)
    return [first, replace(first, notion=AS_SAMPLED, epsilon=as_sampled, assumptions=(*LABELS_ASSUMED, POISSON))]


def _counted(times: int, event: NoisyGradients) -> float:
    """Epsilon of a label that was in ``times`` steps; the loss of each is (2 clip)^2 / (2 (sigma clip)^2)."""
    if not times:
        return 0.0
    if not event.sigma or event.clip == math.inf:
        return math.inf
    return float(composed_epsilon(torch.tensor([2 * times / event.sigma**2], dtype=torch.float64), event.delta))


def _sampled(figures: SeedFigures, event: NoisyGradients) -> float:
    """Epsilon if each step of a silo took each label with chance q = seeds of its largest step / training labels."""
    rate = min(1.0, figures.most / max(figures.seeds, 1))
    sigma = 0.0 if event.clip == math.inf else event.sigma
    return subsampled_epsilon(rate, sigma, figures.steps, event.delta)
