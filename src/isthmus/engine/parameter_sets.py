"""Parameter sets: one for all silos of a host, or one each, stacked in one tensor so that all are computed at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from isthmus.nn.masks import is_mask
from isthmus.nn.sets import stack_sets, unmasked


class ParameterSets:
    """The parameters [sets, ...] of a model, seen as a whole by autograd and set by set by the optimiser.

    The optimiser steps on views of each set, so that every silo has its own step count and moments, and a silo without
    a batch does not move.
    """

    def __init__(self, model: nn.Module, sets: int, silos: int) -> None:
        stack_sets(model, sets, silos)
        self.model, self.count = model, sets
        self.parameters = dict(model.named_parameters())
        self.views = {name: [nn.Parameter(p.data[i]) for i in range(sets)] for name, p in self.parameters.items()}
        self.running = {name: b for name, b in model.named_buffers() if name.startswith("norms.")}

    def names(self) -> list[str]:
        """Parameters and running moments, in a fixed order."""
        return [*self.parameters, *self.running]

    def everything(self) -> dict[str, Tensor]:
        """Parameters and all buffers by name, as live tensors."""
        return {**{name: p.data for name, p in self.parameters.items()}, **dict(self.model.named_buffers())}

    def unmasked(self) -> dict[str, Tensor]:
        """Parameters and all buffers by name with masks multiplied into weights: what a model without masks loads."""
        return unmasked(self.model)

    def for_optimiser(self) -> list[nn.Parameter]:
        """The views of all sets, on which the optimiser steps."""
        return [view for views in self.views.values() for view in views]

    def groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """The views of all sets as the optimiser's groups; masks have no weight decay: 0 would switch weights off."""
        masks = [view for name, views in self.views.items() if is_mask(name) for view in views]
        others = [view for name, views in self.views.items() if not is_mask(name) for view in views]
        found = [{"params": others, "weight_decay": weight_decay}]
        return [*found, {"params": masks, "weight_decay": 0.0}] if masks else found

    def hand_out_gradients(self, active: Sequence[bool]) -> None:
        """Give each set's optimiser views their gradient; a set that saw no seed gets none."""
        for name, parameter in self.parameters.items():
            for i, view in enumerate(self.views[name]):
                seen = parameter.grad is not None and active[i]
                view.grad = parameter.grad[i] if seen and parameter.grad is not None else None

    def zero_gradients(self) -> None:
        """Forget the gradients of the last step."""
        for parameter in self.parameters.values():
            parameter.grad = None

    def flat(self, names: Sequence[str]) -> Tensor:
        """The named tensors of each set as rows: [sets, numbers]."""
        live = self.everything()
        return torch.cat([live[name].reshape(len(live[name]), -1) for name in names], 1)

    def load(self, names: Sequence[str], values: Tensor) -> None:
        """Write the named tensors: one row of ``values`` for every set, or one [numbers] for all."""
        live, at = self.everything(), 0
        for name in names:
            size = live[name][0].numel()
            live[name].copy_(values[..., at : at + size].reshape(*values.shape[:-1], *live[name].shape[1:]))
            at += size

    def flat_gradients(self) -> Tensor:
        """The gradients of each set as rows, zero where a parameter was not used: [sets, numbers]."""
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters.values()]
        return torch.cat([grad.reshape(self.count, -1) for grad in grads], 1)

    def load_gradients(self, values: Tensor) -> None:
        """Write gradients, one row for every set or one [numbers] for all."""
        at = 0
        for parameter in self.parameters.values():
            size = parameter[0].numel()
            grad = values[..., at : at + size].reshape(*values.shape[:-1], *parameter.shape[1:])
            parameter.grad = grad.expand_as(parameter).contiguous()
            at += size

    def columns(self, names: Sequence[str]) -> Tensor:
        """Which columns of ``flat_gradients`` belong to the named parameters: [numbers]."""
        parts = [torch.full((p[0].numel(),), name in names, device=p.device) for name, p in self.parameters.items()]
        return torch.cat(parts)
