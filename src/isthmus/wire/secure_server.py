"""The server of a secure sum: it deals out keys and sealed shares, adds up masked vectors, and opens their sum."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.core.errors import PeerError
from isthmus.core.kinds import Kind
from isthmus.protect import key_agreement as keys
from isthmus.protect import shamir
from isthmus.protect.masked_sums import largest_input
from isthmus.wire import labelled_rows
from isthmus.wire.secure_client import KEYS, SEALED, SHARE, Group, masks_with, thirds

Heard = Mapping[int, Tensor]  # client -> letter


@dataclass(frozen=True)
class GroupSum:
    """The sum of the vectors of ``clients``: [width] int64; ``dropped`` belong to the group and are not in it."""

    clients: tuple[int, ...]
    dropped: tuple[int, ...]
    total: Tensor


class Aggregator:
    """The server's side of one group; each method takes what clients said and returns an answer for each of them."""

    def __init__(self, group: Group, name: Callable[[int], str]) -> None:
        self.group, self._name = group, name
        self._keys: dict[int, bytes] = {}  # what each client said first
        self._shared: tuple[int, ...] = ()
        self._arrived: tuple[int, ...] = ()
        self._sum = torch.zeros(group.width, dtype=torch.int64)

    def list_keys(self, heard: Heard) -> dict[int, Tensor]:
        """The public keys of all clients that sent theirs, for each of them."""
        self._expect(heard, self.group.members, "keys")
        for client, letter in heard.items():
            self._keys |= self._read(Kind.KEYS, client, letter, KEYS, (client,))
        return dict.fromkeys(heard, labelled_rows.write(self._keys, KEYS))

    def deal_shares(self, heard: Heard) -> dict[int, Tensor]:
        """For each client the sealed shares that all others sent for it."""
        self._expect(heard, self._keys, "shares of their keys")
        self._shared = tuple(heard)
        dealt: dict[int, dict[int, bytes]] = {client: {} for client in heard}
        for sender, letter in heard.items():
            others = set(self._keys) - {sender}
            for receiver, sealed in self._read(Kind.KEY_SHARES, sender, letter, SEALED, others).items():
                if receiver in dealt:
                    dealt[receiver][sender] = sealed
        return {client: labelled_rows.write(rows, SEALED) for client, rows in dealt.items()}

    def add_up(self, heard: Heard) -> dict[int, Tensor]:
        """Add up masked vectors; returns, for each client, the list of those whose vectors arrived."""
        self._expect(heard, self._shared, "masked vectors")
        for client, vector in heard.items():
            if vector.dtype != torch.int64 or vector.shape != (1, self.group.width):
                raise PeerError(
                    f"{self._name(client)} sent {Kind.MASKED} of the form {vector.dtype} {list(vector.shape)}, where "
                    f"{torch.int64} {[1, self.group.width]} is due."
                )
            self._sum += vector[0]
        self._arrived = tuple(heard)
        return dict.fromkeys(heard, labelled_rows.write(dict.fromkeys(heard, b""), 0))

    def open_sum(self, heard: Heard) -> GroupSum:
        """The sum of the vectors that arrived, from shares of what is left of masks in it."""
        self._expect(heard, self._arrived, "shares that open the sum")
        told = {client: self._read(Kind.KEY_SHARES, client, x, SHARE, self._shared) for client, x in heard.items()}
        chosen = list(told)[: self.group.threshold]

        def secret(member: int) -> bytes:
            return shamir.reconstruct({self.group.point(client): told[client][member] for client in chosen})

        total, width = self._sum.clone(), self.group.width
        public = {client: thirds(self._keys[client])[1] for client in self._arrived}
        for member in self._shared:
            opened = secret(member)
            if member in self._arrived:
                self._check_opened(member, keys.commitment(opened), 2, chosen)
                total -= keys.stream(opened, width)
            else:
                pair = keys.KeyPair(opened)
                self._check_opened(member, pair.public, 1, chosen)
                # The masks of others with it, which are the negative of its own with them, are left in the sum.
                total += masks_with(member, pair, public, width, self._name)
        self._check_range(total)
        dropped = tuple(member for member in self.group.members if member not in self._arrived)
        return GroupSum(self._arrived, dropped, total)

    def _check_opened(self, member: int, known_by: bytes, place: int, chosen: list[int]) -> None:
        """Refuse a secret that is not the one of which a client has said, at ``place``, by what it can be known."""
        if known_by != thirds(self._keys[member])[place]:
            senders = ", ".join(map(self._name, chosen))
            raise PeerError(f"Shares of a secret of {self._name(member)} do not give it; they are from {senders}.")

    def _check_range(self, total: Tensor) -> None:
        """Refuse a sum that vectors within the bound of the group cannot have."""
        most = len(self._arrived) * largest_input(len(self.group.members))
        if bool(((total > most) | (total < -most)).any()):
            senders = ", ".join(map(self._name, self._arrived))
            raise PeerError(f"A sum of vectors of {senders} is outside of ±{most:,}: a vector or a share is wrong.")

    def _read(self, kind: Kind, client: int, letter: Tensor, width: int, due: Iterable[int]) -> dict[int, bytes]:
        return labelled_rows.read(kind, letter, width, set(due), self._name(client))

    def _expect(self, heard: Heard, before: Collection[int], what: str) -> None:
        """Refuse letters of clients that have missed a stage, and too few letters."""
        for client in set(heard) - set(before):
            raise PeerError(f"{self._name(client)} sent {what}, though what is due before them has not come from it.")
        self.group.check_enough(heard, what, self._name)
