"""Directions of features that embeddings depend on: attacks on rows of deeper layers search in these only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from isthmus.audit.attributes import Prior

LATENT = 128  # directions at most
Entrance = tuple[Tensor, Tensor]  # the map that features enter a model by: [sets, f, w], and its bias [sets, w]


def entrance(known: Mapping[str, Tensor]) -> Entrance:
    """The map that features enter a model by, from parameters by name."""
    weight = known["enter.weight"]
    return weight, known.get("enter.bias", weight.new_zeros(len(weight), weight.shape[2]))


class Axes:
    """Features of targets as x = mu + B z, with z ~ N(0, I); B spans what several embeddings E_g x + c_g depend on.

    In all other directions the embeddings tell nothing, and the best estimate stays at the prior mean. Targets of
    different silos have different adversaries, hence priors, and maybe parameters.
    """

    def __init__(self, priors: Mapping[int, Prior], whose: Tensor, entrances: Sequence[Entrance]) -> None:
        self._silos, self._at = whose.unique(return_inverse=True)
        each = [(priors[silo].mean, *_axes_of(priors[silo], silo, entrances)) for silo in self._silos.tolist()]
        self._means, self._back, self._slopes, self._offsets = (torch.stack(parts) for parts in zip(*each, strict=True))
        size = self._back.shape[1]
        self.prior = Prior(torch.zeros(size, dtype=torch.float64), torch.eye(size, dtype=torch.float64))

    def embedding(self, number: int) -> tuple[Tensor, Tensor]:
        """The embeddings of targets by the entrance ``number`` as c + S z: c [t, w] and S [t, w, k]."""
        return self._offsets[self._at, number], self._slopes[self._at, number]

    def features(self, z: Tensor) -> Tensor:
        """The features of targets at z [t, k]: [t, f]."""
        found: Tensor = self._means[self._at] + (z[:, None] @ self._back[self._at]).squeeze(1)
        return found


def _axes_of(prior: Prior, silo: int, entrances: Sequence[Entrance]) -> tuple[Tensor, Tensor, Tensor]:
    """For targets of one silo: features of each axis [k, f], embeddings of axes [v, w, k] and of the mean [v, w]."""
    white = torch.stack([weight[silo % len(weight)].T @ prior.root for weight, _ in entrances])  # [v, w, f]
    offsets = torch.stack(
        [prior.mean @ weight[silo % len(weight)] + bias[silo % len(bias)] for weight, bias in entrances]
    )
    basis = torch.linalg.svd(white.flatten(0, 1), full_matrices=False).Vh[:LATENT]
    return basis @ prior.root.T, white @ basis.T, offsets
