"""Signs of life of hosts in a shared store, by which a lost or late host is named."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from torch.distributed import TCPStore  # type: ignore[attr-defined]

_BEAT = 0.5  # seconds between signs of life
_FAREWELL = 5.0  # seconds that a host which ends waits for the others to hear why


class Pulse:
    """A thread that writes signs of life to the shared store: a beat counter, and how many collectives were entered."""

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
                return str(self.store.get("problem").decode())
        return ""

    def await_others(self) -> None:
        """Wait up to ``_FAREWELL`` seconds until all hosts have read why this one ends: it may carry the store."""
        end, keys = time.monotonic() + _FAREWELL, [f"heard/{host}" for host in range(self.hosts)]
        with suppress(RuntimeError, ValueError):
            while time.monotonic() < end and not self.store.check(keys):
                time.sleep(0.05)

    def diagnose(self, timeout: float, error: str) -> str:
        """A sentence that names the hosts which stopped beating, or else those that entered fewer collectives."""
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
