"""A store in which members of a run read only what members have written."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]

from isthmus.wire.token import Token

_PAUSE = 0.01  # seconds between two looks at a key


class SealedStore(Store):
    """Seals what it writes with a token, and takes what was not sealed with it, under this key, as not being there.

    The process group keeps the addresses of hosts in it, so that nobody without the token can put in another. Counters
    (``add``) are not sealed: who changes one can make a run wait, and no more.
    """

    def __init__(self, inner: TCPStore, token: Token, timeout: float) -> None:
        super().__init__()
        self.inner, self.token = inner, token
        self.seconds = timeout

    def set(self, key: str, value: str | bytes) -> None:
        """Seal a value and write it."""
        body = value.encode() if isinstance(value, str) else bytes(value)
        self.inner.set(key, self.token.seal(body, key))  # type: ignore[arg-type]  # takes bytes as well

    def get(self, key: str) -> bytes:
        """The value of a key, as soon as a member has written it."""
        self.wait([key])
        body = self._read(key)
        if body is None:
            raise RuntimeError(f"the value of {key} was overwritten by somebody without the token")
        return body

    def check(self, keys: Sequence[str]) -> bool:
        """Whether members have written all of these keys."""
        return all(self._read(key) is not None for key in keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until members have written all of these keys."""
        end = time.monotonic() + (self.seconds if timeout is None else timeout.total_seconds())
        while not self.check(keys):
            if time.monotonic() > end:
                raise RuntimeError(f"nobody has written {', '.join(keys)} in time")
            time.sleep(_PAUSE)

    def add(self, key: str, amount: int) -> int:
        """Add to a counter; returns what it has come to."""
        return int(self.inner.add(key, amount))

    def delete_key(self, key: str) -> bool:
        """Delete a key; returns whether there was one."""
        return bool(self.inner.delete_key(key))

    def num_keys(self) -> int:
        """How many keys there are, sealed or not."""
        return int(self.inner.num_keys())

    def _read(self, key: str) -> bytes | None:
        """The value of a key; None where there is none, or somebody without the token has written it."""
        return self.token.opened(self.inner.get(key), key) if self.inner.check([key]) else None
