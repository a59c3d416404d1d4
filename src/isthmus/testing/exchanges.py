"""The contract of exchanges: subclass ``ExchangeContract`` in the tests of a new one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from isthmus.core.kinds import Kind
from isthmus.core.parcel import Parcel
from isthmus.graph.graph import VALID
from isthmus.graph.silo import Silo
from isthmus.methods.exchange.base import Exchange, Nothing
from isthmus.methods.method import Method
from isthmus.methods.schedule import Schedule
from isthmus.methods.sync.base import Sync
from isthmus.methods.sync.fedavg import FedAvg
from isthmus.testing.contract import FULL, SAMPLED, PartContract, close_losses, parameters_of
from isthmus.testing.runs import method_of, small_silos, step_losses, uneven_silos, walk
from isthmus.train.loop import seed_losses, train
from isthmus.train.training import Training
from isthmus.wire.local import LocalWire
from isthmus.wire.policy import Policy, Refused

VIEWS = ("drop", "placeholder", "halo")


class ExchangeContract(PartContract):
    """Properties of an exchange: subclass it; ``part`` makes the spec.

    ``neutral`` makes it with the options under which silos without a boundary train as without any exchange, where
    other options do more than cross (moving averages over time, say).
    """

    part: Callable[[], Exchange]
    neutral: Callable[[], Exchange] | None = None
    settings: ClassVar[Sequence[Mapping[str, Any]]] = (
        FULL, SAMPLED, {**FULL, "batch": 3, "fanout": (2,)}, {"batches": "joint"},
    )  # fmt: skip

    def composed(self, part: Any, **others: Any) -> Method:
        """Federated averaging in rounds of two epochs, with the exchange."""
        beside = {"sync": FedAvg(local_epochs=2), "models": self.part().needs}
        return method_of(**{"exchange": part, **beside, **others})

    def test_the_view_is_one_of_three(self) -> None:
        """With joint and with local batches ``view`` is ``drop``, ``placeholder`` or ``halo``."""
        for batches in ("local", "joint"):
            spec = self.part().with_batches(batches)
            assert spec.view in VIEWS, f"view is '{spec.view}' with {batches} batches; it must be one of {VIEWS}"
            assert spec.with_batches(batches) == spec, f"{spec} is not in its form for {batches} batches"

    def test_without_a_boundary_it_is_local_training(self) -> None:
        """One silo, or several between which no edge runs, have the losses that they have without an exchange."""
        make = self.neutral or self.part
        for silos in (small_silos(1), small_silos(3, inner=True)):
            for given in self.settings:
                run = {**given, "fanout": (-1,)}
                mine, local = (
                    step_losses(self.opened(self.composed(each), silos, **run)) for each in (make(), Nothing())
                )
                close_losses(mine, local, f"{len(silos)} silos without a boundary, {run}")

    def test_silos_without_edges_or_nodes_do_not_break_it(self) -> None:
        """Federations with such silos train and are scored, and all parameters stay finite."""
        for given in self.settings:
            training = self.fresh(uneven_silos(), **given)
            step_losses(training)
            training.stage.scorer.logits(VALID)
            for name, tensor in parameters_of(training).items():
                assert bool(torch.isfinite(tensor).all()), f"{name} is not finite, with {dict(given)}"

    def test_labels_on_edges_are_served_or_refused(self) -> None:
        """Both ends of a labelled edge meet after the last layer; an exchange that cannot serve that says so."""
        for given in self.settings:
            self.served_or_refused(self.composed(self.part()), small_silos(edge_task=True), **given)

    def test_a_schedule_lets_silos_rest(self) -> None:
        """Where something crosses within steps, some silos can cross while others, or all, do not."""
        for schedule in (Schedule(share=0.5), Schedule(every=2), Schedule(silos=0)):
            for given in self.settings if self.part().stepwise else ():
                self.served_or_refused(self.composed(self.part(), schedule=schedule), **given)

    def test_tables_and_notes_can_be_reported(self) -> None:
        """``table_bytes`` has a number for each of my silos, before and after training; notes are sentences."""
        training = self.fresh(uneven_silos())
        live = training.stage.exchange
        for _ in (None, *walk(training)):
            kept = live.table_bytes()
            assert len(kept) == 4 and all(isinstance(size, int) and size >= 0 for size in kept), kept
            assert kept[3] == 0, f"a silo without nodes keeps {kept[3]} bytes"
        for note in live.notes():
            assert isinstance(note, str) and note.endswith("."), f"'{note}' is no sentence"

    def test_what_crosses_asks_the_policy(self) -> None:
        """Where the ledger counts more than without an exchange, a policy that refuses everything stops it."""
        bare, mine = (train(self.opened(self.composed(each))).bytes for each in (Nothing(), self.part()))
        training = self.fresh()
        training.wire.policy = Silence()
        refused = [name for name, act in _acts(training) if _refuses(act)]
        assert bool(refused) == (bare != mine), f"{mine} crossed, {bare} without it; refused: {refused or 'nothing'}"

    def test_nothing_reaches_another_silo_beside_the_door(self) -> None:
        """On a wire that delivers zeros, features and labels of one silo do not matter to the others."""
        silos = small_silos()
        spoilt = [*silos[:2], _spoilt(silos[2])]
        for given in [each for each in self.settings if each["batches"] == "local"]:
            ends = []
            for parts in (silos, spoilt):
                training = self.opened(self.composed(self.part(), sync=Sync()), parts, wire=MuteWire(3), **given)
                step_losses(training)
                ends.append(parameters_of(training))
            clean, beside = ends
            assert any(not torch.equal(clean[name][2], beside[name][2]) for name in clean)
            for name in clean:
                same = torch.equal(clean[name][:2], beside[name][:2])
                assert same, f"{name} of other silos depends on rows that no parcel has brought them"


@dataclass(frozen=True)
class Silence(Policy):
    """A policy that lets nothing leave."""

    def refusal(self, parcel: Parcel) -> str:
        """Every parcel is refused."""
        return "nothing leaves here"


class MuteWire(LocalWire):
    """A wire that delivers whole numbers, so that silos find each other, and zeros in place of all other numbers."""

    def leave(self, kind: Kind, parcels: Any, carry: Any, *given: Any, **options: Any) -> Any:
        """Rows of nodes may be added up on their way, where nothing is swapped between hosts: they leave as zeros."""
        muted = {key: replace(each, rows=_muted(each.rows)) if each.of_nodes else each for key, each in parcels.items()}
        return super().leave(kind, muted, carry, *given, **options)

    def _deliver(self, kind: Kind, letters: dict[tuple[int, int], Tensor]) -> dict[tuple[int, int], Tensor]:
        return {ends: _muted(x) for ends, x in letters.items()}

    def _swap(self, kind: Kind, rows: Tensor, leaving: list[int], arriving: list[int]) -> Tensor:
        return _muted(rows)

    def _sum_hosts(self, kind: Kind, x: Tensor, per_silo: bool) -> Tensor:
        return _muted(x).sum(0)


def _muted(x: Tensor) -> Tensor:
    return torch.zeros_like(x) if x.is_floating_point() else x


def _spoilt(silo: Silo) -> Silo:
    """The silo with other features and labels."""
    assert isinstance(silo.x, Tensor)
    return replace(silo, x=3 - silo.x, y=(silo.y + 1) % 3)


def _acts(training: Training) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield everything an exchange does, by name: it opens, serves a step, ends a round, serves a score."""
    stage, progress = training.stage, training.progress

    def first_step() -> None:
        works = stage.works(next(iter(stage.epoch_seeds(progress))), 0)
        loss = torch.stack([seed_losses(stage, work).sum() for work in works]).sum()
        training.wire.close(loss).backward()

    yield "open", lambda: stage.phase.exchange.open(stage.site)
    yield "a step", first_step
    yield "the end of a round", stage.exchange.round_end
    yield "a score", lambda: stage.scorer.logits(VALID)


def _refuses(act: Callable[[], object]) -> bool:
    """Whether an act is stopped by the policy."""
    try:
        act()
    except Refused:
        return True
    return False
