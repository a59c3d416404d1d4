"""A secret that the parties of a run share, by which each proves to the others that it belongs to them."""

from __future__ import annotations

import hmac
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from isthmus.core.errors import IsthmusError

VARIABLE = "ISTHMUS_TOKEN"
SIZE = 32  # bytes of a proof
_SHORTEST = 16  # letters of a token
AUTHENTICATED = "authenticated by a shared token, not encrypted"
OPEN = "not authenticated, not encrypted"


@dataclass(frozen=True)
class Token:
    """A shared secret; an empty one proves nothing, and reports say so."""

    secret: bytes = b""

    def __repr__(self) -> str:
        return f"Token({self.security})"  # a secret is in no message and no traceback

    @property
    def security(self) -> str:
        """How a wire between holders of this token is secured, in words."""
        return AUTHENTICATED if self.secret else OPEN

    def proof(self, *words: str | bytes) -> bytes:
        """A keyed hash of words, which only holders of the token can make: [SIZE]."""
        parts = [word.encode() if isinstance(word, str) else word for word in words]
        return hmac.digest(self.secret, b"".join(len(part).to_bytes(8, "big") + part for part in parts), "sha256")

    def seal(self, body: bytes, *about: str) -> bytes:
        """The body with a proof in front, which holds for it alone and for what it is ``about``."""
        return self.proof(*about, body) + body

    def opened(self, sealed: bytes, *about: str) -> bytes | None:
        """The body of what :meth:`seal` made with this token; None where somebody else wrote it."""
        proof, body = sealed[:SIZE], sealed[SIZE:]
        return body if hmac.compare_digest(proof, self.proof(*about, body)) else None

    def of_session(self, session: str) -> Token:
        """The token of one run: what was sealed in an earlier one does not hold in it."""
        return Token(self.proof("session", session)) if self.secret else self


def fresh() -> str:
    """A word that nobody has used before, for challenges and sessions."""
    return secrets.token_hex(16)


def read_token(path: str | None) -> Token:
    """The token in a file that nobody but its owner can read; without a file, of the environment, or none."""
    if path is None:
        return _checked(os.environ.get(VARIABLE, ""), f"The variable {VARIABLE}")
    try:
        mode = Path(path).stat().st_mode & 0o077
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise IsthmusError(f"The token '{path}' cannot be read: {error}.") from error
    if mode:
        raise IsthmusError(f"Others than its owner can read or write the token '{path}'; run 'chmod 600 {path}'.")
    if not text.strip():
        raise IsthmusError(f"The token '{path}' is empty; make one with 'openssl rand -hex 32 > {path}'.")
    return _checked(text, f"The token '{path}'")


def _checked(text: str, what: str) -> Token:
    """The token of a text; raises if it is so short that it can be guessed."""
    text = text.strip()
    if text and len(text) < _SHORTEST:
        raise IsthmusError(
            f"{what} has {len(text)} letters; give it {_SHORTEST} at least, like 'openssl rand -hex 32'."
        )
    return Token(text.encode())
