"""The contract of mechanisms of protection: subclass ``ProtectContract`` in the tests of a new one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from isthmus.core.kinds import ROWS, SERVER, Kind
from isthmus.core.parcel import Origin, Parcel, Traffic
from isthmus.methods.exchange.fwd_bwd_le import LayerWise
from isthmus.methods.exchange.hifgl import SecretMessages
from isthmus.methods.method import Method
from isthmus.methods.sync.fedavg import FedAvg
from isthmus.protect.base import Chain, Mechanism, Sealed
from isthmus.protect.events import UNPROTECTED, Event, describe, from_json, to_json
from isthmus.protect.secrets import Noise, secrets_from_seed
from isthmus.testing.contract import PartContract
from isthmus.testing.runs import method_of

REAL = (*ROWS, Kind.PARAMETERS, Kind.GRADIENTS, Kind.STATISTICS, Kind.METRICS, Kind.SCORES, Kind.FEATURES)
WHOLE = tuple(kind for kind in Kind if kind not in REAL)  # ids and the like: whole numbers
WIDTH = 6
LISTED = torch.tensor([[0, 4], [0, 2], [0, 4], [1, 9], [1, 9], [1, 3]])  # (silo, row), two of them listed twice


class ProtectContract(PartContract):
    """Properties of a mechanism: subclass it; ``part`` makes it, with options under which it does something.

    ``before``: mechanisms that it needs before it.
    """

    part: Callable[[], Mechanism]
    before: Sequence[Mechanism] = ()

    def composed(self, part: Any, **others: Any) -> Method:
        """Layer-wise exchange and federated averaging, whose rows, adjoints and parameters pass the mechanism.

        Shares, and what devices alone send, pass it in an exchange that adds up rows of devices.
        """
        below = part.shares or part.of_devices
        # Bounds of a silo's own gradients go with rows of others, and not with their derivatives.
        exchange = SecretMessages() if below else LayerWise(adjoint=not part.bounds_seeds)
        parts = {"exchange": exchange, "sync": FedAvg(local_epochs=2), "protect": (*self.before, part)}
        return method_of(**{**parts, **others})

    @property
    def chain(self) -> Chain:
        """The mechanism behind those that it needs."""
        return Chain((*self.before, self.part()))

    def sealed(self, parcel: Parcel, noise: Noise | None = None) -> Sealed:
        """A parcel as it leaves, with noise of two silos."""
        return self.chain.seal(parcel, noise or _noise())

    def test_it_leaves_its_input_untouched(self) -> None:
        """Rows are sealed into new tensors; what a silo goes on computing with stays as it was."""
        for parcel in _parcels():
            before, listed = parcel.rows.clone(), LISTED.clone()
            self.sealed(parcel)
            assert torch.equal(parcel.rows, before), f"{parcel.kind} were changed in place"
            assert torch.equal(LISTED, listed), "the origin was changed in place"

    def test_rows_stay_rows(self) -> None:
        """Sealing keeps the number of rows, and opening restores the width and number format of the run.

        What is no row of a node is never opened: sums are made of it as it leaves.
        """
        for parcel in _parcels():
            done = self.sealed(parcel)
            assert len(done.rows) == len(parcel.rows), f"{len(done.rows)} of {len(parcel.rows)} {parcel.kind} left"
            opened = self.chain.open(parcel.kind, done.rows, parcel.rows)
            for what, rows in (("opened", opened), *((("sealed", done.rows),) if parcel.kind not in ROWS else ())):
                found, wanted = (rows.shape, rows.dtype), (parcel.rows.shape, parcel.rows.dtype)
                assert found == wanted, f"{parcel.kind} are {found} when {what}, and were {wanted}"
            plain = parcel.rows if done.plain is None else done.plain
            assert plain.shape == parcel.rows.shape, f"plain {parcel.kind} have the shape {list(plain.shape)}"

    def test_whole_numbers_arrive_as_they_left(self) -> None:
        """Ids, ranks, ports and labels are not changed: with noise they would break the run."""
        for parcel in _parcels():
            if parcel.kind in WHOLE:
                assert torch.equal(self.sealed(parcel).rows, parcel.rows), f"{parcel.kind} were changed"

    def test_what_was_done_is_said(self) -> None:
        """Rows that arrive changed come with an event; it has a text and survives a checkpoint."""
        for parcel in _parcels():
            done = self.sealed(parcel)
            changed = not torch.equal(self.chain.open(parcel.kind, done.rows, parcel.rows), parcel.rows)
            assert done.events or not changed, f"{parcel.kind} were changed, and the ledger would say '{UNPROTECTED}'"
            for event in done.events:
                assert isinstance(event, Event) and hash(event) is not None
            text = describe(done.events)
            assert bool(text) and (text != UNPROTECTED) == bool(done.events), f"{done.events} reads '{text}'"
            told = json.loads(json.dumps(to_json(done.events)))
            assert from_json(told) == done.events, f"{told} does not bring {done.events} back"

    def test_an_event_does_not_depend_on_the_rows(self) -> None:
        """The events of a kind are known without rows: accountants ask for them when there are none."""
        for parcel in _parcels():
            asked = self.chain.events(parcel.kind)
            assert asked == self.sealed(parcel).events, f"of {parcel.kind} it says {asked} before, and another after"

    def test_a_row_that_is_listed_twice_leaves_as_one_value(self) -> None:
        """A row for two receivers is released once: from two draws of noise they could take the mean.

        Shares are drawn anew at will: the mean of two shares says as little as one.
        """
        for parcel in _parcels():
            left = self.sealed(parcel).rows
            for one, other in ((0, 2), (3, 4)) if parcel.kind in ROWS and not self.part().shares else ():
                assert torch.equal(left[one], left[other]), f"one row of {parcel.kind} left as two values"

    def test_no_rows_are_fine(self) -> None:
        """A host may have nothing to send, and its silos then need no secrets."""
        for parcel in _parcels(0):
            done = self.sealed(parcel, Noise())
            opened = self.chain.open(parcel.kind, done.rows, parcel.rows)
            assert len(done.rows) == 0 and opened.shape == parcel.rows.shape, f"no rows of {parcel.kind} became some"

    def test_what_the_server_made_is_not_perturbed(self) -> None:
        """What the server made of sealed rows gets no noise and is not clipped; its numbers may be rounded."""
        for kind in REAL:
            rows, noise = _rows(len(LISTED)), Noise()
            made = Origin.server(len(rows))
            down = Traffic.down(torch.zeros(len(rows), dtype=torch.int64))
            left = self.sealed(Parcel(kind, rows, made, down, by_server=True), noise).rows
            error = (self.chain.open(kind, left, rows) - rows).abs().amax(1)
            assert noise.draws == 0, f"noise was drawn for {kind} that the server made"
            assert bool((error <= 0.01 * rows.abs().amax(1)).all()), f"{kind} that the server made were changed"

    def test_noise_is_fresh_and_a_silo_s_own(self) -> None:
        """Noise differs from draw to draw, follows from a silo's secret, and does not depend on who shares its host."""
        noisy = False
        for parcel in _parcels():
            noise = _noise()
            first, second = self.sealed(parcel, noise), self.sealed(parcel, noise)
            fresh = not torch.equal(first.rows, second.rows)
            noisy |= fresh
            assert torch.equal(self.sealed(parcel).rows, first.rows), f"{parcel.kind} do not follow from the secrets"
            assert not fresh or first.plain is not None or first.shares > 1, (
                f"{parcel.kind} got noise: say what it was added to"
            )
            for silo in (0, 1):
                here = (parcel.origin.silo == silo).nonzero().flatten()
                alone = self.sealed(_some(parcel, here), Noise(secrets_from_seed(3, [silo]))).rows
                assert torch.equal(alone, first.rows[here]), f"{parcel.kind} of a silo depend on who shares its host"
        part = self.part()
        said = part.noisy and not part.bounds_seeds  # else noise is added to steps, and not when something leaves
        assert noisy == said, f"noisy is {part.noisy}, and it {'draws' if noisy else 'does not'}"

    def test_payloads_that_need_it_are_sealed_silo_by_silo(self) -> None:
        """Where a kind is not separated, a host's sum is sealed as one: it must leave as what the parts sum to."""
        for parcel in _parcels():
            if parcel.kind in (Kind.GRADIENTS, Kind.PARAMETERS) and not self.part().separates(parcel.kind):
                left = self.sealed(parcel).rows
                whole = Parcel(parcel.kind, parcel.rows.sum(0)[None], _origin(1), parcel.traffic)
                same = torch.allclose(self.sealed(whole).rows[0], left.sum(0), rtol=0.02, atol=0.02)
                assert same, f"{parcel.kind} are not sealed alike together and apart; separates() must say so"


def _noise() -> Noise:
    return Noise(secrets_from_seed(3, (0, 1)))


def _origin(rows: int) -> Origin:
    return Origin(LISTED[:rows, 0], LISTED[:rows, 1])


def _rows(rows: int) -> Tensor:
    """Rows far longer than any clip, equal where one is listed twice."""
    each = 100 * torch.randn(10, WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return each[LISTED[:rows, 1]]


def _parcels(rows: int = len(LISTED)) -> Iterator[Parcel]:
    """Yield a parcel of every kind, with whole numbers for kinds that carry them."""
    for kind in Kind:
        payload = _rows(rows) if kind in REAL else LISTED[:rows].clone()
        up = Traffic.up(LISTED[:rows, 0])
        yield Parcel(kind, payload, _origin(rows), up, holders=(up, up))


def _some(parcel: Parcel, at: Tensor) -> Parcel:
    """Some rows of a parcel, as another host would send them."""
    origin = Origin(parcel.origin.silo[at], parcel.origin.row[at])
    traffic = Traffic.single(int(origin.silo[0]), SERVER, len(at))
    return replace(parcel, rows=parcel.rows[at], origin=origin, traffic=traffic)
