"""Every sync keeps the contract, and the contract catches syncs that do not."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
from torch import Tensor

from isthmus.engine.learner import Learned
from isthmus.engine.site import Site
from isthmus.methods.exchange.swift import ServerAggregate
from isthmus.methods.parts import PARTS
from isthmus.methods.sync.base import LiveSync, Losses, Sync
from isthmus.methods.sync.ce_fedgnn import GradientAverage
from isthmus.methods.sync.fed_pub import LiveSimilarModels, SimilarModels
from isthmus.methods.sync.fedavg import FedAvg, LiveFedAvg
from isthmus.methods.sync.fedpergnn import PseudoItems
from isthmus.methods.sync.llcg import LLCG
from isthmus.methods.sync.llcg_every_step import LLCGEveryStep
from isthmus.methods.sync.sync_sgd import LiveSyncSGD, SyncSGD
from isthmus.testing import SyncContract
from isthmus.testing.contract import FULL, SAMPLED

# Options that a default does not show.
OTHERS = {
    "fedavg, private head": lambda: FedAvg(local_epochs=2, weights="silos", private=("head", "layers.1")),
    "ce-fedgnn, short rounds": lambda: GradientAverage(local_steps=3, beta=0.5, private=("layers.0",)),
    "ce-fedgnn, private embedding": lambda: GradientAverage(private=("embed",)),
    "sync-sgd, seeds": lambda: SyncSGD(weights="seeds"),
    "fed-pub, private head": lambda: SimilarModels(local_epochs=2, tau=10.0, private=("head",), blocks=2, nodes=6),
    "fedpergnn, no items": lambda: PseudoItems(items=0, weights="nodes"),
    "llcg, short rounds": lambda: LLCG(local_steps=2, growth=1.5, corrections=2, seeds=4, neighbours=2, lr=0.01),
    "llcg-every-step, few": lambda: LLCGEveryStep(every=2, seeds=4, neighbours=2),
}
UNNAMED = "sync.private=embed names nothing: the parameters of the embedding are called enter.*"


class TestSync(SyncContract):
    @pytest.fixture(autouse=True, params=[*PARTS["sync"], *OTHERS])
    def make(self, request: pytest.FixtureRequest) -> None:
        self.part = {**PARTS["sync"], **OTHERS}[request.param]
        if self.part().name.startswith("llcg"):  # the server's sample needs rows of far ends
            self.exchange = ServerAggregate
        if self.part().name == "fedpergnn":  # each silo computes its own gradient
            self.settings = (FULL, {**SAMPLED, "batches": "local"})


# ---- the contract can fail


def broken(live: type[LiveSync], parent: type[Sync] = FedAvg) -> SyncContract:
    """The contract of a sync whose live part breaks it."""

    @dataclass(frozen=True)
    class Broken(parent):
        def open(self, site: Site, model: Learned, losses: Losses) -> LiveSync:
            return live(self, site, model, losses)

    contract = SyncContract()
    contract.part = Broken
    return contract


class ForgetsToAverage(LiveFedAvg):
    def round_end(self) -> None:
        pass


class AveragesAll(LiveFedAvg):
    """Averages what is private, too."""

    def round_end(self) -> None:
        sets = self.model.sets
        sets.load(sets.names(), sets.flat(sets.names()).mean(0))


class Extrapolates(LiveSimilarModels):
    """Steps beyond what silos have sent."""

    def round_end(self) -> None:
        before = self.model.sets.flat(self._names)
        super().round_end()
        mixed = self.model.sets.flat(self._names)
        self.model.sets.load(self._names, 2 * before - mixed)


class KeepsOwnGradients(LiveSyncSGD):
    def gradients(self, active: Tensor) -> None:
        pass


class MovesEverybody(LiveFedAvg):
    """Decays the parameters of all silos, also of those that had nothing to learn from."""

    def step_end(self, step: int) -> None:
        for view in self.model.sets.for_optimiser():
            view.data *= 0.99


class ForgetsItsAverage(LiveFedAvg):
    """Keeps a moving average of gradients outside of its state."""

    def gradients(self, active: Tensor) -> None:
        fresh = self.model.sets.flat_gradients()
        self.__dict__["average"] = (self.__dict__.get("average", fresh) + fresh) / 2
        self.model.sets.load_gradients(self.__dict__["average"])


def test_silos_that_do_not_agree_are_caught() -> None:
    with pytest.raises(AssertionError, match="different values of .* after a round"):
        broken(ForgetsToAverage).test_after_a_round_silos_agree_on_what_is_shared()


def test_an_average_of_what_is_private_is_caught() -> None:
    @dataclass(frozen=True)
    class Personal(FedAvg):
        private: tuple[str, ...] = ("head",)

    with pytest.raises(AssertionError, match="head.* has changed at the end of a round"):
        broken(AveragesAll, Personal).test_after_a_round_silos_agree_on_what_is_shared()


def test_what_is_no_mean_is_caught() -> None:
    with pytest.raises(AssertionError, match="is no mean of what silos had"):
        broken(Extrapolates, SimilarModels).test_after_a_round_silos_agree_on_what_is_shared()


def test_silos_that_leave_the_lockstep_are_caught() -> None:
    with pytest.raises(AssertionError, match="silos in lockstep hold different values"):
        broken(KeepsOwnGradients, SyncSGD).test_in_lockstep_silos_hold_one_value_at_every_step()


def test_a_silo_that_moves_without_seeds_is_caught() -> None:
    with pytest.raises(AssertionError, match="of a silo without seeds has moved"):
        broken(MovesEverybody).test_silos_without_seeds_stay_where_they_are()


def test_state_outside_checkpoints_is_caught() -> None:
    with pytest.raises(AssertionError, match="losses differ in a run resumed after epoch 1"):
        broken(ForgetsItsAverage).test_a_resumed_run_goes_on_as_the_whole_one()


@dataclass(frozen=True)
class Endless(FedAvg):
    def round_over(self, step: int, epoch: int, epoch_over: bool) -> bool:
        return False


@dataclass(frozen=True)
class SharesInSecret(Sync):
    """Is alone, and shares its head."""

    name: ClassVar[str] = "secret"

    def shares(self, name: str) -> bool:
        return name.startswith("head")


def test_what_a_sync_says_of_itself_must_fit() -> None:
    contract = SyncContract()
    contract.part = Endless
    with pytest.raises(AssertionError, match="no round ends"):
        contract.test_rounds_end()
    contract.part = SharesInSecret
    with pytest.raises(AssertionError, match="alone, but .*head.* are shared"):
        contract.test_what_it_says_of_itself_fits_together()
