"""Parameters as an adversary knows them: those that silos agree on or have sent, never those that a silo keeps."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from isthmus.engine.parameter_sets import ParameterSets

Shares = Callable[[str], bool]  # whether silos agree on a parameter, by its name


def known_now(sets: ParameterSets, shares: Shares) -> dict[str, Tensor] | None:
    """The parameters of every silo [sets, ...] as all others know them at this moment, by name.

    None where parameters that silos share differ at this moment: others learn them when they are sent. For parameters
    that a silo keeps to itself the others take the mean of their own.
    """
    live = sets.everything()
    if any(shares(name) and not bool((live[name] == live[name][:1]).all()) for name in sets.parameters):
        return None
    return {name: _as_known(live[name]) for name in sets.names()}


def known_from(sent: Tensor, sets: ParameterSets, shares: Shares) -> dict[str, Tensor] | None:
    """The parameters of every silo from what each has ``sent`` [silos, numbers]; None if that is of another model."""
    live = sets.everything()
    shared = [name for name in sets.names() if shares(name)]
    sizes = [live[name][0].numel() for name in shared]
    if sent.shape != (sets.count, sum(sizes)):
        return None
    parts = sent.detach().split(sizes, 1)
    told = {name: part.reshape(live[name].shape).clone() for name, part in zip(shared, parts, strict=True)}
    return {name: told[name] if name in told else of_others(live[name]) for name in sets.names()}


def of_others(each: Tensor) -> Tensor:
    """For every silo the mean over all others [silos, ...]; a single set stays as it is."""
    if len(each) == 1:
        return each.detach().clone()
    return (each.detach().sum(0) - each.detach()) / (len(each) - 1)


def _as_known(each: Tensor) -> Tensor:
    """A parameter [silos, ...] itself where all silos hold equal values, else for every silo the mean of the others."""
    alike = torch.equal(each, each[:1].expand_as(each))
    return each.detach().clone() if alike else of_others(each)
