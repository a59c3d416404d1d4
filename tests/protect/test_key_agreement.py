"""Keys of two parties: the vectors of RFC 7748, sealed letters, and what is said where the library is missing."""

import sys

import pytest
import torch

from isthmus.core.errors import IsthmusError
from isthmus.protect.key_agreement import KeyPair, derived, new_key, open_sealed, require, seal, stream

# RFC 7748, section 6.1: private and public keys of Alice and Bob, and what they agree on.
ALICE = (
    "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
    "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
)
BOB = (
    "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
    "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
)
AGREED = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"


@pytest.mark.parametrize(("one", "other"), [(ALICE, BOB), (BOB, ALICE)])
def test_x25519_is_that_of_the_rfc(one: tuple[str, str], other: tuple[str, str]) -> None:
    pair = KeyPair(bytes.fromhex(one[0]))
    assert pair.public.hex() == one[1] and pair.agreed(bytes.fromhex(other[1])).hex() == AGREED


def test_a_key_that_agrees_on_zero_with_everybody_is_refused() -> None:
    with pytest.raises(ValueError):
        KeyPair().agreed(bytes(32))


def test_a_letter_opens_with_its_key_alone() -> None:
    key = new_key()
    letter = seal(key, b"two shares")
    assert open_sealed(key, letter) == b"two shares"
    for wrong, changed in ((new_key(), letter), (key, letter[:-1] + bytes([letter[-1] ^ 1]))):
        with pytest.raises(ValueError, match="another key, or changed on its way"):
            open_sealed(wrong, changed)


def test_keys_have_a_purpose_and_streams_a_key() -> None:
    secret = new_key()
    assert derived(secret, "mask") == derived(secret, "mask") != derived(secret, "shares from 0 to 1")
    assert torch.equal(stream(secret, 5), stream(secret, 9)[:5])
    assert not torch.equal(stream(secret, 5), stream(new_key(), 5))


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    require()
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(IsthmusError, match=r"pip install isthmus\[secure\]"):
        require()
