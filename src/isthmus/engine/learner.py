"""The models that learn: for each its parameters, one set or one for every silo, and its optimiser."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from isthmus.core.random import stream
from isthmus.engine.optimisers import OPTIMISERS
from isthmus.engine.parameter_sets import ParameterSets
from isthmus.engine.settings import TrainConfig
from isthmus.graph.graph import Schema
from isthmus.nn.model import GNN, ModelConfig
from isthmus.nn.sets import reset, reset_apart

CLASSIFIER = "classifier"  # the model that is scored


@dataclass(frozen=True)
class ModelSpec:
    """A model that a method asks for, to be built when the data is known. This class builds the classifier, a `GNN`.

    Fields of a spec are its options: ``--set models.NAME.OPTION=…``.
    """

    def build(
        self, schema: Schema, config: ModelConfig, train: TrainConfig, specs: Mapping[str, ModelSpec]
    ) -> nn.Module:
        """The model with one set of parameters, each with a leading dimension of 1.

        ``config`` is that of the classifier; ``specs`` are those of all models of the method, by name.
        """
        return GNN(config, schema, train.batch)


@dataclass(frozen=True)
class Learned:
    """One model of a run: the module, its parameter sets, and the optimiser that steps on them.

    ``spec`` is what the method asked for; ``make`` builds another module like it, with one set of parameters.
    """

    name: str
    spec: ModelSpec
    module: nn.Module
    sets: ParameterSets
    optimiser: torch.optim.Optimizer
    make: Callable[[], nn.Module]

    def set_rate(self, rate: float) -> None:
        """Take all further steps with another learning rate."""
        for group in self.optimiser.param_groups:
            group["lr"] = rate

    def step(self, active: Sequence[bool]) -> None:
        """Take an optimiser step with the gradients that are there; sets that are not ``active`` do not move."""
        self.sets.hand_out_gradients(active)
        self.optimiser.step()


@dataclass(frozen=True)
class Learner:
    """All models of a run on this host, by name."""

    models: Mapping[str, Learned]

    @property
    def classifier(self) -> Learned:
        """The model that is scored."""
        return self.models[CLASSIFIER]

    def everything(self, models: Sequence[str] | None = None) -> dict[str, Tensor]:
        """Parameters and buffers of all ``models``, or of the named ones, as live tensors.

        Those of the classifier go by their bare names.
        """
        return self._named(lambda sets: sets.everything(), models)

    def unmasked(self) -> dict[str, Tensor]:
        """Parameters and buffers of all models, masks multiplied into weights, as models without masks load them."""
        return self._named(lambda sets: sets.unmasked())

    def _named(
        self, tensors: Callable[[ParameterSets], dict[str, Tensor]], models: Sequence[str] | None = None
    ) -> dict[str, Tensor]:
        named: dict[str, Tensor] = {}
        for name in self.models if models is None else models:
            head = "" if name == CLASSIFIER else f"{name}/"
            named |= {f"{head}{key}": tensor for key, tensor in tensors(self.models[name].sets).items()}
        return named


def build_learner(
    specs: Mapping[str, ModelSpec],
    schema: Schema,
    config: ModelConfig,
    train: TrainConfig,
    seed: int,
    silos: Sequence[int],
    shared: bool,
    agree_on: Callable[[str], bool],
    device: torch.device,
    dtype: torch.dtype,
) -> Learner:
    """Build every model with starting values that follow from the seed, one set for all ``silos`` or one for each.

    A host without silos holds one set of everything: the server's copy. With ``train.start=own`` what silos do not
    ``agree_on`` starts from values of each silo's own.
    """
    count = max(len(silos), 1)
    models = {}
    for name, spec in specs.items():
        make = partial(spec.build, schema, config, train, specs)
        module = make()
        start = seed if name == CLASSIFIER else stream(seed, f"model/{name}") % 2**31
        reset(module, start)
        module.to(device, dtype)
        sets = ParameterSets(module, 1 if shared else count, count)
        if train.start == "own" and not shared and silos:
            reset_apart(module, start, silos, agree_on)
        optimiser = OPTIMISERS[train.optimiser](sets.groups(train.weight_decay), lr=train.lr, fused=True)
        models[name] = Learned(name, spec, module, sets, optimiser, make)
    return Learner(models)
