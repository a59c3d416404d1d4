"""What a round changes on a host, kept in memory at its start, so that the round can be rolled back as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy, deepcopy
from dataclasses import fields
from typing import Any

from torch import Tensor

from isthmus.train.progress import Progress
from isthmus.train.training import Training

_SPENT = ("seconds", "wire_seconds", "computing")  # time that has passed is not given back


class Snapshot:
    """Parameters, optimisers, the state of live parts, and progress.

    What has left a silo is not in it: ledger, releases, draws of noise, and counts of lists that were drawn from and of
    labels that were learnt from go on, so that a round that is taken twice is accounted for twice.
    """

    def __init__(self, training: Training) -> None:
        self.number = training.progress.round
        self._tensors = {name: x.clone() for name, x in training.learner.everything().items()}
        self._parts = _copied(training.stage.states())
        self._optimisers = {name: _state(model.optimiser) for name, model in training.learner.models.items()}
        self._progress = _fields(training.progress)

    def restore(self, training: Training) -> None:
        """Put everything back; a snapshot can be restored any number of times."""
        for name, live in training.learner.everything().items():
            live.copy_(self._tensors[name])
        training.stage.load_states(_copied(self._parts))
        for name, model in training.learner.models.items():
            groups = model.optimiser.state_dict()["param_groups"]
            model.optimiser.load_state_dict({"state": deepcopy(self._optimisers[name]), "param_groups": groups})
        for name, value in self._progress.items():
            setattr(training.progress, name, copy(value))


def _copied(states: Mapping[str, Mapping[str, Tensor]]) -> dict[str, dict[str, Tensor]]:
    return {part: {name: x.clone() for name, x in state.items()} for part, state in states.items()}


def _state(optimiser: Any) -> Any:
    return deepcopy(optimiser.state_dict()["state"])


def _fields(progress: Progress) -> dict[str, Any]:
    return {each.name: copy(getattr(progress, each.name)) for each in fields(progress) if each.name not in _SPENT}
