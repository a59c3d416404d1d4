"""FED-PUB's objective: the task loss, with sparse masks and weights that stay near those that the server gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from isthmus.core.errors import IsthmusError
from isthmus.engine.learner import Learner
from isthmus.engine.site import Site
from isthmus.methods.objective.base import LiveObjective, Objective
from isthmus.nn.masks import is_mask
from isthmus.sample.batches import Batch


@dataclass(frozen=True)
class SparseMasks(Objective):
    r"""Task loss + ``sparsity`` ||m||_1 + ``proximity`` ||W - W_round||_2^2  (Baek et al. 2023: lambda_1 and lambda_2).

    m are all masks of the model (see ``engine/masked.py``), W all other parameters, W_round what the silo began the
    round with: its starting values, then what the server has mixed for it. A model without masks has no first term.

    Both terms have gradients here. In the authors' code they are added to the loss from detached copies of the
    parameters, so that they are in the printed loss and change no step; and there the second is not squared.
    """

    sparsity: float = 1e-3
    proximity: float = 1e-3
    name: ClassVar[str] = "fed-pub"
    holds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("sparsity", "proximity"):
            if getattr(self, name) < 0:
                raise IsthmusError(f"objective.{name} is {getattr(self, name)}; it must be 0 or more.")

    def open(self, site: Site) -> LiveObjective:
        """The live objective, which remembers where each round starts."""
        return LiveSparseMasks(self, site)


class LiveSparseMasks(LiveObjective):
    """Keeps the classifier's parameters, without masks, at the start of the round."""

    spec: SparseMasks

    def round_begin(self, learner: Learner) -> None:
        """Remember the parameters with which each silo begins the round."""
        if self.spec.proximity:
            parameters = learner.classifier.sets.parameters
            self.state = {name: p.detach().clone() for name, p in parameters.items() if not is_mask(name)}

    def penalty(self, learner: Learner, batches: Sequence[Batch], active: Tensor) -> Tensor | None:
        """Both terms, sparsity ||m||_1 + proximity ||W - W_round||_2^2, over the sets that have seeds in this step."""
        terms = list[Tensor]()
        for name, p in learner.classifier.sets.parameters.items():
            if is_mask(name) and self.spec.sparsity:
                terms.append(self.spec.sparsity * torch.linalg.vector_norm(_only(p, active), 1))
            elif name in self.state:
                both = _only(p, active), _only(self.state[name], active)
                terms.append(self.spec.proximity * functional.mse_loss(*both, reduction="sum"))
        return torch.stack(terms).sum() if terms else None


def _only(p: Tensor, active: Tensor) -> Tensor:
    """The ``active`` sets of a parameter [sets, ...]; the parameter itself where all are active."""
    return p if bool(active.all()) else p[active.to(p.device)]
