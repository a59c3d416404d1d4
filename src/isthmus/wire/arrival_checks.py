"""Checks of what arrives from other hosts, before it is used: whole, of the right form, in order, finite numbers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from isthmus.core.errors import PeerError
from isthmus.core.kinds import Kind
from isthmus.protect.field import PRIME

_MARK = 8  # bytes by which a message that ends too early is found out
# Letters of these are finite; scores may be undefined.
NUMBERS = (Kind.PARAMETERS, Kind.GRADIENTS, Kind.FEATURES, Kind.GENERATED, Kind.ROW_GRADIENTS)


def check_sizes(kind: Kind, sizes: Sequence[int], most: Sequence[int] | None, width: int, who: Sequence[str]) -> None:
    """Refuse announced numbers of rows (``width`` bytes each) that are too large, before memory is taken for them.

    ``most`` is the largest number that each host may announce; None: its share of half of the memory.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    room = memory // 2 // max(width, 1) // max(len(sizes), 1)
    for host, size in enumerate(sizes):
        limit = room if most is None else most[host]
        if not 0 <= size <= limit:
            raise PeerError(f"{who[host]} said that {size:,} rows of {kind} would come, where {limit:,} can.")


def mark_ends(rows: Tensor, splits: Sequence[int]) -> list[Tensor]:
    """Write, where the last bytes of each host's rows will be, what no host sends; returns what was written there.

    ``splits`` of the rows are to come from each host. A transport fills less than it should without a word.
    """
    marks = []
    for block in rows.split(list(splits)):
        end = _end(block)
        if block.is_floating_point():  # a number that is none, of a form that no arithmetic makes
            one = torch.tensor([0xA5] * (block.element_size() - 2) + [0xF7, 0xFF], dtype=torch.uint8)
            end.copy_(one.repeat(len(end) // len(one)))
        elif len(end) >= _MARK:
            end.copy_(torch.frombuffer(bytearray(os.urandom(len(end))), dtype=torch.uint8))
        else:
            end.zero_()  # too short for a mark that cannot be a message
        marks.append(end.clone())
    return marks


def check_whole(kind: Kind, rows: Tensor, splits: Sequence[int], marks: Sequence[Tensor], who: Sequence[str]) -> None:
    """Refuse rows whose end never came: there the marks of `mark_ends` still stand; ``who`` sent each of ``splits``."""
    for sender, block, mark in zip(who, rows.split(list(splits)), marks, strict=True):
        marked = block.is_floating_point() or len(mark) >= _MARK
        if len(mark) and marked and torch.equal(_end(block), mark):
            raise PeerError(f"{sender} sent fewer bytes of {kind} than are due.")


def _end(block: Tensor) -> Tensor:
    """The last bytes of a block of rows, as far as they are a mark's: a view of them."""
    size = block.element_size()
    flat = block.reshape(-1)[-max(_MARK // size, 1) :]
    return flat.view(torch.uint8)


def check_posted(kind: Kind, got: Mapping[tuple[int, int], Tensor], due: Iterable[tuple[int, int, str]]) -> None:
    """Refuse an exchange in which a letter is missing; ``due`` has sender, receiver and the sender's name of each."""
    for sender, receiver, who in due:
        if (sender, receiver) not in got:
            raise PeerError(f"{who} sent no letter of {kind} where one is due.")


def check_form(kind: Kind, letter: Tensor, own: Tensor, who: str) -> None:
    """Refuse a letter whose number format, or whose shape but for its length, is not that of one's ``own``."""
    if letter.dtype != own.dtype or letter.dim() != own.dim() or letter.shape[1:] != own.shape[1:]:
        raise PeerError(
            f"{who} sent {kind} of the form {letter.dtype} {list(letter.shape)}, where {own.dtype} "
            f"{['any', *own.shape[1:]]} is due."
        )


def check_like(kind: Kind, row: Tensor, rows: Tensor, who: str) -> None:
    """Refuse one silo's row whose number format or width differs from that of ``rows``, the rows of this host."""
    if row.dtype != rows.dtype or row.shape != (1, *rows.shape[1:]):
        raise PeerError(
            f"{who} sent {kind} of the form {row.dtype} {list(row.shape)}, where {rows.dtype} {[1, *rows.shape[1:]]} "
            "is due."
        )


def check_places(told: Tensor, splits: Sequence[int], lengths: Sequence[int], who: Sequence[str]) -> None:
    """Refuse places outside of a host's list (``lengths`` [hosts]), and places that do not ascend."""
    for host, places in enumerate(told.split(list(splits))):
        if not len(places):
            continue
        low, high = int(places[0]), int(places[-1])
        if low < 0 or high >= lengths[host] or not bool((places[1:] > places[:-1]).all()):
            raise PeerError(
                f"{who[host]} asked for rows {low:,} to {high:,} of a list of {lengths[host]:,}, or for one twice; it "
                "gets none."
            )


def check_elements(kind: Kind, rows: Tensor, splits: Sequence[int], who: Sequence[str]) -> None:
    """Refuse shares that are no elements of the field and name their sender; ``splits`` rows came from each ``who``."""
    for sender, part in zip(who, rows.split(list(splits)), strict=True):
        if part.numel() and not 0 <= int(part.min()) <= int(part.max()) < PRIME:
            raise PeerError(f"{sender} sent shares of {kind} that lie outside of the field; they are not added up.")


def check_finite(kind: Kind, rows: Tensor, splits: Sequence[int], who: Sequence[str]) -> None:
    """Refuse rows with NaN or infinity and name their sender; ``splits`` of the rows came from each of ``who``."""
    if not rows.is_floating_point() or bool(torch.isfinite(rows).all()):
        return
    for sender, part in zip(who, rows.split(list(splits)), strict=True):
        if not bool(torch.isfinite(part).all()):
            raise PeerError(
                f"{sender} sent {kind} that are not finite numbers: its training has diverged (a smaller train.lr may "
                "help), or it does not send what it should."
            )
