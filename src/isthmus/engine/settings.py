"""How to train: the choices that affect results, apart from data, model and method."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.core.errors import IsthmusError, unknown
from isthmus.nn.model import LAYERS, ModelConfig
from isthmus.nn.monoid import SUM


@dataclass(frozen=True)
class TrainConfig:
    """How a run trains: its length, batches, neighbours, optimiser, validation and checkpoints.

    ``batch`` 0 is full batch; ``fanout`` is one number for all layers or one a layer (-1: all neighbours).
    ``redraw``: neighbours are drawn anew at every step; else they are the same throughout the run. ``draws``: a node
    with no more neighbours than the fanout keeps all of them (``distinct``); or ``refill``: as many as the fanout are
    drawn with replacement, draws are counted for edge-LDP, and nodes with fewer neighbours than ``floor`` have none.
    ``scoring``: scores read neighbours as they are ``drawn`` in training, or ``all`` of them, in one pass.
    ``batches`` (joint, local) and ``statistics`` (own, agreed) override what the method prescribes. ``start``: what
    silos do not share starts from the same values, or from each silo's own. ``trim``: a layer computes only the rows
    that the seeds need of it; without, every sampled row at every layer. ``messages``, where edges carry the labels
    and their splits follow each other in time: along ``all`` edges, or only along those of the ``past``, up to the
    split that is scored.
    ``decay``: the learning rate is multiplied by it after every ``decay_every`` epochs of a phase (1: it stays).
    ``patience`` counts evaluations without a better score before training stops (0: never), where silos select a model
    together. ``checkpoint_every`` counts epochs; 0 is every epoch, or as many as keep the bytes written for an epoch
    below 32 MB in large federations.
    ``top`` and ``alerts``, where labels are of two classes: how many of the highest scores of the rare one are looked
    at, in all and (where edges have times) each day; 0 alerts: no budget a day.
    ``metric`` is the one that models are selected by (empty: the task's usual one: PR-AUC, or accuracy where there are
    several classes). ``average`` is how the federation's score, also that of selection, is made of its silos' scores:
    weighted by scored ``seeds``, or all ``silos`` alike. ``pooled``: also between hosts, score all silos'
    predictions together at the end, for which every score and label goes to the server; in one process that is always
    done.
    """

    epochs: int = 100
    steps: int = 0
    batch: int = 0
    fanout: tuple[int, ...] = (10,)
    redraw: bool = True
    draws: str = "distinct"
    floor: int = 0
    scoring: str = "drawn"
    lr: float = 0.01
    decay: float = 1.0
    decay_every: int = 1
    weight_decay: float = 5e-4
    optimiser: str = "adam"
    batches: str = ""
    statistics: str = ""
    start: str = "same"
    trim: bool = True
    messages: str = "all"
    evaluate_every: int = 1
    patience: int = 0
    metric: str = ""
    average: str = "seeds"
    pooled: bool = False
    top: tuple[int, ...] = (10, 100)
    alerts: int = 10
    checkpoint_every: int = 0

    def check(self, layers: int) -> None:
        """Refuse values that cannot be trained with."""
        for name, choices in (
            ("optimiser", ("adam", "sgd")),
            ("batches", ("", "joint", "local")),
            ("statistics", ("", "own", "agreed")),
            ("start", ("same", "own")),
            ("messages", ("all", "past")),
            ("average", ("seeds", "silos")),
            ("draws", ("distinct", "refill")),
            ("scoring", ("drawn", "all")),
        ):
            if getattr(self, name) not in choices:
                raise unknown(f"train.{name}", getattr(self, name), [c for c in choices if c])
        if any(k < 1 for k in self.top):
            raise IsthmusError(f"train.top is {list(self.top)}; give numbers of highest scores, 1 or more.")
        least = {"alerts": 0, "epochs": 0, "steps": 0, "batch": 0, "floor": 0, "patience": 0, "checkpoint_every": 0}
        for name, bound in {**least, "evaluate_every": 1, "decay_every": 1}.items():
            if getattr(self, name) < bound:
                raise IsthmusError(f"train.{name} is {getattr(self, name)}; it must be at least {bound}.")
        if self.lr <= 0:
            raise IsthmusError(f"train.lr is {self.lr}; it must be positive.")
        if not 0 < self.decay <= 1:
            raise IsthmusError(f"train.decay is {self.decay}; it must be positive, and at most 1 (1: the rate stays).")
        if self.weight_decay < 0:
            raise IsthmusError(f"train.weight_decay is {self.weight_decay}; it must be 0 or more.")
        sampled = all(f > 0 for f in self.fanouts(layers))
        if self.floor and not (self.draws == "refill" and sampled):
            raise IsthmusError(
                f"train.floor is {self.floor}, below which lists are not drawn from; it needs train.draws=refill, a "
                "train.batch and a positive train.fanout."
            )

    def check_draws(self, model: ModelConfig) -> None:
        """Refuse models that would count repeated draws of a neighbour, or read more of a list than was drawn."""
        if self.draws != "refill":
            return
        layer = LAYERS[model.name](model.hidden, model.hidden, 0, True, **model.options)
        if layer.monoid is SUM:
            raise IsthmusError(
                f"train.draws=refill repeats neighbours, which {model.name} would add up; use a model that takes a "
                "mean, such as sage, gcn or pna."
            )
        if model.ports:
            raise IsthmusError(
                "train.draws=refill reads drawn edges alone, but model.ports number a node's edges by the whole list; "
                "use model.ports=0."
            )

    def rate(self, epoch: int) -> float:
        """The learning rate of an epoch of a phase, counted from 0."""
        return self.lr * self.decay ** (epoch // self.decay_every)

    def agrees(self, batches: str) -> bool:
        """Whether silos agree on statistics: with joint batches they do, unless told otherwise."""
        return (self.statistics or ("agreed" if batches == "joint" else "own")) == "agreed"

    def fanouts(self, layers: int) -> tuple[int, ...]:
        """The fanout of each hop, first hop first; in a full batch all neighbours."""
        if any(f == 0 or f < -1 for f in self.fanout) or len(self.fanout) not in (1, layers):
            raise IsthmusError(
                f"train.fanout is {list(self.fanout)}; give one number, or one for each of the {layers} layers "
                "(positive, or -1 for all neighbours)."
            )
        if not self.batch:
            return (-1,) * layers
        return self.fanout * layers if len(self.fanout) == 1 else self.fanout

    def total_epochs(self, steps_per_epoch: int) -> int:
        """Epochs to run: as given, or as many as the steps need."""
        return -(-self.steps // max(steps_per_epoch, 1)) if self.steps else self.epochs
