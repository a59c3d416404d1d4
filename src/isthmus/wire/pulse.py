"""Signs of life of hosts in a shared store, by which a lost or late host is named."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from torch.distributed import Store  # type: ignore[attr-defined]

_BEAT = 0.5  # seconds between signs of life
_DIGITS = 19  # of a number that a host may count to
_LONGEST = 1000  # letters of a reason
_FAREWELL = 5.0  # seconds that a host which ends waits for the others to hear why


def pulse_key(host: int) -> str:
    """Where a host writes its signs of life."""
    return f"pulse/{host}"


class Pulse:
    """A thread that writes signs of life to the shared store: a beat counter, and how many collectives were entered."""

    def __init__(self, store: Store, host: int, hosts: int) -> None:
        self.store, self.host, self.hosts, self.calls = store, host, hosts, 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        beat = 0
        while not self._stop.wait(_BEAT):
            beat += 1
            try:
                self.store.set(pulse_key(self.host), f"{beat} {self.calls}")
            except (RuntimeError, ValueError):
                return

    def stop(self) -> None:
        """End the thread that writes signs of life."""
        self._stop.set()
        self._thread.join(timeout=2 * _BEAT)

    def tell(self, problem: str) -> None:
        """Write to the store why this host ends, unless another host has already written why it does."""
        with suppress(RuntimeError, ValueError):
            if not self.store.check(["problem"]):
                self.store.set("problem", problem)
            self.store.set(f"heard/{self.host}", "")

    def problem(self) -> str:
        """Why another host has ended, if it wrote so to the store; else an empty string."""
        with suppress(RuntimeError, ValueError):
            if self.store.check(["problem"]):
                self.store.set(f"heard/{self.host}", "")
                return one_line(self.store.get("problem"))
        return ""

    def await_others(self) -> None:
        """Wait up to ``_FAREWELL`` seconds until all hosts have read why this one ends: it may carry the store."""
        end, keys = time.monotonic() + _FAREWELL, [f"heard/{host}" for host in range(self.hosts)]
        with suppress(RuntimeError, ValueError):
            while time.monotonic() < end and not self.store.check(keys):
                time.sleep(0.05)

    def behind(self) -> list[int]:
        """Other hosts that have entered fewer collectives than this one, as far as the store tells."""
        with suppress(RuntimeError, ValueError):
            return [host for host, (_, calls) in self._read().items() if calls < self.calls]
        return []

    def diagnose(self, timeout: float, error: str, peer: int | None = None) -> str:
        """A sentence that names the hosts which stopped beating, or else those that entered fewer collectives.

        Where all are there, it names the two between which the connection broke; ``peer`` is the host that this one was
        writing to or waiting for.
        """
        peer = None if peer == self.host else peer
        try:
            if peer is not None:
                self.store.set(f"lost/{self.host}", str(peer))
            before = self._read()
            time.sleep(5 * _BEAT)
            after = self._read()
            pair, lost = self._parted(peer), self._lost()
        except (RuntimeError, ValueError):
            return (
                "Host 0 (the server's) is gone: its store does not answer. The last checkpoint is intact; use --resume."
            )
        others = [h for h in range(self.hosts) if h != self.host]
        silent = [h for h in others if before.get(h) == after.get(h)]
        late = [h for h in others if h in after and after[h][1] < self.calls]
        mutual = pair is not None and lost.get(pair[0]) == pair[1] and lost.get(pair[1]) == pair[0]
        if silent:
            what = f"{_hosts(silent)} stopped giving signs of life"
        elif late and not mutual:  # who waits for each other has not heard what the other sent
            what = f"{_hosts(late)} did not arrive within the timeout of {timeout:g} s"
        elif pair:
            what = f"The connection between hosts {pair[0]} and {pair[1]} broke ({error.splitlines()[0][:200]})"
        else:
            what = f"The connection to another host broke ({error.splitlines()[0][:200]})"
        return f"{what}. This run stops; the last checkpoint is intact, continue with --resume."

    def _parted(self, peer: int | None) -> tuple[int, int] | None:
        """The two hosts between which a connection broke: who waits for one that waits itself is not of them."""
        lost = self._lost()
        here, there = self.host, peer if peer is not None else next(iter(lost.values()), None)
        for _ in range(self.hosts):
            if there is None or lost.get(there) in (None, here):
                break
            here, there = there, lost[there]
        return None if there is None else (min(here, there), max(here, there))

    def _lost(self) -> dict[int, int]:
        """For each host that has said so, the host that it waited for in vain."""
        lost: dict[int, int] = {}
        for host in range(self.hosts):
            if self.store.check([f"lost/{host}"]):
                said = self.store.get(f"lost/{host}")
                if said.isdigit() and int(said[:_DIGITS]) < self.hosts:
                    lost[host] = int(said)
        return lost

    def _read(self) -> dict[int, tuple[int, int]]:
        """Beats and collectives entered of the other hosts; a host that writes anything else has given no sign."""
        pulses: dict[int, tuple[int, int]] = {}
        for host in range(self.hosts):
            if host != self.host and self.store.check([pulse_key(host)]):
                numbers = self.store.get(pulse_key(host)).split()
                if len(numbers) == 2 and all(number.isdigit() and len(number) < _DIGITS for number in numbers):
                    pulses[host] = int(numbers[0]), int(numbers[1])
        return pulses


def one_line(words: bytes) -> str:
    """What another host wrote, as far as it can be printed: no line breaks, and nothing that moves a cursor."""
    text = " ".join(words[: 4 * _LONGEST].decode(errors="replace").split())
    return "".join(each for each in text if each.isprintable())[:_LONGEST]


def _hosts(numbers: list[int]) -> str:
    return ("Host " if len(numbers) == 1 else "Hosts ") + ", ".join(map(str, numbers))
