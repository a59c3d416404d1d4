"""The contract of schedules: subclass ``ScheduleContract`` in the tests of a new one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from isthmus.core.kinds import Purpose
from isthmus.methods.exchange.fwd_bwd_le import LayerWise
from isthmus.methods.method import Method
from isthmus.methods.schedule import Schedule, Timetable
from isthmus.methods.sync.fedavg import FedAvg
from isthmus.testing.contract import PartContract
from isthmus.testing.runs import method_of

STEPS = 60
SILOS = 5


class ScheduleContract(PartContract):
    """Properties of a schedule: subclass it; ``part`` makes the spec."""

    part: Callable[[], Schedule]

    def composed(self, part: Any, **others: Any) -> Method:
        """Layer-wise exchange at the steps that the schedule names, and federated averaging."""
        parts = {"exchange": LayerWise(), "sync": FedAvg(local_epochs=2), "schedule": part}
        return method_of(**{**parts, **others})

    def timetables(self) -> Iterator[tuple[Tensor, Timetable]]:
        """Timetables of two seeds for several federations, with those who have something to learn from: [silos]."""
        for learn in ([True] * SILOS, [True, False, True, True, False], [False, True, False, False, False]):
            for seed in (0, 7):
                yield torch.tensor(learn), self.part().open(seed, torch.tensor(learn))

    def test_it_names_silos_at_every_step(self) -> None:
        """``across`` has a yes or no for each silo of the federation, whoever learns."""
        for _, table in self.timetables():
            for step in range(STEPS):
                cross = table.across(step)
                assert cross.shape == (SILOS,) and cross.dtype == torch.bool, f"step {step} has {cross}"

    def test_it_follows_from_seed_and_step_alone(self) -> None:
        """Steps asked backwards, or of a second timetable, have the same silos: a resumed run goes on alike."""
        there = [[table.across(step) for step in range(STEPS)] for _, table in self.timetables()]
        for (_, table), expected in zip(self.timetables(), there, strict=True):
            back = [table.across(step) for step in reversed(range(STEPS))][::-1]
            again = [table.across(step) for step in range(STEPS)]
            for step, (a, b, c) in enumerate(zip(expected, back, again, strict=True)):
                assert torch.equal(a, b), f"who crosses at step {step} depends on what was asked before"
                assert torch.equal(a, c), f"who crosses at step {step} depends on how often it was asked"

    def test_an_answer_is_the_asker_s_own(self) -> None:
        """Writing into what came back, or into what the timetable was opened with, changes no later answer."""
        learn = torch.ones(SILOS, dtype=torch.bool)
        table = self.part().open(0, learn)
        for step in range(STEPS):
            first = table.across(step)
            kept = first.clone()
            first.logical_not_()
            assert torch.equal(table.across(step), kept), f"the answer for step {step} can be overwritten"

    def test_silos_with_nothing_to_learn_do_not_cross(self) -> None:
        """Silos without seeds do not cross, unless all that learn do: then everybody does."""
        for learn, table in self.timetables():
            for step in range(STEPS):
                cross = table.across(step)
                idle = bool(cross[~learn].any())
                assert not idle or bool(cross.all()), f"at step {step} {cross.tolist()} cross, {learn.tolist()} learn"
                assert bool(cross.all()) == bool(cross[learn].all()), f"all that learn cross at {step}: so must all"

    def test_what_it_says_of_itself_is_so(self) -> None:
        """``always``, ``ever``, ``draws`` and ``everybody`` are kept at every step."""
        spec = self.part()
        spec.check(SILOS)
        for learn, table in self.timetables():
            steps = [table.across(step) for step in range(STEPS)]
            some = [cross for cross in steps if bool(cross.any())]
            assert not spec.always or all(bool(cross.all()) for cross in steps), "it is not always that all cross"
            assert spec.ever or not some, "somebody crosses, though nobody ever should"
            assert spec.draws or all(torch.equal(cross, some[0]) for cross in some), "who crosses varies, but not draws"
            together = any(bool(cross[learn].all()) for cross in steps)
            assert spec.everybody(int(learn.sum())) or not together, "all cross at once, though they never should"

    def test_the_ledger_calls_steps_by_who_crosses(self) -> None:
        """A step is a crossing where all silos cross, mixed where some do; where all always do it is just a step."""
        for _, table in self.timetables():
            for step in range(STEPS):
                cross = table.across(step)
                expected = Purpose.CROSSING if bool(cross.all()) else Purpose.MIXED
                if self.part().always or not bool(cross.any()):
                    expected = Purpose.STEP
                found = table.purpose(step)
                assert found == expected, f"step {step}, at which {cross.tolist()} cross, is called {found}"
