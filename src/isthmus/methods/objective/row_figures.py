"""How generated rows do in a round: how many neighbours are said to be missing, and how near to prototypes rows lie."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.methods.objective.base import LiveObjective

SUMS = "figures"
_SUMS = ("nodes", "hidden", "predicted", "near", "own", "compared", "others")


class RowFigures:
    """Sums over the steps of a round, by silo: [silos, sums]. A silo adds up what it knows, and tells means alone.

    ``nodes`` that were imagined for, their ``hidden`` neighbours and those that were ``predicted``. Of rows that were
    generated for hidden neighbours: how many had prototypes of their own silo to be ``near`` to, and their squared
    distances ``own``; how often they were ``compared`` with another silo's, and their squared distances ``others``.
    The sums lie in the state of the objective, so that a run that is resumed at its end still has those of its last
    round.
    """

    def __init__(self, objective: LiveObjective) -> None:
        self._objective = objective

    @staticmethod
    def nothing(silos: int, device: torch.device) -> dict[str, Tensor]:
        """The part of an objective's state that holds the sums, before anything is added."""
        return {SUMS: torch.zeros(silos, len(_SUMS), dtype=torch.float64, device=device)}

    @property
    def _sums(self) -> Tensor:
        return self._objective.state[SUMS]

    def begin(self) -> None:
        """Set all sums to 0 when a round begins."""
        self._sums.zero_()

    def add(self, silo: Tensor, **values: Tensor) -> None:
        """Add values of some nodes, each [n] and by the name of the sum, to those of their silos ``silo`` [n]."""
        for name, each in values.items():
            self._sums[:, _SUMS.index(name)].index_add_(0, silo, each.detach().double())

    def told(self) -> dict[str, Tensor]:
        """Means of every silo [silos]; not a number where there was nothing to take a mean of."""
        of = dict(zip(_SUMS, self._sums.unbind(1), strict=True))
        return {
            "hidden_neighbours": of["hidden"] / of["nodes"],
            "predicted_neighbours": of["predicted"] / of["nodes"],
            "distance_own": of["own"] / of["near"],
            "distance_others": of["others"] / of["compared"],
        }


def apart(prototypes: Tensor) -> float:
    """The mean squared distance of prototypes [n, width] from the nearest of the others; not a number of one alone."""
    if len(prototypes) < 2:
        return float("nan")
    away = torch.cdist(prototypes.double(), prototypes.double()).square()
    away.fill_diagonal_(torch.inf)
    return float(away.amin(1).mean())
