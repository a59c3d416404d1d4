"""Model selection on validation scores: for the federation, or for each silo where silos are models of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from isthmus.engine.learner import Learner
from isthmus.train.metrics import Scores, weighted_mean

_KEPT = "kept/"


class Best:
    """The best parameters so far, of the models that learn (``models``); the first of equals stays.

    Undefined validation scores are passed over; where none was ever defined, the last parameters are taken.
    """

    def __init__(self, mine: tuple[int, ...], alone: bool, models: Sequence[str]) -> None:
        self.mine, self.alone, self.models = mine, alone, models
        self.score = torch.full((len(mine) if alone else 1,), -torch.inf, dtype=torch.float64)
        self.epoch = torch.zeros(len(self.score), dtype=torch.int64)  # 0: nothing was selected
        self.waited = 0
        self.told: Tensor | None = None  # [silos, 1 + metrics] weight and scores that each silo told last
        self.kept: dict[str, Tensor] = {}

    def with_absent(self, scores: Scores, present: Sequence[int]) -> Scores:
        """Scores in which absent silos stand with what they told last.

        So selection always compares means over the silos that have told any, whoever is there.
        """
        now = torch.cat([scores.weights[:, None].double(), scores.silos.double()], 1)
        gone = [silo for silo in range(len(now)) if silo not in present]
        if self.told is not None:
            now[gone] = self.told[gone]
        self.told = now
        if not gone:
            return scores
        silos, weights = now[:, 1:], now[:, 0]
        return replace(scores, silos=silos, weights=weights, overall=weighted_mean(silos, weights))

    def offer(self, learner: Learner, scores: Scores, epoch: int) -> None:
        """Keep the current parameters where their first metric is better than any before."""
        primary = scores.silos[list(self.mine), 0] if self.alone else scores.overall[:1]
        better = primary.nan_to_num(nan=-torch.inf) > self.score
        self.score = torch.where(better, primary, self.score)
        self.epoch = torch.where(better, epoch, self.epoch)
        self.waited = 0 if bool(better.any()) else self.waited + 1
        if not bool(better.any()):
            return
        live = learner.everything(self.models)
        self.kept = self.kept or {name: tensor.clone() for name, tensor in live.items()}
        for name, tensor in live.items():
            chosen = better.nonzero().flatten() if self.alone else torch.arange(len(tensor))
            self.kept[name][chosen] = tensor[chosen]

    def exhausted(self, patience: int) -> bool:
        """Whether ``patience`` evaluations in a row brought no better score (0: never).

        Never where silos select for themselves (``alone``).
        """
        return bool(patience) and not self.alone and self.waited >= patience

    def restore(self, learner: Learner, last: dict[str, Tensor]) -> None:
        """Put the kept parameters in place; where nothing was selected, those that training ended with, ``last``."""
        for name, tensor in learner.everything().items():
            tensor.copy_(last[name])
            if name in self.kept:
                chosen = (self.epoch > 0).nonzero().flatten() if self.alone else torch.arange(len(tensor))
                tensor[chosen] = self.kept[name][chosen]

    def epochs(self, last: int) -> list[int]:
        """The selected epoch (of each silo on this host); the ``last`` one where nothing was selected."""
        return [int(epoch) or last for epoch in self.epoch]

    @property
    def undecided(self) -> list[int]:
        """The silos of this host for which no validation score was defined; all of them where they select together."""
        if not self.alone:
            return [] if int(self.epoch) else list(self.mine)
        return [silo for silo, epoch in zip(self.mine, self.epoch.tolist(), strict=True) if not epoch]

    @property
    def state(self) -> dict[str, Tensor]:
        """Scores, epochs and kept parameters of the selection, for a checkpoint."""
        marks = {"score": self.score, "epoch": self.epoch, "waited": torch.tensor(self.waited)}
        marks |= {} if self.told is None else {"told": self.told}
        return marks | {f"{_KEPT}{name}": tensor for name, tensor in self.kept.items()}

    @state.setter
    def state(self, state: dict[str, Tensor]) -> None:
        self.score, self.epoch, self.waited = state["score"].cpu(), state["epoch"].cpu(), int(state["waited"])
        self.told = state["told"].cpu() if "told" in state else None
        self.kept = {name.removeprefix(_KEPT): x for name, x in state.items() if name.startswith(_KEPT)}
