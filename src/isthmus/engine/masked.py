"""A classifier whose every weight has a mask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from isthmus.core.errors import IsthmusError
from isthmus.engine.learner import ModelSpec
from isthmus.engine.settings import TrainConfig
from isthmus.graph.graph import Schema
from isthmus.nn.model import ModelConfig
from isthmus.nn.sets import mask_weights


@dataclass(frozen=True)
class MaskedClassifier(ModelSpec):
    """The classifier with a mask for each matrix, learnt beside it: layers compute with mask * W; biases have none.

    Masks start at 1. Entries of at most ``threshold`` switch their weights off (0: none does).
    """

    threshold: float = 1e-3

    def __post_init__(self) -> None:
        if not 0 <= self.threshold < 1:
            raise IsthmusError(
                f"models.classifier.threshold is {self.threshold}; it must lie in [0, 1), for masks start at 1."
            )

    def build(
        self, schema: Schema, config: ModelConfig, train: TrainConfig, specs: Mapping[str, ModelSpec]
    ) -> nn.Module:
        """The model with one set of parameters and of masks, each with a leading dimension of 1."""
        module = super().build(schema, config, train, specs)
        mask_weights(module, self.threshold)
        return module
