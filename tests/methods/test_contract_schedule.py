"""Every schedule keeps the contract, and the contract catches schedules that do not."""

import random
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from isthmus.core.kinds import Purpose
from isthmus.methods.parts import PARTS
from isthmus.methods.schedule import Schedule, Shrinking, Timetable
from isthmus.testing import ScheduleContract

# Options that a default does not show.
OTHERS = {
    "every third": lambda: Schedule(every=3),
    "half": lambda: Schedule(share=0.5),
    "two of them, every second": lambda: Schedule(every=2, silos=2),
    "nobody": lambda: Schedule(silos=0),
    "nobody's share": lambda: Schedule(share=0.0),
    "shrinking to every step": lambda: Shrinking(period=4, shrink=0.5),
    "shrinking, every second": lambda: Shrinking(every=2, silos=1, period=3),
    "shrunk": lambda: Shrinking(period=1),
}


class TestSchedule(ScheduleContract):
    @pytest.fixture(autouse=True, params=[*PARTS["schedule"], *OTHERS])
    def make(self, request: pytest.FixtureRequest) -> None:
        self.part = {**PARTS["schedule"], **OTHERS}[request.param]


# ---- the contract can fail


def broken(table: type[Timetable], **options: object) -> ScheduleContract:
    """The contract of a schedule whose timetable breaks it."""

    @dataclass(frozen=True)
    class Broken(Schedule):
        def open(self, seed: int, learn: Tensor) -> Timetable:
            return table(self, seed, learn)

    contract = ScheduleContract()
    contract.part = lambda: Broken(**options)
    return contract


class Counts(Timetable):
    """Hidden state: everybody crosses at every third question."""

    asked = 0

    def due(self, step: int) -> Tensor:
        self.asked += 1
        return torch.full_like(self.learn, self.asked % 3 == 0)


class Draws(Timetable):
    """Hidden state of the process: a draw from the global generator."""

    def due(self, step: int) -> Tensor:
        return self.learn & torch.tensor([random.random() < 0.5 for _ in self.learn])


class TakesTheIdle(Timetable):
    """Lets the first silo cross, whether it learns or not."""

    def across(self, step: int) -> Tensor:
        return torch.arange(len(self.learn)) == 0


class Remembers(Timetable):
    """Hands out one tensor again and again."""

    def across(self, step: int) -> Tensor:
        return self.__dict__.setdefault(f"at-{step}", super().across(step))


class Mislabels(Timetable):
    def purpose(self, step: int) -> Purpose:
        return Purpose.STEP


def test_hidden_state_is_caught() -> None:
    random.seed(0)  # draws that happen to be alike would not be caught
    for table in (Counts, Draws):
        with pytest.raises(AssertionError, match="depends on what was asked before|on how often it was asked"):
            broken(table, share=0.5).test_it_follows_from_seed_and_step_alone()
    with pytest.raises(AssertionError, match="losses"):
        broken(Draws, share=0.5).test_two_runs_of_one_spec_share_nothing()


def test_a_silo_that_crosses_for_nothing_is_caught() -> None:
    with pytest.raises(AssertionError, match="at step 0 .* cross"):
        broken(TakesTheIdle, share=0.5).test_silos_with_nothing_to_learn_do_not_cross()


def test_answers_that_can_be_overwritten_are_caught() -> None:
    with pytest.raises(AssertionError, match="can be overwritten"):
        broken(Remembers, share=0.5).test_an_answer_is_the_asker_s_own()


def test_a_schedule_that_says_more_than_it_keeps_is_caught() -> None:
    with pytest.raises(AssertionError, match="not always that all cross"):
        broken(TakesTheIdle).test_what_it_says_of_itself_is_so()
    with pytest.raises(AssertionError, match="though nobody ever should"):
        broken(TakesTheIdle, silos=0).test_what_it_says_of_itself_is_so()
    with pytest.raises(AssertionError, match="is called step"):
        broken(Mislabels, share=0.5).test_the_ledger_calls_steps_by_who_crosses()
