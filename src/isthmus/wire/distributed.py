"""The torch.distributed wire: one process (host) carries silos, the server, or both; gloo on CPU, NCCL on GPUs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from isthmus.core.errors import HostLost, PartyLost, PeerError
from isthmus.core.kinds import SERVER, Kind
from isthmus.protect.base import Chain
from isthmus.wire.arrival_checks import check_finite, check_sizes, check_whole, mark_ends
from isthmus.wire.envelope import enveloped, opened
from isthmus.wire.generations import Generations
from isthmus.wire.membership import Membership
from isthmus.wire.packing import pack, unpack
from isthmus.wire.pulse import Pulse
from isthmus.wire.rendezvous import Rendezvous, meet_by_rank
from isthmus.wire.roll_call import call_roll, compare_settings
from isthmus.wire.token import SIZE
from isthmus.wire.wire import Wire

_T = TypeVar("_T")


class DistributedWire(Wire):
    """Letters travel in one ``all_to_all_single`` of bytes; sums are gathered by the server's host and sent back."""

    opened: ClassVar[bool] = False  # whether this process has ever connected to others

    def __init__(
        self,
        silos: int,
        timeout: float,
        device: str = "cpu",
        protect: Chain | None = None,
        settings: Mapping[str, Any] | None = None,
        meeting: Rendezvous | None = None,
    ) -> None:
        """Connect to the other hosts; where their ``settings`` differ, every host raises before any data moves.

        ``meeting``: where hosts have met; None: they meet by their ranks, as torchrun has numbered them.
        """
        meeting = meeting or meet_by_rank(timeout)
        host, hosts, store = meeting.host, meeting.hosts, meeting.store
        super().__init__(Membership.dealt(silos, hosts), host, hosts, protect)
        self.timeout = timeout
        self._exchanges = 0  # of letters, in this generation of hosts
        self.meeting, self.security = meeting, meeting.token.security
        DistributedWire.opened = True
        mine = {"data.silos": silos, **(settings or {})}
        self._generations = Generations(store, host, self.members.home(SERVER), timeout)
        if self._generations.under_way(mine):
            self.device, self.returned = torch.device("cpu"), True
            return
        heard = call_roll(store, host, self.members, {"device": device, "settings": mine}, timeout)
        compare_settings([each["settings"] for each in heard])
        by_nccl = all(each["device"] == "cuda" for each in heard)
        self.device = torch.device("cuda" if by_nccl else "cpu")  # of what travels; hosts may compute elsewhere
        self._generations.backend = "nccl" if by_nccl else "gloo"
        self._generations.form(0, range(hosts))
        self._pulse = Pulse(store, self.host, self.hosts)
        self._generations.begin(mine, mine.get("federation.absent") == "stale")
        self._greet()

    def _greet(self) -> None:
        """Begin to talk within a new generation: letters are counted anew, and every host proves the token.

        It does so over the group's own connections, which nobody else has checked.
        """
        self._exchanges = 0
        token, there = self.meeting.token, self._generations.hosts
        if not token.secret:
            return
        proofs = b"".join(token.proof("member", str(self.host), str(to)) for to in there)
        sent = torch.tensor(list(proofs), dtype=torch.uint8, device=self.device)
        got = torch.empty_like(sent)
        self._guard(lambda: dist.all_to_all_single(got, sent))
        for host, proof in zip(there, got.cpu().split(SIZE), strict=True):
            if bytes(proof.tolist()) != token.proof("member", str(host), str(self.host)):
                raise PeerError(f"Whoever is connected in the place of {self.who[host]} does not know the token.")

    def come_back(self) -> None:
        """Wait until the others let this host in between two of their rounds; only then does it show signs of life."""
        self._generations.ask_to_return()
        self._pulse = Pulse(self._generations.store, self.host, self.hosts)
        self._greet()

    def muster(self, planned: Membership) -> Membership:
        """Who takes part in the round that begins: those of the last one, and all if every missing host is back."""
        calls = self.houses(SERVER) and not self.members.complete
        number = torch.tensor([self._generations.call_back(range(self.hosts)) if calls else 0], device=self.device)
        self._guard(lambda: dist.all_reduce(number))
        if not int(number):
            return self.members
        self._generations.let_in(int(number))
        self._greet()
        return self.members.only(range(self.silos))

    def survivors(self, rounds: Sequence[int]) -> tuple[Membership, int]:
        """Agree with the hosts that are left who they are and where to go back to, in a new group of theirs."""
        hosts, back_to = self._generations.agree(rounds)
        self._greet()
        return self.members.only(silo for silo in self.members.present if self.members.home(silo) in hosts), back_to

    def _deliver(self, kind: Kind, letters: dict[tuple[int, int], Tensor]) -> dict[tuple[int, int], Tensor]:
        home = self.members.home
        stay = {key: x for key, x in letters.items() if home(key[1]) == self.host}
        self._exchanges += 1
        outgoing = [pack({k: x for k, x in letters.items() if home(k[1]) == h != self.host}) for h in range(self.hosts)]
        outgoing = [words if host in self.members.hosts else words[:0] for host, words in enumerate(outgoing)]
        outgoing = [enveloped(words, kind, self._exchanges) for words in outgoing]
        leaving = [len(buffer) for buffer in outgoing]
        arriving = self._sizes(kind, leaving)
        check_sizes(kind, arriving, None, 1, self.who)
        here = {SERVER, *self.mine} if self.houses(SERVER) else set(self.mine)
        for host, buffer in enumerate(self._swap(kind, torch.cat(outgoing), leaving, arriving).cpu().split(arriving)):
            if host not in self.members.hosts:
                continue
            there = {*self.members.on(host), *([SERVER] if home(SERVER) == host else [])}
            try:
                stay.update(unpack(opened(buffer, kind, self._exchanges), there, here))
            except ValueError as error:
                raise PeerError(f"{self.who[host]} sent {error} where {kind} were due.") from error
        return stay

    def _swap(self, kind: Kind, rows: Tensor, leaving: list[int], arriving: list[int]) -> Tensor:
        got = torch.empty((sum(arriving), *rows.shape[1:]), dtype=rows.dtype, device=self.device)
        sent = rows.contiguous().to(self.device)
        out, back = self._among(leaving), self._among(arriving)
        marks = mark_ends(got, arriving)
        self._pulse.calls += 1
        self._guard(lambda: dist.all_to_all_single(got, sent, back, out))
        check_whole(kind, got, arriving, marks, self.who)
        away = sum(leaving) - leaving[self.host]
        self.ledger.carry(kind, away * sent.shape[1:].numel() * sent.element_size())
        return got.to(rows.device)

    def _sizes(self, kind: Kind, leaving: list[int]) -> list[int]:
        sizes = torch.tensor(self._among(leaving), device=self.device)
        self._pulse.calls += 1
        coming = torch.full_like(sizes, -1)  # what stays so has not come, and no size is below 0
        self._guard(lambda: dist.all_to_all_single(coming, sizes))
        self.ledger.carry(kind, 8 * (len(sizes) - 1))
        arriving = [0] * self.hosts
        for host, size in zip(self.members.hosts, coming.tolist(), strict=True):
            arriving[host] = size
        return arriving

    def _rank(self, host: int) -> int:
        """The place of a host in the current group."""
        return self._generations.rank(host)

    def _among(self, counts: list[int]) -> list[int]:
        """Of one number for each host, those of hosts on which a member is present."""
        return [counts[host] for host in self.members.hosts]

    def _sum_hosts(self, kind: Kind, x: Tensor, per_silo: bool) -> Tensor:
        server, payload = self.members.home(SERVER), x.contiguous().to(self.device)
        self._pulse.calls += 1  # one, whatever part a host has in it: hosts compare how far they are by it
        if self.houses(SERVER):
            parts = [
                payload if host == server else self._received(kind, host, x, per_silo) for host in self.members.hosts
            ]
            result = torch.cat(parts).sum(0)
        else:
            self._guard(lambda: dist.send(payload, dst=self._rank(server)), server)
            self.ledger.carry(kind, payload.numel() * payload.element_size())
            result = torch.empty(x.shape[1:], dtype=x.dtype, device=self.device)
        marks = mark_ends(result[None], [1]) if server != self.host else []
        self._guard(lambda: dist.broadcast(result, src=self._rank(server)), server)
        if marks:
            check_whole(kind, result[None], [1], marks, ["the server"])
        if self.houses(SERVER):
            others = len(self.members.hosts) - 1
            self.ledger.carry(kind, others * result.numel() * result.element_size())
        return result.to(x.device)

    def _received(self, kind: Kind, host: int, like: Tensor, per_silo: bool) -> Tensor:
        """Receive another host's part of a sum, at the server's host: [silos of that host or 1, ...]."""
        rows = len(self.members.on(host)) if per_silo else 1
        part = torch.empty((rows, *like.shape[1:]), dtype=like.dtype, device=self.device)
        marks = mark_ends(part, [rows])
        self._guard(lambda: dist.recv(part, src=self._rank(host)), host)
        check_whole(kind, part, [rows], marks, [self.who[host]])
        silos = [self.party(silo) for silo in self.members.on(host)] if per_silo else [self.who[host]]
        check_finite(kind, part, [1] * len(silos), silos)
        return part

    def _guard(self, collective: Callable[[], _T], peer: int | None = None) -> _T:
        """Run a collective and return its result; when it fails, raise `HostLost`, which names the host at fault.

        ``peer`` is the host that this one writes to or waits for, where it is one.
        """
        started = time.perf_counter()
        try:
            return collective()
        except (RuntimeError, ValueError) as error:
            if self.recovers:  # who is left finds out together who was lost
                raise PartyLost(
                    f"The connection to another host broke ({str(error).splitlines()[0][:200]})."
                ) from error
            told = self._pulse.problem()
            raise HostLost(told or self._pulse.diagnose(self.timeout, str(error), peer)) from error
        finally:
            self.seconds += time.perf_counter() - started

    def waiting_for(self) -> list[str]:
        """The hosts that have entered fewer collectives than this one, by the silos on them."""
        return [self.who[host] for host in self._pulse.behind()]

    def end(self, problem: str) -> None:
        """Tell the other hosts why this one ends, and break the connections on which they wait for it."""
        if not dist.is_initialized():  # it was not let in yet
            return
        self._pulse.tell(problem)
        threading.Thread(target=dist.destroy_process_group, daemon=True).start()
        self._pulse.await_others()
        self._pulse.stop()
        self.meeting.close()

    def close_down(self) -> None:
        """Wait for all hosts, then leave the process group: a host that left early would look dead to the others."""
        self._pulse.calls += 1
        self._guard(dist.barrier)
        self._pulse.stop()
        self.meeting.close()
        dist.destroy_process_group()
