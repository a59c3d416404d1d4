"""The roll call: before anything crosses, every host says that it is here and with which settings it was started."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from torch.distributed import Store  # type: ignore[attr-defined]

from isthmus.core.errors import IsthmusError
from isthmus.wire.membership import Membership

_FAREWELL = 10.0  # seconds that the host of the store waits for the others to read it, before it may end
_PAUSE = 0.05  # seconds between two looks at who is here
_calls = 0  # roll calls of this process; every host makes the same ones, so that each has keys of its own


def call_roll(
    store: Store, host: int, members: Membership, said: Mapping[str, Any], timeout: float
) -> list[dict[str, Any]]:
    """Tell all hosts ``said``; returns what each host said, in host order, and raises where a host does not come.

    Nobody returns before all have heard, so that the store outlives a host that ends because of what it heard.
    """
    global _calls
    _calls += 1
    keys = [f"roll/{_calls}/{each}" for each in range(1 + max(members.hosts))]
    missing = list(range(len(keys)))
    try:
        store.set(keys[host], json.dumps(said))
        _await(store, keys, missing, timeout)
        if not missing:
            heard = [store.get(key) for key in keys]
            store.set(f"{keys[host]}/heard", "")
            if host == 0:
                _await(store, [f"{key}/heard" for key in keys], list(range(len(keys))), min(timeout, _FAREWELL))
            return [_decoded(words, of, set(said)) for of, words in enumerate(heard)]
    except RuntimeError as error:
        if not missing or missing == list(range(len(keys))):
            raise IsthmusError(f"Host 0 is gone ({_first_line(error)}); start all hosts again.") from error
    raise IsthmusError(_who_is_missing(missing, members, timeout))


def _await(store: Store, keys: Sequence[str], missing: list[int], timeout: float) -> None:
    """Wait until the keys at all places in ``missing`` are in the store; those that come are taken out of the list."""
    end = time.monotonic() + timeout
    while missing:
        missing[:] = [place for place in missing if not store.check([keys[place]])]
        if time.monotonic() > end:
            return
        time.sleep(_PAUSE if missing else 0)


def _decoded(words: bytes, host: int, wanted: set[str]) -> dict[str, Any]:
    """Decode what a host said and check that it has the ``wanted`` keys."""
    try:
        said = json.loads(words)
    except ValueError:
        said = None
    if not isinstance(said, dict) or set(said) != wanted:
        raise IsthmusError(f"Host {host} answered the roll call in other words; is it a host of this version?")
    return said


def _who_is_missing(missing: Sequence[int], members: Membership, timeout: float) -> str:
    """The message that names the hosts which did not come, and the silos that they would carry."""
    each = []
    for host in missing:
        silos = [f"silo {silo}" for silo in members.on(host)]
        each.append(f"host {host}" + (f" ({', '.join(silos)})" if silos else " (the server)"))
    count, verb = len(members.hosts), "is" if len(missing) == 1 else "are"
    told = (
        f"{', '.join(each)} {verb} missing: {count - len(missing)} of {count} hosts came within {timeout:g} s. Start "
        "every host with its own RANK and the same WORLD_SIZE, MASTER_ADDR and MASTER_PORT; to wait longer, raise "
        "system.timeout."
    )
    return told[0].upper() + told[1:]


def compare_settings(each: Sequence[Mapping[str, Any]]) -> None:
    """Refuse settings that differ from host to host, naming the keys, the values and the hosts."""
    words = []
    for key in sorted({key for settings in each for key in settings}):
        values: dict[str, list[int]] = {}
        for host, settings in enumerate(each):
            values.setdefault(repr(settings[key]) if key in settings else "not set", []).append(host)
        if len(values) > 1:
            words.append(f"{key} is " + " and ".join(f"{value} on {_hosts(on)}" for value, on in values.items()))
    if words:
        told = "; ".join(words[:3]) + (f"; and {len(words) - 3} more" if len(words) > 3 else "")
        raise IsthmusError(f"Hosts were started with different settings: {told}. Start all of them with the same ones.")


def _hosts(numbers: Sequence[int]) -> str:
    return ("host " if len(numbers) == 1 else "hosts ") + ", ".join(map(str, numbers))


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200]
