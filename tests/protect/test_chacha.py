"""The stream of ChaCha20 is that of the RFC, of the library and of the compiled loop, bit for bit."""

from collections.abc import Iterator

import pytest
import torch

from isthmus import kernels
from isthmus.core.errors import IsthmusError
from isthmus.protect.chacha import keystream
from isthmus.protect.field import PRIME, deal, interpolate, uniform

CPU = torch.device("cpu")
KEY = bytes(range(32))
needs_compiler = pytest.mark.skipif(kernels.compiled(CPU) is None, reason=kernels.describe_kernels(CPU))


@pytest.fixture(autouse=True)
def _automatic() -> Iterator[None]:
    yield
    kernels.choose("auto")


def stream_bytes(key: bytes, words: int) -> bytes:
    made: bytes = keystream(key, words, CPU).numpy().astype("<i8").tobytes()
    return made


def test_the_first_blocks_are_those_of_rfc_8439() -> None:
    """Appendix A.1, test vectors 1 and 2: the key and the nonce are 0, the counter is 0 and then 1."""
    made = stream_bytes(bytes(32), 16)
    assert made[:16].hex() == "76b8e0ada0f13d90405d6ae55386bd28"
    assert made[48:64].hex() == "6a43b8f41518a11cc387b669b2ee6586"
    assert made[64:80].hex() == "9f07e7be5551387a98ba977c732d080d"


def test_it_is_the_stream_of_the_library() -> None:
    name = "cryptography.hazmat.primitives.ciphers"
    ciphers = pytest.importorskip(name, reason="the extra 'secure' is not installed")
    theirs = ciphers.Cipher(ciphers.algorithms.ChaCha20(KEY, bytes(16)), mode=None).encryptor()
    words = 8 * 4096 + 100  # more than is made at once, and no whole number of blocks
    assert stream_bytes(KEY, words) == theirs.update(bytes(8 * words))


@pytest.mark.parametrize("words", [0, 1, 7, 8, 9])
def test_a_shorter_stream_begins_a_longer_one(words: int) -> None:
    assert torch.equal(keystream(KEY, words, CPU), keystream(KEY, 40, CPU)[:words])


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes; this one has 31"):
        keystream(KEY[1:], 8, CPU)


def dealt(choice: str, messages: int, degree: int, width: int, key: bytes = KEY) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows that messages carry, and shares of them."""
    kernels.choose(choice)
    h = torch.randint(0, PRIME, (11, width), generator=torch.Generator().manual_seed(3))
    h[:2] = torch.tensor([[0], [PRIME - 1]])
    copies = torch.arange(messages) * 7 % 11
    shares = torch.empty(messages, degree + 1, width, dtype=torch.int64)
    deal(h, copies, key, shares)
    return h[copies], shares


@needs_compiler
@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize(("messages", "width"), [(0, 4), (1, 1), (5, 0), (40, 3), (9, 64), (30, 133)])
def test_compiled_shares_equal_plain_ones_bit_for_bit(messages: int, width: int, degree: int) -> None:
    (_, compiled), (rows, plain) = (dealt(choice, messages, degree, width) for choice in ("auto", "plain"))
    assert torch.equal(compiled, plain) and torch.equal(interpolate(compiled), rows)


@needs_compiler
def test_threads_make_no_difference() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        _, found = dealt("auto", 5000, 2, 5)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found, dealt("plain", 5000, 2, 5)[1])


@pytest.mark.parametrize("choice", kernels.CHOICES)
def test_what_hides_rows_is_the_stream_of_the_key(choice: str) -> None:
    rows, shares = dealt(choice, 30, 2, 5)
    assert torch.equal(shares[:, :2].flatten(), uniform(keystream(KEY, 300, CPU)))
    assert torch.equal(interpolate(shares), rows)
    assert not bool((dealt(choice, 30, 2, 5, key=KEY[::-1])[1] == shares).any())


@pytest.mark.parametrize("choice", kernels.CHOICES)
@pytest.mark.parametrize("named", [-1, 4])
def test_messages_that_carry_rows_that_are_not_there_are_refused(named: int, choice: str) -> None:
    kernels.choose(choice)
    with pytest.raises(IsthmusError, match=f"rows 0 to 3; got {named} to {named}"):
        deal(torch.ones(4, 2, dtype=torch.int64), torch.tensor([named]), KEY, torch.empty(1, 2, 2, dtype=torch.int64))
