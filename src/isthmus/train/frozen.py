"""What absent silos of a process have for themselves, put back at the end of every round that they miss."""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.engine.learner import Learner
from isthmus.train.stage import Stage


class Frozen:
    """What absent silos of this process have for themselves, which stands still while they are away."""

    def __init__(self, learner: Learner, places: Sequence[int]) -> None:
        self.places = list(places)
        self._kept = {
            name: {key: x[self.places].clone() for key, x in model.sets.everything().items()}
            for name, model in learner.models.items()
            if model.sets.count > 1
        }

    def put_back(self, learner: Learner, stage: Stage) -> None:
        """Put back what syncs do not share; what they share is that of the members, which a silo gets on return."""
        shares = stage.phase.sync.shares
        for name, kept in self._kept.items():
            live = learner.models[name].sets.everything()
            shared = shares if name in stage.syncs else (lambda _: False)
            for key in [key for key in kept if not shared(key)]:
                live[key][self.places] = kept[key]
