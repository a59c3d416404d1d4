"""Parameter sets: a parameter is [1, ...] where all silos share it, [S, ...] where each of S has its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from isthmus.errors import IsthmusError
from isthmus.nn.block import Rows
from isthmus.nn.maps import linear_map
from isthmus.sample.random import stream


class Stackable(nn.Module):
    """A module whose own parameters and buffers carry the leading dimension of sets.

    Make parameters with ``self.fresh(name, *shape)``; use them through ``product`` and ``per_row``.
    """

    stackable = True

    def fresh(self, name: str, *shape: int) -> nn.Parameter:
        """A parameter [1, *shape] at its starting value."""
        return nn.Parameter(self.start(name, (1, *shape), None).to(torch.get_default_dtype()))

    def start(self, name: str, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
        """Where a parameter starts: Glorot-uniform for matrices [1, ..., in, out], 0 for vectors [1, d]."""
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
    """Set what is not shared to starting values that also follow from the silo: one set for each of ``silos``."""
    for prefix, part in module.named_modules():
        for name, parameter in part.named_parameters(recurse=False):
            if shared(f"{prefix}.{name}"):
                continue
            for values, silo in zip(parameter.data, silos, strict=True):
                values.copy_(_drawn(prefix, part, name, stream(seed, f"init/{prefix}.{name}/silo", silo))[0])


def _drawn(prefix: str, part: nn.Module, name: str, key: int) -> Tensor:
    """The starting value [1, ...] of one set of a parameter."""
    shape = (1, *getattr(part, name).shape[1:])
    return _stackable(prefix, part).start(name, shape, torch.Generator().manual_seed(key))


def stack_sets(module: nn.Module, sets: int, silos: int) -> None:
    """Give every parameter ``sets`` equal copies and every buffer (one for each silo) ``silos``, in place."""
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
    """A vector parameter [sets, d] for each row: [d] with one set (it broadcasts), else [n, d]."""
    if p.shape[0] == 1:
        return p[0]
    check_sets(p.shape[0], rows)
    return linear_map(p, lambda x: _repeat(x, rows), lambda g: silo_sums(g, rows))


def row_sums(x: Tensor, rows: Rows) -> Tensor:
    """The sum over each silo's rows: [n, d] to [silos, d]."""
    return linear_map(x, lambda y: silo_sums(y, rows), lambda g: _repeat(g, rows))


def check_sets(sets: int, rows: Rows) -> None:
    """With several sets there must be one for each silo of the rows."""
    if sets != len(rows.ptr) - 1:
        raise IsthmusError(
            f"{sets} parameter sets but rows of {len(rows.ptr) - 1} silos; stack the model for these silos."
        )


def _repeat(x: Tensor, rows: Rows) -> Tensor:
    return x.index_select(0, rows.silo)


def silo_sums(x: Tensor, rows: Rows) -> Tensor:
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
