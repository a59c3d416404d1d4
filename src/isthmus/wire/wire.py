"""What parties can say to each other: messages, sums, and rows of nodes; all of it leaves by :meth:`Door.leave`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isthmus.core.kinds import ROWS, SERVER, Kind
from isthmus.core.parcel import Origin, Parcel, Traffic
from isthmus.wire.arrival_checks import NUMBERS, check_finite, check_form, check_like, check_places, check_posted
from isthmus.wire.crossing import Across, detached
from isthmus.wire.door import Door
from isthmus.wire.neighbour_sums import Summed, Surroundings, add_up
from isthmus.wire.relay import Column, Relay, Relayed, relayed
from isthmus.wire.route import Asked, Boundary, Route, both_present
from isthmus.wire.shared_relay import AddedSealed, add_sealed

Letters = Mapping[tuple[int, int], Tensor]  # (sender, receiver) -> payload


class Wire(Door):
    """Messages, sums and rows between the parties of a federation; all of them leave by :meth:`Door.leave`."""

    # ---- messages

    def post(self, kind: Kind, letters: Letters) -> dict[tuple[int, int], Tensor]:
        """Send letters of this host's parties; returns the letters for them, in order of sender.

        Not for rows of nodes: they travel by ``linear``, ``move`` and ``merge``, which book whose rows they are.
        """
        assert kind not in ROWS, f"{kind} are rows of nodes: use linear, move or merge"
        parcels = {}
        for sender, receiver in self._between_members(letters):
            copy = letters[sender, receiver].detach().clone()
            origin = Origin(torch.full((len(copy),), sender), torch.arange(len(copy)))
            traffic = Traffic.single(sender, receiver, len(copy))
            parcels[sender, receiver] = Parcel(kind, copy, origin, traffic, by_server=sender == SERVER)
        self.ledger.leg()
        got = self.leave(kind, parcels, lambda sealed: self._deliver(kind, sealed))
        if self.hosts > 1 and kind in NUMBERS:
            for (sender, _), words in got.items():
                check_finite(kind, words[None], [1], [self.party(sender)])
        return dict(sorted(got.items()))

    def post_together(self, kind: Kind, letters: Letters) -> dict[tuple[int, int], Tensor]:
        """Send letters between silos in one parcel; returns letters for this host's silos, by sender.

        Does what :meth:`post` does for letters of one width, such as keys [n] or rows [n, width], and is much faster
        where many pairs of silos write to each other.
        """
        assert kind not in ROWS, f"{kind} are rows of nodes: use linear, move or merge"
        pairs = self._between_members(letters)
        lengths = [len(letters[pair]) for pair in pairs]
        rows = torch.cat([letters[pair].detach() for pair in pairs] or [torch.zeros(0, dtype=torch.int64)])
        ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        origin = Origin(torch.from_numpy(ends[:, 0].repeat(lengths)), torch.arange(len(rows)))
        parcel = Parcel(kind, rows, origin, Traffic(ends[:, 0], ends[:, 1], np.array(lengths, dtype=np.int64)))

        def carry(sealed: dict[int, Tensor]) -> dict[tuple[int, int], Tensor]:
            return self._deliver(kind, dict(zip(pairs, sealed[0].split(lengths), strict=True)))

        self.ledger.leg()
        return dict(sorted(self.leave(kind, {0: parcel}, carry).items()))

    def _between_members(self, letters: Letters) -> list[tuple[int, int]]:
        """Senders and receivers of letters, ascending, without those to or from silos that are absent."""
        there = {SERVER, *self.members.present}
        return sorted(pair for pair in letters if there.issuperset(pair))

    def gather(self, kind: Kind, said: Mapping[int, Tensor]) -> dict[int, Tensor] | None:
        """Send a tensor of each silo to the server; returns {silo: tensor} on the server's host and None elsewhere.

        Tensors may differ in length alone; of another form are refused, and their silo is named.
        """
        got = self.post(kind, {(silo, SERVER): words for silo, words in said.items()})
        if not self.houses(SERVER):
            return None
        check_posted(kind, got, ((silo, SERVER, self.party(silo)) for silo in self.members.present))
        for silo in self.members.present if said else ():
            check_form(kind, got[silo, SERVER], next(iter(said.values())), self.party(silo))
        return {silo: got[silo, SERVER] for silo in self.members.present}

    def answer(self, kind: Kind, verdict: Tensor | None) -> Tensor:
        """Send ``verdict`` of the server (None on other hosts) to every silo; returns it on every host."""
        down = {} if verdict is None else {(SERVER, silo): verdict for silo in self.members.present}
        got = self.post(kind, down)
        check_posted(kind, got, ((SERVER, silo, self.party(SERVER)) for silo in self.here))
        return verdict if verdict is not None else next(iter(got.values()))

    def settle(self, kind: Kind, said: Mapping[int, Tensor], judge: Callable[[dict[int, Tensor]], Tensor]) -> Tensor:
        """Send a tensor of each silo to the server, and ``judge`` of them back; returns that verdict on every host."""
        heard = self.gather(kind, said)
        return self.answer(kind, None if heard is None else judge(heard))

    def consult(
        self, kind: Kind, said: Mapping[int, Tensor], judge: Callable[[dict[int, Tensor]], dict[int, Tensor]]
    ) -> dict[int, Tensor]:
        """Send a tensor of each silo to the server, and an answer to each; returns those to present silos here."""
        heard = self.gather(kind, said)
        down = {} if heard is None else {(SERVER, silo): each for silo, each in judge(heard).items()}
        got = self.post(kind, down)
        check_posted(kind, got, ((SERVER, silo, self.party(SERVER)) for silo in self.here))
        return {silo: got[SERVER, silo] for silo in self.here}

    def share(self, kind: Kind, x: Tensor) -> Tensor:
        """Make the rows ``x`` [silos of this host, ...] known to all through the server: [silos, ...].

        Rows of absent silos are zeros.
        """
        said = {silo: x[i : i + 1] for i, silo in enumerate(self.mine)}

        def judge(heard: dict[int, Tensor]) -> Tensor:
            for silo, row in heard.items():
                check_like(kind, row, x, self.party(silo))
            return torch.cat(list(heard.values()))

        told = self.settle(kind, said, judge)
        if self.members.complete:
            return told
        return told.new_zeros(self.silos, *told.shape[1:]).index_copy_(0, torch.tensor(self.members.present), told)

    # ---- sums

    def total(self, kind: Kind, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """Sum of ``x`` [silos of this host, ...] over all silos, in silo order, through the server; differentiable.

        With ``weights``, one for each row, ``x`` is weighted after it was bounded and got noise, and before it is
        masked. A host without silos passes one row of the right width, which is not added, like those of absent silos.
        """
        if len(self.here) < len(self.mine):
            places = torch.tensor([self.mine.index(silo) for silo in self.here], device=x.device)
            x, weights = x[places], None if weights is None else weights[places]
        if x.requires_grad:
            y: Tensor
            assert weights is None
            y, self._token = _Total.apply(x, self._thread(x), self, kind)  # type: ignore[no-untyped-call]
            return y
        return self._totalled(kind, x, weights)

    def _totalled(self, kind: Kind, x: Tensor, weights: Tensor | None = None) -> Tensor:
        x = x.detach() if self.here else x.detach()[:0]
        origin = Origin.whole(torch.tensor(self.here, dtype=torch.int64), len(self.members.present))
        given = None if weights is None or not self.here else weights.reshape(-1, *[1] * (x.dim() - 1))
        traffic = Traffic.round_trip(self.here)
        parcel = Parcel(kind, x, origin, traffic, added=self.members.present, weights=given)

        def carry(sealed: Tensor) -> Tensor:
            rows = sealed if given is None or self.protect.weighs(kind) else sealed * given
            return self._sum_hosts(kind, rows, per_silo=True)[None]

        return self.leave_alone(parcel, carry, legs=2)[0]

    def total_of_hosts(self, kind: Kind, x: Tensor) -> Tensor:
        """Sum over hosts of ``x`` [...], already a sum over the present silos of each (where they share parameters)."""
        if self.protect.separates(kind):
            raise AssertionError(f"{kind} must be sealed silo by silo, and cannot be summed before")
        if self.protect.weighs(kind):  # masks are between silos: a host's first stands for all, and is rounded once
            return self._totalled(
                kind, torch.cat([x.detach()[None], x.new_zeros(max(len(self.here) - 1, 0), *x.shape)])
            )
        here = torch.tensor(self.here or (SERVER,))  # one row, in which all of them are
        origin = Origin.whole(here, len(self.members.present))
        parcel = Parcel(kind, x.detach()[None], origin, Traffic.round_trip(self.here))
        return self.leave_alone(parcel, lambda x: self._sum_hosts(kind, x, per_silo=False)[None], legs=2)[0]

    # ---- rows of nodes

    def ask(self, boundary: Boundary, rows: Tensor) -> Asked:
        """Ask owners for halo rows (stack rows of this host); returns them, and the rows that others ask for.

        Absent silos neither ask nor are asked.
        """
        place = boundary.place[rows].sort().values
        place = place[self._both_present(boundary.halo_pair[place])]
        pairs = boundary.halo_pair[place]
        splits, served, asked = self._tell(place, boundary.halo_ptr, pairs, boundary.served_ptr)
        mine = boundary.halo[place], pairs, splits
        return Asked(*mine, boundary.served[served], boundary.served_pair[served], asked)

    def offer(self, boundary: Boundary, place: Tensor) -> Asked:
        """Announce to holders which rows will come (ascending places in ``boundary.served``).

        Returns these rows, and the halo rows of this host that others announced; none of or for absent silos.
        """
        place = place[self._both_present(boundary.served_pair[place])]
        pairs = boundary.served_pair[place]
        splits, halo, offered = self._tell(place, boundary.served_ptr, pairs, boundary.halo_ptr)
        mine = boundary.served[place], pairs, splits
        return Asked(boundary.halo[halo], boundary.halo_pair[halo], offered, *mine)

    def _both_present(self, pairs: Tensor) -> Tensor:
        """Which pairs of silos (sender * silos + receiver) have both of them present: [pairs] bool."""
        return both_present(pairs, self.members)

    def _tell(self, place: Tensor, ptr: Tensor, pairs: Tensor, theirs: Tensor) -> tuple[list[int], Tensor, list[int]]:
        """Send places in this host's lists of rows, which the other hosts hold in the same order.

        Returns how many went to each host, the places that arrived here, and how many each host sent.
        """
        splits = torch.searchsorted(place, ptr).diff().tolist()
        within = place - _first(ptr, splits)
        parcel = Parcel(Kind.IDS, within, Origin(pairs // self.silos, within), Traffic.between(pairs, self.silos))
        lengths = theirs.diff().tolist()
        told, told_splits = self.leave_sized(parcel, splits, lengths)
        check_places(told, told_splits, lengths, self.who)
        return splits, _first(theirs, told_splits) + told, told_splits

    def linear(self, h: Tensor, route: Route, kind: Kind, adjoint: bool, layer: int = 0) -> Tensor:
        """Copy rows of ``h`` [n, w] to the silos that need them: [route.size, w].

        With ``adjoint`` the derivatives of copies return to the owners; without, copies are constants.
        """
        if not (adjoint and h.requires_grad):
            return detached(self, route, kind, h, layer)
        y: Tensor
        y, self._token = Across.apply(h, self._thread(h), self, route, kind, layer)  # type: ignore[no-untyped-call]
        return y

    def sum_neighbours(self, h: Tensor, around: Surroundings, layer: int = 0) -> Tensor:
        """At each owned row the sum of its neighbours' rows of ``h``, added up as they travel; differentiable."""
        if not h.requires_grad:
            return add_up(self, h, around.inward, Kind.EMBEDDINGS, layer)
        y: Tensor
        y, self._token = Summed.apply(h, self._thread(h), self, around, layer)  # type: ignore[no-untyped-call]
        return y

    def merge(self, partials: Tensor, relay: Relay, columns: Sequence[Column], layer: int) -> Tensor:
        """Partial aggregates, merged by the server: one row for each slot of this host's silos; differentiable.

        Where they can be added up sealed, the server adds what it cannot read, or does not; else it joins plain rows.
        """
        sealed = self.protect.adds_sealed
        if not partials.requires_grad:
            given = self, relay, partials, columns, layer
            return add_sealed(*given) if sealed else relayed(*given)[0]
        y: Tensor
        args = partials, self._thread(partials), self, relay, columns, layer
        y, self._token = (AddedSealed if sealed else Relayed).apply(*args)  # type: ignore[no-untyped-call]
        return y


def _first(ptr: Tensor, splits: list[int]) -> Tensor:
    """For every row, where the list of the host that it goes to begins: [sum of splits]."""
    return ptr[:-1].repeat_interleave(torch.tensor(splits, device=ptr.device))


class _Total(torch.autograd.Function):
    """Sum over silos, known to all: y = sum_i x_i. Backwards every x_i gets the sum of all hosts' adjoints of y."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, token: Tensor, wire: Wire, kind: Kind) -> tuple[Tensor, Tensor]:
        ctx.wire, ctx.kind, ctx.rows = wire, kind, len(x)
        return wire._totalled(kind, x), token.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        gy, gtoken = grads
        wire: Wire = ctx.wire
        total = wire.total_of_hosts(ctx.kind, gy)
        return total.expand(ctx.rows, *gy.shape), gtoken, None, None
