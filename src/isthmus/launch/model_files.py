"""The models that a run leaves behind, as safetensors files."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import save
from torch import Tensor

from isthmus.core.files import write_atomic
from isthmus.engine.learner import CLASSIFIER
from isthmus.train.training import Training


def have_own_models(training: Training) -> bool:
    """Whether silos end with models of their own."""
    return training.stage.phase.sync.personal and training.wire.silos > 1


def write_models(training: Training, folder: Path, common: bool) -> None:
    """Write the models of this host: ``model-silo-N.safetensors`` where silos have their own, and ``common`` ones.

    A common model is ``model.safetensors``; other models than the classifier are written to ``model-NAME.safetensors``.
    Masks are multiplied into the weights, so that a model without masks can load them.
    """
    own = training.wire.mine if have_own_models(training) else ()
    for name, model in training.learner.models.items():
        live, stem = model.sets.unmasked(), "model" if name == CLASSIFIER else f"model-{name}"
        for i, silo in enumerate(own):
            write_atomic(folder / f"{stem}-silo-{silo}.safetensors", _one_set(live, i))
        if common:
            write_atomic(folder / f"{stem}.safetensors", _one_set(live, 0))


def _one_set(live: dict[str, Tensor], place: int) -> bytes:
    """The tensors of one parameter set, as a safetensors file."""
    return save({name: t[min(place, len(t) - 1)][None].detach().cpu().contiguous() for name, t in live.items()})
