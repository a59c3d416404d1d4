"""The contract of syncs: subclass ``SyncContract`` in the tests of a new one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.graph.graph import TEST, TRAIN, VALID
from isthmus.graph.silo import Silo
from isthmus.methods.exchange.base import Exchange, Nothing
from isthmus.methods.exchange.fwd_bwd_le import LayerWise
from isthmus.methods.method import Method
from isthmus.methods.sync.base import Sync
from isthmus.protect.base import Mechanism
from isthmus.protect.gaussian import Gaussian
from isthmus.testing.contract import PartContract, parameters_of
from isthmus.testing.runs import method_of, small_silos, step_losses, uneven_silos, walk
from isthmus.train.loop import end_round
from isthmus.train.training import Training

SEPARATE = Gaussian(clip_gradients=1e9)  # gradients must be seen silo by silo, and are left as they are


class SyncContract(PartContract):
    """Properties of a sync: subclass it; ``part`` makes the spec, ``exchange`` what crosses beside it."""

    part: Callable[[], Sync]

    def exchange(self) -> Exchange:
        """What crosses in the runs of this contract."""
        return Nothing("placeholder")

    def composed(self, part: Any, **others: Any) -> Method:
        """A method that agrees on parameters by the sync."""
        return method_of(**{"exchange": self.exchange(), "sync": part, **others})

    def test_what_it_says_of_itself_fits_together(self) -> None:
        """In lockstep all is shared, alone nothing; models are personal where some is not shared, or is mixed."""
        spec, names = self.part(), parameters_of(self.fresh())
        shared = [name for name in names if spec.shares(name)]
        assert not (spec.lockstep and spec.alone), "silos that are alone cannot be in lockstep"
        assert not spec.lockstep or len(shared) == len(names), f"in lockstep, but only {shared} are shared"
        assert not spec.alone or not shared, f"alone, but {shared} are shared"
        own = spec.mixes or len(shared) < len(names)
        assert spec.personal == own, f"personal is {spec.personal}, but {shared} are shared"

    def test_rounds_end(self) -> None:
        """Some round ends within 50 epochs of 4 steps, and when it does follows from the step alone."""
        times = [(step, (step - 1) // 4 + 1, step % 4 == 0) for step in range(1, 201)]
        ends, again = ([self.part().round_over(*time) for time in order] for order in (times, times[::-1]))
        assert any(ends), "no round ends in 50 epochs, so that silos would never agree"
        assert ends == again[::-1], "when a round ends depends on what was asked before"

    def test_after_a_round_silos_agree_on_what_is_shared(self) -> None:
        """All silos hold equal values of what ``shares`` names, and keep their own of everything else, untouched.

        Where the sync ``mixes``, what it shares are means: no value lies outside of those that silos had.
        """
        for protect in self._chains():
            for given in self.settings:
                training = self.opened(self.composed(self.part(), protect=protect), epochs=2, **given)
                for _ in walk(training, rounds=False):
                    pass
                before = parameters_of(training)
                end_round(training.stage)
                self._check_round(training, before)

    def _check_round(self, training: Training, before: dict[str, Tensor]) -> None:
        spec, after = training.stage.phase.sync, parameters_of(training)
        apart = any(not _equal(p) for p in before.values())
        assert apart or spec.lockstep, "silos have not gone ways of their own, although they are not in lockstep"
        for name, p in after.items():
            if spec.shares(name) and spec.mixes:
                low, high = (bound.values for bound in (before[name].min(0), before[name].max(0)))
                inside = (p >= low - 1e-12) & (p <= high + 1e-12)
                assert bool(inside.all()), f"{name} is no mean of what silos had before the round ended"
                assert not torch.equal(p, before[name]), f"{name} was not mixed at the end of a round"
            elif spec.shares(name):
                assert _equal(p), f"silos hold different values of {name} after a round, which they share"
            else:
                assert torch.equal(p, before[name]), f"{name} has changed at the end of a round; it is not shared"

    def test_in_lockstep_silos_hold_one_value_at_every_step(self) -> None:
        """Silos in lockstep hold equal parameters at every step, also where each has a parameter set of its own."""
        for protect in self._chains() if self.part().lockstep else ():
            for given in self.settings:
                training = self.opened(self.composed(self.part(), protect=protect), **given)
                for _ in walk(training, rounds=False):
                    wrong = [name for name, p in parameters_of(training).items() if not _equal(p)]
                    assert not wrong, f"silos in lockstep hold different values of {wrong}"

    def test_silos_without_seeds_stay_where_they_are(self) -> None:
        """A step on the seeds of other silos moves only those, unless all move in lockstep."""
        training = self.fresh(_few_seeds(), batches="local", batch=3, fanout=(2,))
        before, rested = parameters_of(training), 0
        for seeds in walk(training, rounds=False):
            after, idle = parameters_of(training), seeds.counts() == 0
            for name, p in after.items():
                moved = not self.part().lockstep and not torch.equal(p[idle], before[name][idle])
                assert not moved, f"{name} of a silo without seeds has moved"
            before, rested = after, rested + int(idle.sum())
        assert rested > 0

    def test_silos_without_edges_or_nodes_do_not_break_it(self) -> None:
        """Federations with such silos train, and all parameters stay finite."""
        for given in self.settings:
            training = self.fresh(uneven_silos(), **given)
            step_losses(training)
            for name, p in parameters_of(training).items():
                assert bool(torch.isfinite(p).all()), f"{name} is not finite, with {dict(given)}"

    def test_every_exchange_is_served_or_refused(self) -> None:
        """The sync works, or says why not, with far ends dropped, with placeholders, and with rows of their owners."""
        for exchange in (Nothing(), Nothing("placeholder"), LayerWise()):
            self.served_or_refused(self.composed(self.part(), exchange=exchange), batches="joint")

    def _chains(self) -> list[tuple[Mechanism, ...]]:
        """Protection with which silos share one set of parameters, and one with which each has its own."""
        try:
            self.opened(self.composed(self.part(), protect=(SEPARATE,)))
        except IsthmusError:
            return [()]
        return [(), (SEPARATE,)]


def _equal(p: Tensor) -> bool:
    """Whether all sets [sets, ...] are equal."""
    return bool((p == p[:1]).all())


def _few_seeds() -> list[Silo]:
    """Three silos: all nodes of the first are to be learnt from, none of the second, one of the third."""
    splits = [torch.full((8,), split, dtype=torch.int8) for split in (TRAIN, VALID, TEST)]
    splits[2][0] = TRAIN
    return [replace(silo, split=split) for silo, split in zip(small_silos(3, 24), splits, strict=True)]
