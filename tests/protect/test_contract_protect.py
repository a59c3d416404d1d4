"""Every mechanism keeps the contract, and the contract catches mechanisms that do not."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from isthmus.core.kinds import ROWS, Kind
from isthmus.core.parcel import Parcel
from isthmus.methods.parts import PARTS
from isthmus.protect.base import Mechanism
from isthmus.protect.events import Clipped, Event
from isthmus.protect.fixed_point import FixedPoint
from isthmus.protect.gaussian import Gaussian
from isthmus.protect.laplace import Laplace
from isthmus.protect.secrets import Noise
from isthmus.testing import ProtectContract
from isthmus.testing.contract import FULL

Seal = tuple[Tensor, Event | None, Tensor | None]
# Options under which mechanisms do something.
OTHERS = {
    "nothing": Mechanism,
    "gaussian, rows": lambda: Gaussian(clip=1.0, sigma=0.5),
    "gaussian, clip alone": lambda: Gaussian(clip=1.0, clip_gradients=2.0),
    "gaussian, noise alone": lambda: Gaussian(sigma=0.5, sigma_gradients=0.1),
    "laplace, bound alone": lambda: Laplace(bound=0.5),
    "laplace, noise": lambda: Laplace(bound=0.5, scale=0.1),
    "gaussian, everything": lambda: Gaussian(
        clip=1.0, sigma=0.5, clip_adjoints=1.0, sigma_adjoints=0.1, clip_parameters=9.0, sigma_parameters=0.01,
        clip_gradients=1.0, sigma_gradients=0.1,
    ),
}  # fmt: skip


class TestProtect(ProtectContract):
    @pytest.fixture(autouse=True, params=[*PARTS["protect"], *OTHERS])
    def make(self, request: pytest.FixtureRequest) -> None:
        self.part = {**PARTS["protect"], **OTHERS}[request.param]
        self.before = (FixedPoint(),) if self.part().reads_whole else ()
        below = self.part().shares or self.part().of_devices  # these run over whole graphs alone
        self.settings = (FULL,) if below else type(self).settings


# ---- the contract can fail


def broken(make: type[Mechanism]) -> ProtectContract:
    """The contract of a mechanism that breaks it."""
    contract = ProtectContract()
    contract.part = make
    return contract


@dataclass(frozen=True)
class Rows(Mechanism):
    """Does something to rows of nodes; the parent of the broken ones."""

    def seal(self, parcel: Parcel, noise: Noise) -> Seal:
        if parcel.kind not in ROWS:
            return parcel.rows, None, None
        return self.sealed(parcel, noise)

    def sealed(self, parcel: Parcel, noise: Noise) -> Seal:
        raise NotImplementedError


@dataclass(frozen=True)
class InPlace(Rows):
    def sealed(self, parcel: Parcel, noise: Noise) -> Seal:
        return parcel.rows.mul_(0.5), Clipped(1.0), None


@dataclass(frozen=True)
class Silent(Rows):
    """Changes rows and says nothing."""

    def sealed(self, parcel: Parcel, noise: Noise) -> Seal:
        return parcel.rows * 0.5, None, None


@dataclass(frozen=True)
class Unopened(Rows):
    """Sends float32, and does not bring the format of the run back."""

    def sealed(self, parcel: Parcel, noise: Noise) -> Seal:
        return parcel.rows.float(), Clipped(1.0), None


@dataclass(frozen=True)
class Twice(Rows):
    """Draws noise for each listing of a row, from the process's generator, also for the server's rows."""

    def sealed(self, parcel: Parcel, noise: Noise) -> Seal:
        noise.draws += 1
        return parcel.rows + torch.randn_like(parcel.rows), Clipped(1.0), parcel.rows


@dataclass(frozen=True)
class ClipsTheServer(Rows):
    def sealed(self, parcel: Parcel, noise: Noise) -> Seal:
        return parcel.rows / parcel.rows.norm(dim=1, keepdim=True).clamp(min=1e-9), Clipped(1.0), None


@dataclass(frozen=True)
class Unregistered(Event):
    name: ClassVar[str] = "unregistered"


@dataclass(frozen=True)
class Strange(Rows):
    def sealed(self, parcel: Parcel, noise: Noise) -> Seal:
        return parcel.rows, Unregistered(), None


@dataclass(frozen=True)
class Shuffles(Mechanism):
    """Changes ids, and clips gradients that it does not ask to see silo by silo."""

    def seal(self, parcel: Parcel, noise: Noise) -> Seal:
        if parcel.kind == Kind.GRADIENTS:
            return parcel.rows.clamp(-1, 1), Clipped(1.0), None
        return parcel.rows.flip(0), Clipped(1.0), None


def test_a_mechanism_that_edits_in_place_is_caught() -> None:
    with pytest.raises(AssertionError, match="changed in place"):
        broken(InPlace).test_it_leaves_its_input_untouched()


def test_a_mechanism_that_does_not_say_what_it_does_is_caught() -> None:
    with pytest.raises(AssertionError, match="the ledger would say 'unprotected'"):
        broken(Silent).test_what_was_done_is_said()
    with pytest.raises(KeyError, match="unregistered"):
        broken(Strange).test_what_was_done_is_said()


def test_rows_in_another_format_are_caught() -> None:
    with pytest.raises(AssertionError, match="float32"):
        broken(Unopened).test_rows_stay_rows()


def test_noise_of_nobody_s_secret_is_caught() -> None:
    with pytest.raises(AssertionError, match="left as two values"):
        broken(Twice).test_a_row_that_is_listed_twice_leaves_as_one_value()
    with pytest.raises(AssertionError, match="do not follow from the secrets"):
        broken(Twice).test_noise_is_fresh_and_a_silo_s_own()
    with pytest.raises(AssertionError, match="that the server made"):
        broken(Twice).test_what_the_server_made_is_not_perturbed()
    with pytest.raises(AssertionError, match="a second run of one spec has other losses"):
        broken(Twice).test_two_runs_of_one_spec_share_nothing()


def test_a_second_clip_at_the_server_is_caught() -> None:
    with pytest.raises(AssertionError, match="that the server made were changed"):
        broken(ClipsTheServer).test_what_the_server_made_is_not_perturbed()


def test_changed_ids_and_sums_are_caught() -> None:
    with pytest.raises(AssertionError, match="ids were changed|schema were changed"):
        broken(Shuffles).test_whole_numbers_arrive_as_they_left()
    with pytest.raises(AssertionError, match=r"separates\(\) must say so"):
        broken(Shuffles).test_payloads_that_need_it_are_sealed_silo_by_silo()
