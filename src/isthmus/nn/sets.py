"""Parameter sets: a parameter is [1, ...] where all silos share it, [S, ...] where each of S silos has its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from isthmus.core.errors import IsthmusError
from isthmus.core.random import stream
from isthmus.nn.block import Rows
from isthmus.nn.maps import linear_map
from isthmus.nn.masks import is_mask, mask_of, masked


class Stackable(nn.Module):
    """A module whose own parameters and buffers have a leading dimension of parameter sets.

    Make parameters with ``self.fresh(name, *shape)``; use them through ``product`` and ``per_row``. With two ``sides``
    a parameter is stored as [sets, 2, ...], and reading the attribute yields [2 * sets, ...]: the sets of the first
    side, then those of the second. A parameter in ``masks`` is read as its product with its mask.
    """

    stackable = True
    sides = 1
    masks: Mapping[str, float] = MappingProxyType({})  # by masked parameter, the threshold of its mask

    def __getattr__(self, name: str) -> Any:
        """A parameter, buffer or submodule: weights times their masks, tensors of two sides as [2 * sets, ...]."""
        found = super().__getattr__(name)
        if name in self.masks:
            mask = super().__getattr__(mask_of(name))
            assert isinstance(found, Tensor) and isinstance(mask, Tensor)
            found = masked(found, mask, self.masks[name])
        if self.sides == 1 or not isinstance(found, Tensor):
            return found
        return found.squeeze(0) if len(found) == 1 else found.transpose(0, 1).flatten(0, 1)

    def fresh(self, name: str, *shape: int) -> nn.Parameter:
        """A parameter [1, *shape] at its starting value."""
        return nn.Parameter(self.start(name, (1, *shape), None).to(torch.get_default_dtype()))

    def start(self, name: str, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
        """The starting value of a parameter: Glorot-uniform for matrices [1, ..., in, out], 0 for vectors [1, d]."""
        if len(shape) < 3:
            return torch.zeros(shape, dtype=torch.float64)
        bound = math.sqrt(6 / (shape[-2] + shape[-1]))
        return bound * (2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1)


def reset(module: nn.Module, seed: int) -> None:
    """Set every parameter to a starting value that follows from the seed and the parameter's name alone.

    Drawn on the CPU in float64: device, number format and process make no difference. All sets start equal.
    """
    for prefix, part in module.named_modules():
        for name, parameter in part.named_parameters(recurse=False):
            parameter.data.copy_(_drawn(prefix, part, name, stream(seed, f"init/{prefix}.{name}")))


def reset_apart(module: nn.Module, seed: int, silos: Sequence[int], shared: Callable[[str], bool]) -> None:
    """Set parameters that are not ``shared`` to starting values of each silo's own: one set for each of ``silos``."""
    for prefix, part in module.named_modules():
        for name, parameter in part.named_parameters(recurse=False):
            if shared(f"{prefix}.{name}"):
                continue
            for values, silo in zip(parameter.data, silos, strict=True):
                values.copy_(_drawn(prefix, part, name, stream(seed, f"init/{prefix}.{name}/silo", silo))[0])


def _drawn(prefix: str, part: nn.Module, name: str, key: int) -> Tensor:
    """The starting value [1, ...] of one set of a parameter; the two sides of a set start at different values."""
    shape = (1, *getattr(part, name).shape[1:])
    return _start(_stackable(prefix, part), name, shape, torch.Generator().manual_seed(key))


def _start(part: Stackable, name: str, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
    if is_mask(name):
        return torch.ones(1, *[part.sides] * (part.sides > 1), *shape[1:], dtype=torch.float64)
    if part.sides == 1:
        return part.start(name, shape, generator)
    return torch.stack([part.start(name, shape, generator) for _ in range(part.sides)], 1)


def two_sided(module: nn.Module) -> None:
    """Give every parameter and buffer [1, ...] of a module two sides, [1, 2, ...], in place."""
    for prefix, part in module.named_modules():
        own = _stackable(prefix, part)
        own.sides = 2
        for name, p in list(part.named_parameters(recurse=False)):
            part.register_parameter(name, nn.Parameter(_start(own, name, tuple(p.shape)).to(p.dtype)))
        for name, b in list(part.named_buffers(recurse=False)):
            part._buffers[name] = torch.stack([b, b], 1)


def mask_weights(module: nn.Module, threshold: float = 0.0) -> None:
    """Give every matrix of a module a mask of its own shape, which starts at 1, in place; vectors get none."""
    for prefix, part in module.named_modules():
        own = dict(part.named_parameters(recurse=False))
        matrices = {name: p for name, p in own.items() if p.dim() - (_stackable(prefix, part).sides > 1) >= 3}
        for name, p in matrices.items():
            part.register_parameter(mask_of(name), nn.Parameter(torch.ones_like(p)))
        if matrices:
            _stackable(prefix, part).masks = dict.fromkeys(matrices, threshold)


def drop_masks(module: nn.Module) -> None:
    """Take the masks of a module away, in place, as if all of them were 1."""
    for part in module.modules():
        for name in getattr(part, "masks", {}):
            delattr(part, mask_of(name))
        if isinstance(part, Stackable):
            part.masks = {}


def unmasked(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, masks multiplied into their weights and left out: those of an equal model."""
    found = {name: b.detach() for name, b in module.named_buffers()}
    for prefix, part in module.named_modules():
        own = dict(part.named_parameters(recurse=False))
        masks: Mapping[str, float] = getattr(part, "masks", {})
        for name in (name for name in own if not is_mask(name)):
            whole = masked(own[name], own[mask_of(name)], masks[name]) if name in masks else own[name]
            found[f"{prefix}.{name}" if prefix else name] = whole.detach()
    return found


def stack_sets(module: nn.Module, sets: int, silos: int) -> None:
    """Repeat every parameter ``sets`` times and every buffer ``silos`` times along its first dimension, in place."""
    if sets not in (1, silos):
        raise IsthmusError(f"{sets} parameter sets for {silos} silos; use 1 (shared) or {silos} (one each).")
    for prefix, part in module.named_modules():
        own = list(part.named_parameters(recurse=False))
        kept = list(part.named_buffers(recurse=False))
        if own or kept:
            _stackable(prefix, part)
        for name, old in [*own, *kept]:
            if not old.dim() or old.shape[0] != 1:
                raise IsthmusError(
                    f"'{prefix}.{name}' is {list(old.shape)}; before stacking the first dimension must be 1."
                )
        for name, p in own:
            part.register_parameter(name, nn.Parameter(_copies(p, sets), requires_grad=p.requires_grad))
        for name, b in kept:
            part._buffers[name] = _copies(b, silos)


def per_row(p: Tensor, rows: Rows) -> Tensor:
    """A vector parameter [sets, d] for each row: [d] with one set, which broadcasts, else [n, d]."""
    if p.shape[0] == 1:
        return p[0]
    rows = rows.by_sets(p.shape[0])
    if rows.padding is not None and rows.padding.at is None:
        return p[:, None].expand(-1, rows.padding.most, -1).flatten(0, 1)
    return linear_map(p, lambda x: _repeat(x, rows), lambda g: sums_by_silo(g, rows))


def row_sums(x: Tensor, rows: Rows) -> Tensor:
    """The sum over each silo's rows: [n, d] to [silos, d]."""
    return linear_map(x, lambda y: sums_by_silo(y, rows), lambda g: _repeat(g, rows))


def _repeat(x: Tensor, rows: Rows) -> Tensor:
    return x.index_select(0, rows.silo)


def sums_by_silo(x: Tensor, rows: Rows) -> Tensor:
    """The sum over each silo's rows, without a gradient: [n, d] to [silos, d]."""
    if x.is_cuda and len(rows.sizes) > 1 and rows.padding is not None:
        return rows.padding.pad(x).sum(1)
    # Silo by silo: the rounding of a silo's sum then does not depend on who else is computed on this host.
    out = x.new_empty(len(rows.ptr) - 1, x.shape[1])
    for part, row in zip(torch.split(x, rows.sizes), out, strict=True):
        torch.sum(part, 0, out=row)
    return out


def _copies(old: Tensor, number: int) -> Tensor:
    return old.detach().repeat(number, *[1] * (old.dim() - 1))


def _stackable(prefix: str, part: nn.Module) -> Stackable:
    if isinstance(part, Stackable) and part.stackable:
        return part
    raise IsthmusError(
        f"'{prefix or 'the model'}' is a {type(part).__name__}, whose parameters have no leading dimension "
        "of parameter sets, so silos could not hold their own. Use isthmus.nn.Linear, or derive from "
        "isthmus.nn.Stackable and make parameters with self.fresh(name, *shape)."
    )
