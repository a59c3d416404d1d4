"""Every exchange keeps the contract, and the contract catches exchanges that do not."""

from dataclasses import dataclass, field
from typing import ClassVar

import pytest
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.engine.site import Site
from isthmus.methods.exchange.base import Exchange, LiveExchange
from isthmus.methods.exchange.ce_fedgnn import MovingAverage
from isthmus.methods.exchange.fedgcn import FeatureSums
from isthmus.methods.exchange.fwd_bwd_le import FreshRows
from isthmus.methods.exchange.generated import Generated
from isthmus.methods.exchange.hifgl import SecretMessages
from isthmus.methods.exchange.optimes import LiveOptimES, OptimES
from isthmus.methods.exchange.swift import ServerAggregate
from isthmus.methods.parts import PARTS
from isthmus.nn.norm import Pass
from isthmus.sample.batches import Batch
from isthmus.testing import ExchangeContract
from isthmus.wire.policy import Policy

# Options that a default does not show.
OTHERS = {
    "nothing, placeholders": lambda: PARTS["exchange"]["nothing"](halo="placeholder"),
    "fresh rows": FreshRows,
    "ce-fedgnn, plain": lambda: MovingAverage(gamma=0.3, first="zero", backward="plain", scored_with="released"),
    "fedgcn, one hop": lambda: FeatureSums(hops=1),
    "hifgl, sums of two": lambda: SecretMessages(fewest=2, padded_to=32),
    "swift, reused": lambda: ServerAggregate(adjoint=False, fewest=2, reuse=True),
}
NEUTRAL = {
    "hifgl, sums of two": SecretMessages,
    "ce-fedgnn": lambda: MovingAverage(gamma=1.0),
    "ce-fedgnn, plain": lambda: MovingAverage(gamma=1.0),
    "generated": lambda: Generated(rate=0.0),
}


class TestExchange(ExchangeContract):
    @pytest.fixture(autouse=True, params=[*PARTS["exchange"], *OTHERS])
    def make(self, request: pytest.FixtureRequest) -> None:
        name = request.param
        self.part, self.neutral = {**PARTS["exchange"], **OTHERS}[name], NEUTRAL.get(name)
        if self.part().whole_graphs:
            self.settings = [each for each in self.settings if not each.get("batch")]


# ---- the contract can fail


def broken(make: type[Exchange]) -> ExchangeContract:
    """The contract of an exchange that breaks it."""
    contract = ExchangeContract()
    contract.part = make
    return contract


@dataclass(frozen=True)
class OnTheSpec(OptimES):
    """Keeps its cache on the spec, in a default that all specs share."""

    cache: ClassVar[dict[str, Tensor]] = {}

    def open(self, site: Site) -> LiveExchange:
        live = LiveOptimES(self, site)
        self.cache.update(live.state)
        live.state = self.cache
        return live


@dataclass(frozen=True)
class HiddenField(OptimES):
    cache: dict[str, Tensor] = field(default_factory=dict, compare=False, hash=False)


class Undecorated(OptimES):
    pass


def test_state_on_a_spec_is_caught() -> None:
    with pytest.raises(AssertionError, match="a second run of one spec has other losses|disturb each other"):
        broken(OnTheSpec).test_two_runs_of_one_spec_share_nothing()
    with pytest.raises(AssertionError, match="cache is left out"):
        broken(HiddenField).test_specs_are_equal_by_value()
    with pytest.raises(AssertionError, match="above class Undecorated"):
        broken(Undecorated).test_the_spec_is_a_frozen_dataclass()


@dataclass(frozen=True)
class Forgets(OptimES):
    """Its cache is no part of its state, and so of no checkpoint."""

    def open(self, site: Site) -> LiveExchange:
        return LiveForgets(self, site)


class LiveForgets(LiveOptimES):
    @property
    def state(self) -> dict[str, Tensor]:
        cache: dict[str, Tensor] = self.__dict__.setdefault("cache", {})
        return cache

    @state.setter
    def state(self, loaded: dict[str, Tensor]) -> None:
        pass


def test_state_outside_checkpoints_is_caught() -> None:
    with pytest.raises(AssertionError, match="in a run resumed after epoch"):
        broken(Forgets).test_a_resumed_run_goes_on_as_the_whole_one()


@dataclass(frozen=True)
class Peeks(Exchange):
    """Reads the mean of all silos' features of its host, which none of them has sent."""

    def open(self, site: Site) -> LiveExchange:
        return LivePeeks(self, site)


class LivePeeks(LiveExchange):
    def settle(self, layer: int, pre: Tensor, batch: Batch, this: Pass) -> Tensor:
        return pre + self.site.stack.x.mean()


def test_a_look_into_another_silo_is_caught() -> None:
    with pytest.raises(AssertionError, match="depends on rows that no parcel has brought"):
        broken(Peeks).test_nothing_reaches_another_silo_beside_the_door()
    with pytest.raises(AssertionError, match="without a boundary"):
        broken(Peeks).test_without_a_boundary_it_is_local_training()


@dataclass(frozen=True)
class OneSize(Exchange):
    """Tells one size for all silos."""

    def open(self, site: Site) -> LiveExchange:
        return LiveOneSize(self, site)


class LiveOneSize(LiveExchange):
    def table_bytes(self) -> list[int]:
        return [0]


@dataclass(frozen=True)
class EverythingInView(Exchange):
    @property
    def view(self) -> str:
        return "everything"


def test_what_cannot_be_laid_out_or_reported_is_caught() -> None:
    with pytest.raises(AssertionError, match="view is 'everything'"):
        broken(EverythingInView).test_the_view_is_one_of_three()
    with pytest.raises(AssertionError, match=r"\[0\]"):
        broken(OneSize).test_tables_and_notes_can_be_reported()


@dataclass(frozen=True)
class Unbooked(OptimES):
    """Puts a policy of its own in place of the party's while its rows cross."""

    def open(self, site: Site) -> LiveExchange:
        return LiveUnbooked(self, site)


class LiveUnbooked(LiveOptimES):
    def round_end(self) -> None:
        wire = self.site.wire
        policy, wire.policy = wire.policy, Policy()
        super().round_end()
        wire.policy = policy


def test_a_policy_that_is_not_asked_is_caught() -> None:
    with pytest.raises(AssertionError, match="refused: nothing"):
        broken(lambda: Unbooked("released")).test_what_crosses_asks_the_policy()


def test_a_refusal_is_no_failure_but_a_crash_is() -> None:
    @dataclass(frozen=True)
    class Refuses(Exchange):
        error: type[Exception] = IsthmusError

        def open(self, site: Site) -> LiveExchange:
            if site.schema.target == "edge":
                raise self.error("use labels on nodes")
            return super().open(site)

    broken(Refuses).test_labels_on_edges_are_served_or_refused()
    with pytest.raises(IndexError):
        broken(lambda: Refuses(IndexError)).test_labels_on_edges_are_served_or_refused()
