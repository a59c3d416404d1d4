"""Settings that make a run shorter, offered where it would take long."""

from __future__ import annotations

from isthmus.runs.config import RunConfig
from isthmus.runs.text import wait_text

LONG = 3600.0  # seconds; a run that takes longer is offered smaller settings
_EPOCHS, _LAYERS, _BATCH, _EVERY = 20, 2, 1024, 5


def smaller_settings(config: RunConfig) -> list[str]:
    """Options that would make a run shorter, those that save most first."""
    train, model = config.train, config.model
    each = [
        (bool(train.batch) and model.layers > _LAYERS, f"--set model.layers={_LAYERS}"),
        (0 < train.batch < _BATCH, f"--set train.batch={_BATCH}"),
        (not train.steps and train.epochs > _EPOCHS, f"--epochs {_EPOCHS}"),
        (train.evaluate_every < _EVERY, f"--set train.evaluate_every={_EVERY}"),
        (model.name in ("pna", "gat") and not config.method.model, "--model sage"),
        (model.hidden > 32, "--set model.hidden=32"),
    ]
    return [option for fits, option in each if fits]


def advice(seconds: float, config: RunConfig) -> str:
    """A sentence that offers smaller settings for a run that takes ``seconds``; empty where it is not long."""
    smaller = smaller_settings(config)
    if seconds <= LONG or not smaller:
        return ""
    return (
        f"That is {wait_text(seconds)}. Smaller settings: {', '.join(smaller)}; 'isthmus plan' tells what each saves."
    )
