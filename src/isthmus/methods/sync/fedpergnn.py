"""FedPerGNN's sync: the mean of all silos' gradients at every step, in which pseudo items hide which rows are real."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.engine.learner import Learned
from isthmus.engine.site import Site
from isthmus.graph.graph import TRAIN
from isthmus.methods.sync.base import LiveSync, Losses
from isthmus.methods.sync.sync_sgd import LiveSyncSGD, SyncSGD
from isthmus.protect.secrets import Noise
from isthmus.sample.order import Local

_RIDGE = 1e-9  # times the mean variance, added to covariances, which are singular where few rows are not 0


@dataclass(frozen=True)
class PseudoItems(SyncSGD):
    """g <- sum_i w_i protect(g_i with pseudo items), g_i the gradient of silo i's own mean loss (Wu et al. 2022).

    An item of the paper has a row of an embedding table, whose gradient is 0 unless the user has rated it: who sees the
    gradient sees which items these are. Here a *feature* has such a row, of the weights that features are multiplied
    with: it is 0 unless a node that is in the loss has the feature (a word, say). So each silo fills ``items`` rows
    that are 0, drawn at random (all, if there are fewer), with numbers from the normal distribution that has the mean
    and the covariance of its other rows. They come from the silo's secret. With dense features no row is 0, and there
    is nothing to hide. 0 items: none are filled.

    A silo's gradient is bounded and gets its noise (see ``protect/laplace.py``) before it is weighed. ``weights`` says
    what w_i is a share of; ``silos`` count alike in the paper. Batches must be local, and nothing may cross in a step.
    """

    weights: str = "silos"
    items: int = 1000
    name: ClassVar[str] = "fedpergnn"
    needs_all: ClassVar[str] = "the weights of its mean are settled for all silos before the first step"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.items < 0:
            raise IsthmusError(f"sync.items is {self.items}; it must be 0 (no pseudo items) or more.")

    @property
    def separates(self) -> bool:
        """True: each silo's gradient leaves by itself."""
        return True

    @property
    def noisy(self) -> bool:
        """Pseudo items come from silos' secrets."""
        return self.items > 0

    def open(self, site: Site, model: Learned, losses: Losses) -> LiveSync:
        """The live sync, which fills rows and averages at every step."""
        return LivePseudoItems(self, site, model, losses)


class LivePseudoItems(LiveSyncSGD):
    """Fills pseudo items and averages gradients; keeps how many steps were ``taken``, to know the size of batches."""

    spec: PseudoItems

    def __init__(self, spec: PseudoItems, site: Site, model: Learned, losses: Losses) -> None:
        super().__init__(spec, site, model, losses)
        if not isinstance(site.layout.order, Local):
            raise IsthmusError("sync=fedpergnn needs train.batches=local: each silo computes its own gradient.")
        self._rule = site.layout.order
        self._tables = feature_tables(model, site) if spec.items else []
        self.state["taken"] = torch.zeros((), dtype=torch.int64)

    def gradients(self, active: Tensor) -> None:
        """Replace every silo's gradient by the mean of what silos sent."""
        sets, weights = self.model.sets, self._weights()
        # The loss has weighed gradients already; they are protected before they are weighed.
        sets.load_gradients(sets.flat_gradients() / torch.where(weights > 0, weights, 1.0)[:, None])
        if self._tables:
            self._fill()
        sets.load_gradients(self.site.wire.total(Kind.GRADIENTS, sets.flat_gradients(), weights))

    def step_end(self, step: int) -> None:
        """Count the step."""
        self.state["taken"] = torch.tensor(step + 1)

    def _weights(self) -> Tensor:
        """The weight w_i of the mean loss of each of my silos at this step: [mine]; [0] on a host without silos."""
        site, pool = self.site, self.site.layout.pools[TRAIN]
        step = int(self.state["taken"]) % site.layout.steps_per_epoch(site.train.batch)
        size = site.train.batch or int(pool.counts.sum())
        whole = self._rule.seed_weights(pool, size, step) * self._rule.seeds_of(pool, size, step)
        mine = whole[list(site.wire.mine)] if site.wire.mine else whole.new_zeros(1)
        return mine.to(site.device, site.dtype)

    def _fill(self) -> None:
        """Put pseudo items into the gradients of my silos, for the same features in all tables of a silo."""
        noise, parameters = self.site.wire.noise, self.model.sets.parameters
        for place, silo in enumerate(self.site.wire.mine):
            grads = [parameters[name].grad for name in self._tables]
            views = [grad[place].movedim(-2, 0) for grad in grads if grad is not None]
            rows = torch.cat([view.flatten(1) for view in views], 1)
            at, items = pseudo_items(rows, self.spec.items, silo, noise)
            for view, part in zip(views, items.split([view[0].numel() for view in views], 1), strict=True):
                view[at] = part.reshape(len(at), *view.shape[1:])
        noise.draws += 1


def feature_tables(model: Learned, site: Site) -> list[str]:
    """The parameters with a row for each feature: the embedding, or those matrices of the first layer that have one."""
    features, first = site.schema.features, "enter." if site.model.embed else "layers.0."
    found = [
        name
        for name, p in model.sets.parameters.items()
        if name.startswith(first) and name.endswith(".weight") and p.shape[-2] == features
    ]
    if not found:
        raise IsthmusError(
            f"Model '{model.name}' has no weights with a row for each of the {features} features, which pseudo items "
            "are for; use sync.items=0."
        )
    return found


def pseudo_items(rows: Tensor, count: int, silo: int, noise: Noise) -> tuple[Tensor, Tensor]:
    """Rows of a gradient [features, width] to fill with pseudo items, and their numbers: [n] and [n, width].

    At most ``count`` of those that are 0, drawn at random; numbers are normal, with the mean and covariance of the rows
    that are not. Where all rows are 0, none is filled.
    """
    taken = rows.any(1)
    real, free = rows[taken].double(), (~taken).nonzero().flatten()
    size = min(count, len(free)) if len(real) else 0
    drawn = noise.normal(silo, 1, len(rows) + size * rows.shape[1])[0].to(rows.device)
    lottery, numbers = drawn[: len(rows)], drawn[len(rows) :].reshape(size, rows.shape[1])
    at = free[lottery[free].argsort()[:size]]
    if not size:
        return at, rows[at]
    mean = real.mean(0)
    spread = (real - mean).T @ (real - mean) / len(real)
    ridge = _RIDGE * spread.diagonal().mean() + torch.finfo(torch.float64).tiny
    factor = torch.linalg.cholesky(spread + ridge * torch.eye(len(spread), dtype=spread.dtype, device=spread.device))
    return at, (mean + numbers @ factor.T).to(rows)
