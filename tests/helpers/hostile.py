"""Letters that one host of three sends instead of the right ones, by kind, and what all hosts exchange meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from isthmus.core.kinds import SERVER, Kind
from isthmus.engine.layout import lay_out
from isthmus.federation.boundary import make_route
from isthmus.federation.federation import open_federation
from isthmus.federation.schema_agreement import agree_schema
from isthmus.launch import ledgers
from isthmus.sample.order import rule_of
from isthmus.testing.runs import small_silos
from isthmus.wire import distributed, roll_call
from isthmus.wire.distributed import DistributedWire
from isthmus.wire.wire import Wire

HOSTILE = 2  # the host, and its silo
Patch = pytest.MonkeyPatch
Misdeed = Callable[[Patch], None]  # what the hostile host changes in its own process


@dataclass(frozen=True)
class Hostile:
    """One hostile letter: its kind, what it is, how it is sent, what all hosts exchange, and what is said of it."""

    kind: str
    what: str
    misdeed: Misdeed
    exchange: Callable[[Wire], Any]
    said: str


# ---- what is exchanged


def letters(wire: Wire) -> None:
    """Two letters of each silo to the server, each of which is answered."""
    for kind in (Kind.METRICS, Kind.STATISTICS):
        wire.gather(kind, {silo: torch.ones(3, 2) for silo in wire.mine})
        wire.answer(kind, torch.ones(1) if wire.houses(SERVER) else None)


def sums(wire: Wire) -> None:
    wire.total(Kind.PARAMETERS, torch.ones(len(wire.mine), 400))


def shares(wire: Wire) -> None:
    wire.share(Kind.METRICS, torch.ones(len(wire.mine), 2))


def gradients(wire: Wire) -> None:
    wire.gather(Kind.GRADIENTS, {silo: torch.ones(4) for silo in wire.mine})
    wire.answer(Kind.GRADIENTS, torch.ones(4) if wire.houses(SERVER) else None)


def schemas(wire: Wire) -> None:
    silos = small_silos(3, 18)
    agree_schema(wire, [silos[i] for i in wire.mine])


def schemas_twice(wire: Wire) -> None:
    schemas(wire)
    schemas(wire)


def books(wire: Wire) -> None:
    sums(wire)
    ledgers.collect_ledgers(wire, ["A note."])


def places(wire: Wire) -> None:
    """Each host asks for the rows at the far ends of its edges."""
    _routed(wire)


def rows(wire: Wire) -> None:
    """Rows go to where they were asked for, and derivatives come back."""
    owned, route = _routed(wire)
    loss = wire.linear(owned.requires_grad_(), route, Kind.EMBEDDINGS, adjoint=True).sum()
    wire.close(loss).backward()


def _routed(wire: Wire) -> tuple[Tensor, Any]:
    silos = small_silos(3, 18)
    federation = open_federation(wire, [silos[i] for i in wire.mine])
    layout = lay_out(federation, "halo", rule_of("local"), False, torch.device("cpu"), torch.float64)
    wire.releases.open(layout.stack.rows)
    asked = wire.ask(layout.boundary, layout.boundary.halo)
    own = layout.stack.owned.nonzero().flatten()
    return torch.ones(len(own), 2, dtype=torch.float64), make_route([asked], own, torch.arange(layout.stack.rows), wire)


# ---- misdeeds


def buffers(change: Callable[[Tensor], Tensor]) -> Misdeed:
    """Change the bytes of every letter that leaves, envelope included."""

    def plant(patch: Patch) -> None:
        plain = distributed.enveloped
        patch.setattr(distributed, "enveloped", lambda *given: _if_any(plain(*given), change))

    return plant


def _if_any(buffer: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    return change(buffer) if len(buffer) else buffer


def word(place: int, value: int) -> Misdeed:
    """Write another whole number into the envelope (words 0 and 1), the count (2), or the header of a letter (3 on)."""

    def change(buffer: Tensor) -> Tensor:
        buffer[8 * place : 8 * place + 8] = torch.tensor([value]).view(torch.uint8)
        return buffer

    return buffers(change)


def kept(which: Callable[[list[Tensor]], Tensor]) -> Misdeed:
    """Send one of the buffers that have left before, by what was kept of them."""
    seen: list[Tensor] = []

    def change(buffer: Tensor) -> Tensor:
        seen.append(buffer)
        return which(seen)

    return buffers(change)


def payload(of: Kind, change: Callable[[Tensor], Tensor]) -> Misdeed:
    """Change what silos say in letters of a kind, before it is packed."""

    def plant(patch: Patch) -> None:
        plain = DistributedWire._deliver

        def deliver(self: DistributedWire, kind: Kind, said: dict[tuple[int, int], Tensor]) -> Any:
            return plain(self, kind, {key: change(x) if kind == of else x for key, x in said.items()})

        patch.setattr(DistributedWire, "_deliver", deliver)

    return plant


def swapped(of: Kind, change: Callable[[Tensor], Tensor]) -> Misdeed:
    """Change rows of a kind on their way to the transport."""

    def plant(patch: Patch) -> None:
        plain = DistributedWire._swap

        def swap(self: DistributedWire, kind: Kind, rows: Tensor, leaving: list[int], arriving: list[int]) -> Tensor:
            mine = kind == of and len(rows) and rows.dtype != torch.uint8  # letters of the kind travel as bytes
            return plain(self, kind, change(rows.clone()) if mine else rows, leaving, arriving)

        patch.setattr(DistributedWire, "_swap", swap)

    return plant


def shorter(of: Kind, rows: int) -> Misdeed:
    """Send fewer rows of a kind to the other hosts than was announced."""

    def plant(patch: Patch) -> None:
        plain = distributed.dist.all_to_all_single
        now: list[Kind] = []
        inner = DistributedWire._swap

        def swap(self: DistributedWire, kind: Kind, *given: Any) -> Tensor:
            now[:] = [kind]
            return inner(self, kind, *given)

        def send(got: Tensor, sent: Tensor, back: Any = None, out: Any = None, group: Any = None) -> Any:
            if out is not None and now == [of]:
                parts = [x if host == HOSTILE else x[: max(len(x) - rows, 0)] for host, x in enumerate(sent.split(out))]
                sent, out = torch.cat(parts), [len(x) for x in parts]
            return plain(got, sent, back, out, group=group)

        patch.setattr(DistributedWire, "_swap", swap)
        patch.setattr(distributed.dist, "all_to_all_single", send)

    return plant


def announced(size: int, of: Kind) -> Misdeed:
    """Announce another number of rows of a kind than will come."""

    def plant(patch: Patch) -> None:
        plain = DistributedWire._sizes

        def sizes(self: DistributedWire, kind: Kind, leaving: list[int]) -> list[int]:
            told = [size if host != HOSTILE else x for host, x in enumerate(leaving)]
            return plain(self, kind, told if kind == of else leaving)

        patch.setattr(DistributedWire, "_sizes", sizes)

    return plant


def more_places(count: int) -> Misdeed:
    """Announce more places than the list has that they are in."""

    def plant(patch: Patch) -> None:
        plain = DistributedWire.leave_sized

        def leave_sized(self: DistributedWire, *given: Any) -> Any:
            with Patch.context() as inner:
                announced(count, Kind.IDS)(inner)
                return plain(self, *given)

        patch.setattr(DistributedWire, "leave_sized", leave_sized)

    return plant


def short_sum(patch: Patch) -> None:
    """Send half of what is to be added up."""
    plain = distributed.dist.send
    patch.setattr(distributed.dist, "send", lambda x, **given: plain(x.flatten()[: x.numel() // 2], **given))


def summand(value: float) -> Misdeed:
    """Let something else be added up."""

    def plant(patch: Patch) -> None:
        plain = distributed.dist.send
        patch.setattr(distributed.dist, "send", lambda x, **given: plain(torch.full_like(x, value), **given))

    return plant


def at_the_roll_call(words: str) -> Misdeed:
    """Say something else than one's settings when the roll is called."""

    def plant(patch: Patch) -> None:
        patch.setattr(roll_call.json, "dumps", lambda said: words)

    return plant


def bytes_of(words: bytes) -> Callable[[Tensor], Tensor]:
    return lambda _: torch.frombuffer(bytearray(words), dtype=torch.uint8)


def first_place(value: int) -> Callable[[Tensor], Tensor]:
    return lambda rows: rows.index_fill(0, torch.tensor([0]), value)


def random_bytes(buffer: Tensor) -> Tensor:
    return torch.frombuffer(bytearray(os.urandom(len(buffer))), dtype=torch.uint8)


def garbled_words(letter: Tensor) -> Tensor:
    """Of the letters of a ledger, the one with words."""
    return bytes_of(b"[[], {}]")(letter) if letter.dtype == torch.uint8 else letter


def renumbered(seen: list[Tensor]) -> Tensor:
    """The first buffer with the number of the last, which is of another kind."""
    again = seen[0].clone()
    again[8:16] = seen[-1][8:16]
    return again


REPLAY, ELSEWHERE = "a replay, or out of order", "a letter from party"
METRICS, IDS = Kind.METRICS, Kind.IDS

LETTERS: tuple[Hostile, ...] = (
    Hostile("forged sender", "another silo's name", word(3, 1), letters, f"{ELSEWHERE} 1 to"),
    Hostile("forged sender", "the server's name", word(3, SERVER), letters, f"{ELSEWHERE} -1 to"),
    Hostile("forged sender", "the name of nobody", word(3, 77), letters, f"{ELSEWHERE} 77 to"),
    Hostile("forged sender", "to a silo of another host", word(4, 1), letters, f"{ELSEWHERE} 2 to party 1"),
    Hostile("replayed", "the letter before, once more", kept(lambda seen: seen[0]), letters, REPLAY),
    Hostile("replayed", "its number alone made new", kept(renumbered), letters, REPLAY),
    Hostile("replayed", "the answer to an earlier question", kept(lambda seen: seen[0]), schemas_twice, REPLAY),
    Hostile("reordered", "the next letter first", word(1, 3), letters, REPLAY),
    Hostile("reordered", "far too early", word(1, 2**40), letters, REPLAY),
    Hostile("reordered", "places backwards", swapped(IDS, lambda x: x.flip(0)), places, "or for one twice"),
    Hostile("truncated", "five bytes", buffers(lambda x: x[:5]), letters, "an envelope of 5 bytes"),
    Hostile("truncated", "an envelope and nothing in it", buffers(lambda x: x[:16]), letters, "no letter of"),
    Hostile("truncated", "without its last byte", buffers(lambda x: x[:-1]), letters, "is said to have"),
    Hostile("truncated", "fewer bytes than announced", shorter(METRICS, 9), letters, "fewer bytes of metrics"),
    Hostile("truncated", "fewer rows than asked for", shorter(Kind.EMBEDDINGS, 1), rows, "fewer bytes of embeddings"),
    Hostile("truncated", "half of a summand", short_sum, sums, "fewer bytes of parameters"),
    Hostile("truncated", "half of its schema", payload(Kind.SCHEMA, lambda x: x[: len(x) // 2]), schemas, "its schema"),
    Hostile("oversized", "bytes behind the end", buffers(lambda x: torch.cat([x, x[:7]])), letters, "to no letter"),
    Hostile("oversized", "more places than there are", more_places(10**6), places, "said that 1,000,000 rows of ids"),
    Hostile("oversized", "a payload of 2^50 rows", word(7, 2**50), letters, "is said to have"),
    Hostile("oversized", "more letters than there are bytes", word(2, 2**40), letters, "letters in"),
    Hostile("false size", "2^50 bytes", announced(2**50, METRICS), letters, "said that 1,125,899,906,842,624 rows"),
    Hostile("false size", "a billion bytes too many", announced(10**9, METRICS), letters, "fewer bytes of metrics"),
    Hostile("false size", "less than nothing", announced(-8, METRICS), letters, "said that -8 rows of metrics"),
    Hostile("wrong dtype", "a format that does not exist", word(5, 99), letters, "a letter of unknown form"),
    Hostile("wrong dtype", "twice the digits", payload(METRICS, lambda x: x.double()), letters, "torch.float64"),
    Hostile("wrong dtype", "words for numbers", payload(METRICS, bytes_of(b"abcdef")), shares, "torch.uint8"),
    Hostile("wrong dtype", "numbers for words", payload(Kind.SCHEMA, lambda x: x.float()), schemas, "torch.float32"),
    Hostile("wrong shape", "seven dimensions", word(6, 7), letters, "a letter of unknown form"),
    Hostile("wrong shape", "a side below zero", word(7, -2), letters, "a letter of unknown form"),
    Hostile("wrong shape", "one column more", payload(METRICS, lambda x: torch.ones(len(x), 3)), letters, "form torch"),
    Hostile("wrong shape", "no letter at all", buffers(lambda x: x[:0]), letters, "no letter of metrics"),
    Hostile("no numbers", "parameters that are not", summand(torch.nan), sums, "parameters that are not finite"),
    Hostile("no numbers", "endless gradients", payload(Kind.GRADIENTS, lambda x: x / 0), gradients, "gradients that"),
    Hostile("no numbers", "rows", swapped(Kind.EMBEDDINGS, lambda x: x * torch.inf), rows, "embeddings that"),
    Hostile("no numbers", "derivatives", swapped(Kind.ADJOINTS, lambda x: x * torch.nan), rows, "adjoints that"),
    Hostile("wrong places", "below the first", swapped(IDS, first_place(-1)), places, "asked for rows -1 to"),
    Hostile("wrong places", "beyond the last", swapped(IDS, lambda x: x + 10**6), places, "asked for rows 1,000,0"),
    Hostile("wrong places", "one of them twice", swapped(IDS, lambda x: x * 0), places, "asked for rows 0 to 0"),
    Hostile("garbage", "random bytes", buffers(random_bytes), letters, "letters of no known kind"),
    Hostile("garbage", "words of no schema", payload(Kind.SCHEMA, bytes_of(b'{"name": 1}')), schemas, "its schema"),
    Hostile("garbage", "bytes that are no words", payload(Kind.SCHEMA, bytes_of(b"\xff\xfe")), schemas, "its schema"),
    Hostile("garbage", "a ledger without sense", payload(Kind.LEDGER, garbled_words), books, "words make no sense"),
    Hostile("garbage", "nonsense at the roll call", at_the_roll_call("[1"), letters, "in other words"),
)  # fmt: skip
