"""Keys that two parties agree on in public (X25519), and what is made of them: sealed letters, and streams of masks.

``cryptography`` does the work. It is imported where it is used, since nothing else needs it.
"""

from __future__ import annotations

import hashlib
import os

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError

KEY = 32  # bytes
TAG = 16  # bytes by which a sealed letter is longer than its content
_ONCE = bytes(12)  # the nonce of keys that seal one letter each


def require() -> None:
    """Refuse to go on where ``cryptography`` is not installed."""
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise IsthmusError(
            "Secure sums agree on keys with the package 'cryptography', which is not installed: "
            "pip install isthmus[secure]"
        ) from error


def new_key() -> bytes:
    """The bytes of a private key, or of a seed, from the operating system."""
    return os.urandom(KEY)


def commitment(secret: bytes) -> bytes:
    """Bytes by which a secret of 32 random bytes is known again, and which do not tell it (SHA-256)."""
    return hashlib.sha256(b"isthmus commitment" + secret).digest()


class KeyPair:
    """A private X25519 key (RFC 7748) and its public one, drawn by the operating system unless ``private`` is given."""

    def __init__(self, private: bytes | None = None) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self.private = new_key() if private is None else private
        self._key = X25519PrivateKey.from_private_bytes(self.private)
        self.public = self._key.public_key().public_bytes_raw()

    def agreed(self, public: bytes) -> bytes:
        """The secret that the holders of this pair and of a public key have in common.

        Raises ``ValueError`` for a public key with which the secret would be zero, whatever the private one is.
        """
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        return self._key.exchange(X25519PublicKey.from_public_bytes(public))


def derived(secret: bytes, purpose: str) -> bytes:
    """A key for one purpose, by HKDF with SHA-256 (RFC 5869)."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), KEY, None, f"isthmus {purpose}".encode()).derive(secret)


def seal(key: bytes, content: bytes) -> bytes:
    """A letter that only a holder of the key can read or make (ChaCha20-Poly1305); a key seals one letter, no more."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    return ChaCha20Poly1305(key).encrypt(_ONCE, content, None)


def open_sealed(key: bytes, letter: bytes) -> bytes:
    """The content of a sealed letter; raises ``ValueError`` for one that was not sealed with this key."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    try:
        return ChaCha20Poly1305(key).decrypt(_ONCE, letter, None)
    except InvalidTag as error:
        raise ValueError("a letter that was sealed with another key, or changed on its way") from error


def stream(key: bytes, width: int) -> Tensor:
    """Uniform 64-bit words of a key, by AES-256 in counter mode: [width] int64."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    words = np.empty(8 * width + 15, dtype=np.uint8)  # the library asks for room for a block more
    Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update_into(bytes(8 * width), words.data)
    return torch.from_numpy(words[: 8 * width].view("<i8"))
