"""Process groups of the hosts that are there, one generation after the other, agreed on through the shared store."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

from isthmus.core.errors import HostLost, IsthmusError, PartyLost
from isthmus.wire.doorkeeper import UNDER_WAY
from isthmus.wire.pulse import pulse_key

_SILENT = 5.0  # seconds without a sign of life after which a host counts as lost
_PAUSE = 0.05
_LEAVING = 5.0  # seconds that a broken group may take to be left
_GONE = "Host 0 (the server's) is gone: its store does not answer. The last checkpoint is intact; use --resume."
_SHUT_OUT = (
    "The others have gone on without this host, of which they saw no sign of life for too long; start it again with "
    "--resume, and it is let in between two rounds."
)


class Generations:
    """The groups that one host forms with others: generation 0 is of all, and each change of members makes another.

    The host of the server decides who is in a generation. Everything here goes through the store, and nothing of it is
    data of a party.
    """

    def __init__(self, store: Store, host: int, server: int, timeout: float) -> None:
        self.store, self.host, self.server, self.timeout = store, host, server, timeout
        self.backend = "gloo"
        self.number, self.hosts = 0, tuple[int, ...]()

    def form(self, number: int, hosts: Sequence[int]) -> None:
        """Form the group of a generation with the other ``hosts``, which do so too."""
        self.number, self.hosts = number, tuple(sorted(hosts))
        self._leave()
        store = PrefixStore(f"generation/{number}", self.store)
        wait = timedelta(seconds=self.timeout)
        try:
            dist.init_process_group(self.backend, None, wait, len(self.hosts), self.rank(self.host), store)
        except (RuntimeError, ValueError) as error:
            said = f"Hosts cannot reach each other by {self.backend} ({str(error).splitlines()[0]})."
            raise (PartyLost if number else IsthmusError)(said) from error

    def begin(self, settings: Mapping[str, Any], lets_in: bool) -> None:
        """Write, at the server's host, that the run is under way, so that a host that was lost can return to it."""
        if lets_in and self.host == self.server:
            self.store.set(UNDER_WAY, json.dumps(settings))

    def under_way(self, settings: Mapping[str, Any]) -> bool:
        """Whether the others are in the middle of the run; raises where their settings differ from this host's."""
        if not self.store.check([UNDER_WAY]):
            return False
        theirs = json.loads(self.store.get(UNDER_WAY))
        keys = [key for key in sorted({*theirs, *settings}) if theirs.get(key) != settings.get(key)]
        keys = [key for key in keys if key != "--resume"]
        if keys:
            key = keys[0]
            raise IsthmusError(
                f"{key} is {settings.get(key)!r} on this host, but {theirs.get(key)!r} in the run that is under way; "
                "come back with the settings of that run."
            )
        return True

    def ask_to_return(self) -> tuple[int, ...]:
        """Wait until the others take this host in, between two of their rounds; returns the hosts of the new group."""
        token = os.urandom(8).hex()
        print("The run is under way: this host waits to be let in when a round begins.", file=sys.stderr, flush=True)
        try:
            self.store.set(f"back/{self.host}", token)
            number, hosts = json.loads(self._wait_for(f"let in/{token}"))
        except RuntimeError as error:
            raise HostLost(_GONE) from error
        self.form(number, hosts)
        return self.hosts

    def call_back(self, every: Sequence[int]) -> int:
        """At the server's host: the number of a generation in which all missing hosts are back; 0: not yet."""
        missing = [host for host in every if host not in self.hosts]
        if not missing or not self.store.check([f"back/{host}" for host in missing]):
            return 0
        number, told = self.number + 1, json.dumps([self.number + 1, list(every)])
        self.store.set(f"members/{number}", told)
        for host in missing:
            self.store.set(f"let in/{self.store.get(f'back/{host}').decode()}", told)
            self.store.delete_key(f"back/{host}")
        return number

    def let_in(self, number: int) -> tuple[int, ...]:
        """Form the group of a generation to which the server has called hosts back."""
        _, hosts = json.loads(self._wait_for(f"members/{number}"))
        self.form(number, hosts)
        return self.hosts

    def rank(self, host: int) -> int:
        """The place of a host in the group of this generation."""
        return self.hosts.index(host)

    def agree(self, rounds: Sequence[int]) -> tuple[tuple[int, ...], int]:
        """After a loss: which hosts are left, and the latest of all their ``rounds``; they then form the next group."""
        number = self.number + 1
        self._leave()
        try:
            self.store.set(f"here/{number}/{self.host}", json.dumps(list(rounds)))
            if self.host == self.server:
                self._decide(number)
            hosts, back_to = json.loads(self._wait_for(f"left/{number}"))
        except RuntimeError as error:
            raise HostLost(_GONE) from error
        if self.host not in hosts:
            raise HostLost(_SHUT_OUT)
        self.form(number, hosts)
        return self.hosts, int(back_to)

    def _decide(self, number: int) -> None:
        """At the server's host: wait for every host of the last generation until it has come or is lost."""
        came = {self.host}
        watch = {host: _LastSign(self.store, host) for host in self.hosts}
        end = time.monotonic() + self.timeout + _SILENT
        while time.monotonic() < end:
            came |= {host for host in self.hosts if self.store.check([f"here/{number}/{host}"])}
            if all(host in came or watch[host].silent for host in self.hosts):
                break
            time.sleep(_PAUSE)
        held = [set(json.loads(self.store.get(f"here/{number}/{host}"))) for host in came]
        common = set.intersection(*held)
        if not common:
            raise HostLost("Hosts that are left stand in different rounds; continue with --resume.")
        with suppress(RuntimeError):
            self.store.delete_key("problem")
        self.store.set(f"left/{number}", json.dumps([sorted(came), max(common)]))

    def _wait_for(self, key: str) -> bytes:
        """What the server's host writes under a key, as long as it shows signs of life."""
        watch = _LastSign(self.store, self.server)
        while not self.store.check([key]):
            if self.host != self.server and watch.silent:
                raise HostLost(_GONE)
            time.sleep(_PAUSE)
        return bytes(self.store.get(key))

    def _leave(self) -> None:
        """Leave the current group; this breaks the connections on which others wait."""
        if not dist.is_initialized():
            return
        leaving = threading.Thread(target=dist.destroy_process_group, daemon=True)
        leaving.start()
        leaving.join(_LEAVING)
        if dist.is_initialized():
            raise HostLost("The broken connection to the other hosts cannot be closed; continue with --resume.")


class _LastSign:
    """Looks whether a host still writes signs of life (see ``wire/pulse.py``)."""

    def __init__(self, store: Store, host: int) -> None:
        self.store, self.key, self.last, self.since = store, pulse_key(host), b"", time.monotonic()

    @property
    def silent(self) -> bool:
        """Whether the host has been silent for too long."""
        now = bytes(self.store.get(self.key)) if self.store.check([self.key]) else b""
        if now != self.last:
            self.last, self.since = now, time.monotonic()
        return time.monotonic() - self.since > _SILENT
