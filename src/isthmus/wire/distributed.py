"""The torch.distributed wire: one process (host) carries silos, the server, or both; gloo on CPU, NCCL on GPUs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from isthmus.core.errors import HostLost, IsthmusError, PeerError
from isthmus.core.kinds import SERVER, Kind
from isthmus.protect.base import Chain
from isthmus.wire.arrival_checks import check_finite, check_sizes
from isthmus.wire.membership import Membership
from isthmus.wire.packing import pack, unpack
from isthmus.wire.pulse import Pulse
from isthmus.wire.roll_call import call_roll, compare_settings, open_store
from isthmus.wire.wire import Wire

_T = TypeVar("_T")


class DistributedWire(Wire):
    """Letters travel in one ``all_to_all_single`` of bytes; sums are gathered by the server's host and sent back."""

    def __init__(
        self,
        silos: int,
        timeout: float,
        device: str = "cpu",
        protect: Chain | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Connect to the other hosts; where their ``settings`` differ, every host raises before any data moves."""
        host, hosts = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        super().__init__(Membership.dealt(silos, hosts), host, hosts, protect)
        self.timeout = timeout
        self._group: dist.ProcessGroup | None = None  # None: all hosts
        store = open_store(hosts, timeout)
        said = {"device": device, "settings": {"data.silos": silos, **(settings or {})}}
        heard = call_roll(store, host, self.members, said, timeout)
        compare_settings([each["settings"] for each in heard])
        by_nccl = all(each["device"] == "cuda" for each in heard)
        self.device = torch.device("cuda" if by_nccl else "cpu")  # of what travels; hosts may compute elsewhere
        backend = "nccl" if by_nccl else "gloo"
        try:
            dist.init_process_group(backend, None, timedelta(seconds=timeout), hosts, host, store)
        except (RuntimeError, ValueError) as error:
            raise IsthmusError(f"Hosts cannot reach each other by {backend} ({str(error).splitlines()[0]}).") from error
        self._pulse = Pulse(store, self.host, self.hosts)

    def gather_members(self, members: Membership) -> None:
        """Let later collectives run among the hosts of ``members`` only, in a process group of their own."""
        super().gather_members(members)
        everybody = len(members.hosts) == self.hosts
        self._group = None if everybody else dist.new_group(list(members.hosts), use_local_synchronization=True)

    def _deliver(self, kind: Kind, letters: dict[tuple[int, int], Tensor]) -> dict[tuple[int, int], Tensor]:
        home = self.members.home
        stay = {key: x for key, x in letters.items() if home(key[1]) == self.host}
        outgoing = [pack({k: x for k, x in letters.items() if home(k[1]) == h != self.host}) for h in range(self.hosts)]
        leaving = [len(buffer) for buffer in outgoing]
        arriving = self._sizes(kind, leaving)
        check_sizes(kind, arriving, None, 1, self.who)
        here = {SERVER, *self.mine} if self.houses(SERVER) else set(self.mine)
        for host, buffer in enumerate(self._swap(kind, torch.cat(outgoing), leaving, arriving).cpu().split(arriving)):
            there = {*self.members.on(host), *([SERVER] if home(SERVER) == host else [])}
            try:
                stay.update(unpack(buffer, there, here))
            except ValueError as error:
                raise PeerError(f"{self.who[host]} sent {error} where {kind} were due.") from error
        return stay

    def _swap(self, kind: Kind, rows: Tensor, leaving: list[int], arriving: list[int]) -> Tensor:
        got = torch.empty((sum(arriving), *rows.shape[1:]), dtype=rows.dtype, device=self.device)
        sent = rows.contiguous().to(self.device)
        out, back = self._among(leaving), self._among(arriving)
        self._guard(lambda: dist.all_to_all_single(got, sent, back, out, group=self._group))
        away = sum(leaving) - leaving[self.host]
        self.ledger.carry(kind, away * sent.shape[1:].numel() * sent.element_size())
        return got.to(rows.device)

    def _sizes(self, kind: Kind, leaving: list[int]) -> list[int]:
        sizes = torch.tensor(self._among(leaving), device=self.device)
        coming = torch.empty_like(sizes)
        self._guard(lambda: dist.all_to_all_single(coming, sizes, group=self._group))
        self.ledger.carry(kind, 8 * (len(sizes) - 1))
        arriving = [0] * self.hosts
        for host, size in zip(self.members.hosts, coming.tolist(), strict=True):
            arriving[host] = size
        return arriving

    def _among(self, counts: list[int]) -> list[int]:
        """Of one number for each host, those of hosts on which a member is present."""
        return [counts[host] for host in self.members.hosts]

    def _sum_hosts(self, kind: Kind, x: Tensor, per_silo: bool) -> Tensor:
        server, payload = self.members.home(SERVER), x.contiguous().to(self.device)
        if self.houses(SERVER):
            parts = [
                payload if host == server else self._received(kind, host, x, per_silo) for host in self.members.hosts
            ]
            result = torch.cat(parts).sum(0)
        else:
            self._guard(lambda: dist.send(payload, dst=server, group=self._group))
            self.ledger.carry(kind, payload.numel() * payload.element_size())
            result = torch.empty(x.shape[1:], dtype=x.dtype, device=self.device)
        self._guard(lambda: dist.broadcast(result, src=server, group=self._group))
        if self.houses(SERVER):
            others = len(self.members.hosts) - 1
            self.ledger.carry(kind, others * result.numel() * result.element_size())
        return result.to(x.device)

    def _received(self, kind: Kind, host: int, like: Tensor, per_silo: bool) -> Tensor:
        """Receive another host's part of a sum, at the server's host: [silos of that host or 1, ...]."""
        rows = len(self.members.on(host)) if per_silo else 1
        part = torch.empty((rows, *like.shape[1:]), dtype=like.dtype, device=self.device)
        self._guard(lambda: dist.recv(part, src=host, group=self._group))
        silos = [self.party(silo) for silo in self.members.on(host)] if per_silo else [self.who[host]]
        check_finite(kind, part, [1] * len(silos), silos)
        return part

    def _guard(self, collective: Callable[[], _T]) -> _T:
        """Run a collective and return its result; when it fails, raise `HostLost`, which names the host at fault."""
        self._pulse.calls += 1
        started = time.perf_counter()
        try:
            return collective()
        except (RuntimeError, ValueError) as error:
            told = self._pulse.problem()
            raise HostLost(told or self._pulse.diagnose(self.timeout, str(error))) from error
        finally:
            self.seconds += time.perf_counter() - started

    def end(self, problem: str) -> None:
        """Tell the other hosts why this one ends, and break the connections on which they wait for it."""
        self._pulse.tell(problem)
        threading.Thread(target=dist.destroy_process_group, daemon=True).start()
        self._pulse.await_others()
        self._pulse.stop()

    def close_down(self) -> None:
        """Wait for all hosts, then leave the process group: a host that left early would look dead to the others."""
        self._guard(dist.barrier)
        self._pulse.stop()
        dist.destroy_process_group()
