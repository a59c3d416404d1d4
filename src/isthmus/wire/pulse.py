"""Signs of life of hosts in a shared store, by which a lost or late host is named."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from torch.distributed import TCPStore  # type: ignore[attr-defined]

_BEAT = 0.5  # seconds between signs of life
_FAREWELL = 5.0  # seconds that a host which ends waits for the others to hear why


class Pulse:
    """Signs of life in the shared store: a beat counter, and how many collectives this host has entered."""

    def __init__(self, store: TCPStore, host: int, hosts: int) -> None:
        self.store, self.host, self.hosts, self.calls = store, host, hosts, 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        beat = 0
        while not self._stop.wait(_BEAT):
            beat += 1
            try:
                self.store.set(f"pulse/{self.host}", f"{beat} {self.calls}")
            except (RuntimeError, ValueError):
                return

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join(timeout=2 * _BEAT)

    def tell(self, problem: str) -> None:
        """Leave a word on why this host ends; the first host that has one is heard."""
        with suppress(RuntimeError, ValueError):
            if not self.store.check(["problem"]):
                self.store.set("problem", problem)
            self.store.set(f"heard/{self.host}", "")

    def problem(self) -> str:
        """Why another host has ended, if it has left a word."""
        with suppress(RuntimeError, ValueError):
            if self.store.check(["problem"]):
                self.store.set(f"heard/{self.host}", "")
                return str(self.store.get("problem").decode())
        return ""

    def await_others(self) -> None:
        """Wait a little until all hosts have heard why this one ends: the store may end with it."""
        end, keys = time.monotonic() + _FAREWELL, [f"heard/{host}" for host in range(self.hosts)]
        with suppress(RuntimeError, ValueError):
            while time.monotonic() < end and not self.store.check(keys):
                time.sleep(0.05)

    def diagnose(self, timeout: float, error: str) -> str:
        """Name the hosts that stopped beating, or else those that entered fewer collectives than this one."""
        try:
            before = self._read()
            time.sleep(5 * _BEAT)
            after = self._read()
        except (RuntimeError, ValueError):
            return (
                "Host 0 (the server's) is gone: its store does not answer. The last checkpoint is intact; use --resume."
            )
        others = [h for h in range(self.hosts) if h != self.host]
        silent = [h for h in others if before.get(h) == after.get(h)]
        late = [h for h in others if h in after and after[h][1] < self.calls]
        if silent:
            what = f"{_hosts(silent)} stopped giving signs of life"
        elif late:
            what = f"{_hosts(late)} did not arrive within the timeout of {timeout:g} s"
        else:
            what = f"the connection to another host broke ({error.splitlines()[0][:200]})"
        return f"{what}. This run stops; the last checkpoint is intact, continue with --resume."

    def _read(self) -> dict[int, tuple[int, int]]:
        pulses: dict[int, tuple[int, int]] = {}
        for host in range(self.hosts):
            if host != self.host and self.store.check([f"pulse/{host}"]):
                beat, calls = self.store.get(f"pulse/{host}").decode().split()
                pulses[host] = int(beat), int(calls)
        return pulses


def _hosts(numbers: list[int]) -> str:
    return ("Host " if len(numbers) == 1 else "Hosts ") + ", ".join(map(str, numbers))
