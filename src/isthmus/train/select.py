"""Model selection on validation scores: for the federation, or for each silo where silos are models of their own."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.engine.learner import Learner
from isthmus.train.metrics import Scores


class Best:
    """The best parameters so far. Without validation nodes nothing is ever kept, and the last parameters stand."""

    def __init__(self, mine: tuple[int, ...], alone: bool) -> None:
        self.mine, self.alone = mine, alone
        self.score = torch.full((len(mine) if alone else 1,), -torch.inf, dtype=torch.float64)
        self.epoch = torch.zeros(len(self.score), dtype=torch.int64)
        self.waited = 0
        self.kept: dict[str, Tensor] = {}

    def offer(self, learner: Learner, scores: Scores, epoch: int) -> None:
        """Keep the current parameters where their first metric is better than any before."""
        primary = scores.silos[list(self.mine), 0] if self.alone else scores.overall[:1]
        better = primary.nan_to_num(nan=-torch.inf) > self.score
        live = learner.everything()
        if not self.kept:
            self.kept = {name: tensor.clone() for name, tensor in live.items()}
        self.score = torch.where(better, primary, self.score)
        self.epoch = torch.where(better, epoch, self.epoch)
        self.waited = 0 if bool(better.any()) else self.waited + 1
        if not bool(better.any()):
            return
        for name, tensor in live.items():
            chosen = better.nonzero().flatten() if self.alone else torch.arange(len(tensor))
            self.kept[name][chosen] = tensor[chosen]

    def exhausted(self, patience: int) -> bool:
        """Whether ``patience`` evaluations in a row brought nothing (0: never). Silos alone do not stop early."""
        return bool(patience) and not self.alone and self.waited >= patience

    def restore(self, learner: Learner) -> None:
        """Put the kept parameters back; a silo that never had a score keeps its last ones."""
        for name, tensor in learner.everything().items():
            if name in self.kept:
                chosen = (self.epoch > 0).nonzero().flatten() if self.alone else torch.arange(len(tensor))
                tensor[chosen] = self.kept[name][chosen]

    def epochs(self, last: int) -> list[int]:
        """The selected epoch (of each silo on this host); the ``last`` one where nothing was selected."""
        return [int(epoch) or last for epoch in self.epoch]
