"""Seals of letters: keys that two parties agree on under their certificates, each for one direction of one run.

Every party draws an X25519 key for the run and signs it together with the run's name and its own (a hello). Two
parties' keys give a secret, from which each direction has a key of its own (HKDF over both hellos); ChaCha20-Poly1305
seals under the number of the letter. So a letter of another run, sender, receiver or number does not open, and whoever
learns a certificate's key later cannot read what has travelled before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from isthmus.core.errors import PeerError
from isthmus.protect.key_agreement import KeyPair, derived
from isthmus.wire.flare.papers import Papers, fingerprint_of, verify

FRAME = 2**26  # bytes of content that are sealed at once; the library takes less than 2 GiB
TAG = 16  # bytes by which each frame is longer
_LAST = 0x80  # added to the first byte of the nonce of a letter's last frame


@dataclass(frozen=True)
class Hello:
    """What a party signs at the beginning of a run: its name, its key for this run, and what it was started with."""

    words: str
    signature: str
    chain: str

    @staticmethod
    def signed(papers: Papers, job: str, pair: KeyPair, said: Mapping[str, Any], refuses: str = "") -> Hello:
        """The hello of the party that holds the papers; ``said``: what others compare with their own.

        ``refuses``: what its policy refuses of the run, in the words that others may hear; empty where nothing is.
        """
        about = {"job": job, "name": papers.name, "key": pair.public.hex(), "said": dict(said), "refuses": refuses}
        words = json.dumps(about, sort_keys=True)
        return Hello(words, papers.sign(words.encode()).hex(), papers.chain.decode())

    def checked(self, root: bytes, job: str, name: str) -> dict[str, Any]:
        """What the hello says, after its certificate, its signature, its run and its name have been checked."""
        try:
            signature = bytes.fromhex(self.signature)
            about = json.loads(self.words)
        except ValueError as error:
            raise PeerError(f"{name} said hello in words that cannot be read.") from error
        verify(self.chain.encode(), root, name, self.words.encode(), signature)
        if not isinstance(about, dict) or (about.get("job"), about.get("name")) != (job, name):
            raise PeerError(f"{name} said hello for another run or another party; somebody may have kept it.")
        return about

    def as_dict(self) -> dict[str, str]:
        """The hello as plain words, to be sent."""
        return {"words": self.words, "signature": self.signature, "chain": self.chain}

    @staticmethod
    def read(told: Any, name: str) -> Hello:
        """The hello that somebody sent in the name of ``name``."""
        fields = ("words", "signature", "chain")
        if not isinstance(told, dict) or not all(isinstance(told.get(key), str) for key in fields):
            raise PeerError(f"{name} said hello in words that cannot be read.")
        return Hello(*(told[key] for key in fields))


class Seals:
    """Seals and opens the letters between this party and the others of a run."""

    def __init__(
        self, pair: KeyPair, own: Hello, others: Mapping[str, Hello], root: bytes, job: str, name: str
    ) -> None:
        self.said: dict[str, dict[str, Any]] = {}  # what each other party was started with
        self.refuses: dict[str, str] = {}  # what the policy of each other party refuses of this run
        self.fingerprints = {each: fingerprint_of(said.chain.encode(), each) for each, said in others.items()}
        self._out: dict[str, bytes] = {}
        self._in: dict[str, bytes] = {}
        for other, hello in others.items():
            about = hello.checked(root, job, other)
            self.said[other] = about["said"]
            self.refuses[other] = str(about.get("refuses", ""))
            secret = _agreed(pair, about, other)
            both = hashlib.sha256("\n".join(sorted((own.words, hello.words))).encode()).hexdigest()
            self._out[other] = derived(secret, f"letters {both} {json.dumps([name, other])}")
            self._in[other] = derived(secret, f"letters {both} {json.dumps([other, name])}")

    def seal(self, receiver: str, what: int, number: int, content: bytes) -> bytes:
        """A sealed letter; ``what`` (below 128) and ``number`` together must be new for this receiver."""
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        cipher, view = ChaCha20Poly1305(self._out[receiver]), memoryview(content)
        starts = range(0, max(len(content), 1), FRAME)
        return b"".join(
            cipher.encrypt(_nonce(what, number, place, at == starts[-1]), view[at : at + FRAME], None)
            for place, at in enumerate(starts)
        )

    def open(self, sender: str, what: int, number: int, letter: bytes) -> bytes:
        """The content of a letter; raises ``ValueError`` for one that this sender did not seal as this number."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        cipher, view = ChaCha20Poly1305(self._in[sender]), memoryview(letter)
        starts = range(0, max(len(letter), 1), FRAME + TAG)
        try:
            return b"".join(
                cipher.decrypt(_nonce(what, number, place, at == starts[-1]), view[at : at + FRAME + TAG], None)
                for place, at in enumerate(starts)
            )
        except InvalidTag as error:
            raise ValueError("a letter that does not bear its seal") from error


def _agreed(pair: KeyPair, about: Mapping[str, Any], name: str) -> bytes:
    """The secret in common with a party whose hello is ``about``."""
    try:
        return pair.agreed(bytes.fromhex(about["key"]))
    except (ValueError, TypeError, KeyError) as error:
        raise PeerError(f"{name} said hello with a key that is none.") from error


def _nonce(what: int, number: int, frame: int, last: bool) -> bytes:
    """Twelve bytes that no two frames under one key have in common."""
    return bytes([what | (_LAST if last else 0)]) + frame.to_bytes(3, "big") + number.to_bytes(8, "big")
