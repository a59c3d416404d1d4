"""Rounds: who takes part in each, and how one that somebody was lost in is rolled back as a whole and taken again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from isthmus.core.errors import IsthmusError, PartyLost
from isthmus.core.kinds import Purpose
from isthmus.core.name_lists import some_of
from isthmus.train.frozen import Frozen
from isthmus.train.snapshot import Snapshot
from isthmus.train.training import Training
from isthmus.train.watcher import Watcher
from isthmus.wire.membership import Membership

_PAUSE = 0.2  # seconds between two looks whether enough parties are there
Attempt = Callable[[Training, Watcher], None]


class Returned(Exception):
    """Hosts of silos have returned, with which the run is opened anew from a round that was ``kept`` at its start."""

    def __init__(self, kept: Snapshot, silos: Sequence[int]) -> None:
        super().__init__("Hosts have returned, with which the run is to be opened anew.")
        self.kept, self.silos = kept, tuple(silos)


class Rounds:
    """The rounds of a phase in which the others go on without a party that is lost.

    Each ends, or is rolled back as a whole; who takes part changes between rounds alone.
    """

    def __init__(self, training: Training, watcher: Watcher) -> None:
        self.training, self.watcher = training, watcher
        self._everybody = training.wire.members
        self._kept: list[Snapshot] = []  # of the round that begins and, until all have begun it, of the one before

    def take(self, attempt: Attempt) -> None:
        """Take a round, as often as it takes to end: without a party that was lost in it the others take it again."""
        training, lost = self.training, False
        self._kept = [*self._kept[-1:], Snapshot(training)]
        training.wire.recovers = True
        while True:
            try:
                if lost:
                    self._roll_back()
                self._begin()
                attempt(training, self.watcher)
                break
            except PartyLost:
                lost = True
        training.wire.recovers = False

    def close(self) -> None:
        """End a phase: what comes after it is between all, in a simulation also those who missed its last rounds."""
        self.training.note_missed()
        wire = self.training.wire
        gone = [wire.party(silo) for silo in self._everybody.present if silo not in wire.members.present]
        if gone and not self.training.absence.away:
            self.training.federation.note(
                f"{some_of(gone)} was not there at the end: its ledger, its figures and its account of what it "
                "released are not in this report."
            )
        if self.training.wire.members != self._everybody and self.training.absence.away:
            self._change(self._everybody)

    def _begin(self) -> None:
        """Find out who takes part in the round; from then on nobody needs to go back behind its start."""
        training, wire = self.training, self.training.wire
        present = training.absence.present(training.progress.round, training.seed, wire.silos)
        planned = self._everybody.only(present) if training.absence.away else wire.members
        members = wire.muster(planned)
        while len(members.present) < training.absence.least:
            self._say_that_all_wait(members)
            members = wire.muster(planned)
        self._kept = self._kept[-1:]
        back = [silo for silo in members.present if silo not in wire.members.present]
        if back and wire.hosts > 1:  # their hosts are new processes, with which everything is to be agreed again
            wire.regroup(members)
            wire.recovers = False
            raise Returned(self._kept[-1], back)
        if members != wire.members:
            self._change(members)

    def _say_that_all_wait(self, members: Membership) -> None:
        """Say that too few are there to go on, once, and wait a little."""
        wire = self.training.wire
        gone = [wire.party(silo) for silo in range(wire.silos) if silo not in members.present]
        told = (
            f"Waiting in round {self.training.progress.round + 1} for {some_of(gone)}: {len(members.present)} parties "
            f"are there, and federation.least={self.training.absence.least}."
        )
        if told not in self.training.federation.notes:
            self.training.federation.note(told)
            print(told, file=sys.stderr, flush=True)
        time.sleep(_PAUSE)

    def _roll_back(self) -> None:
        """Go back to the start of a round that all who are left can go back to, and on without who was lost."""
        training = self.training
        members, number = training.wire.survivors([kept.number for kept in self._kept])
        self._kept = [kept for kept in self._kept if kept.number == number]
        self._kept[0].restore(training)
        gone = [training.wire.party(silo) for silo in training.wire.members.present if silo not in members.present]
        training.federation.note(
            f"Round {number + 1} was rolled back and taken again: {some_of(gone) if gone else 'a connection'} was lost "
            "in it. What had left in it by then left twice, and is counted twice."
        )
        self._change(members)
        self.watcher.on_rollback(training.progress)

    def _change(self, members: Membership) -> None:
        """Go on with other members than before."""
        training, before = self.training, self.training.wire.members.present
        if not bool(training.stage.layout.learn[list(members.present)].any()):
            raise IsthmusError(
                f"In round {training.progress.round + 1} no silo is there that has anything to learn from; let those "
                "with training labels be away at other times."
            )
        ledger, progress = training.wire.ledger, training.progress
        ledger.epoch, ledger.step = progress.epoch + 1, progress.step + 1
        with ledger.during(Purpose.SETUP):
            training.stage.regroup(members)
            training.stage.exchange.welcome([silo for silo in members.present if silo not in before])
        places = [place for place, silo in enumerate(training.wire.mine) if silo not in members.present]
        training.frozen = Frozen(training.learner, places) if places else None
