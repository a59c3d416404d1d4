"""One client of a secure sum: its keys, the shares of them that others keep, its masked vector, and what it opens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from isthmus.core.errors import IsthmusError, PeerError
from isthmus.core.kinds import SERVER, Kind
from isthmus.protect import key_agreement as keys
from isthmus.protect import shamir
from isthmus.protect.masked_sums import check_inputs, pair_masks
from isthmus.wire import labelled_rows

KEYS = 3 * keys.KEY  # bytes of a client's public keys, for letters and for masks, and of the commitment to its own mask
SEALED = 2 * shamir.SHARE + keys.TAG  # bytes of two shares in a sealed letter
SHARE = shamir.SHARE


@dataclass(frozen=True)
class Group:
    """Clients whose vectors are added up: their numbers, and how many of them it takes to open a sum."""

    members: tuple[int, ...]  # ascending
    threshold: int
    width: int  # numbers of a vector

    def point(self, member: int) -> int:
        """Where the polynomials of shares are read for a member."""
        return self.members.index(member) + 1

    def check_enough(self, present: Collection[int], what: str, name: Callable[[int], str]) -> None:
        """Refuse to go on where fewer members than the threshold have sent something."""
        if len(present) >= self.threshold:
            return
        missing = ", ".join(name(member) for member in self.members if member not in present)
        raise IsthmusError(
            f"A secure sum over {len(self.members)} clients cannot be opened: {len(present)} have sent {what}, and "
            f"{self.threshold} must. Missing: {missing}. Nothing of it is known; begin anew with those who are there."
        )


def thirds(row: bytes) -> tuple[bytes, ...]:
    """What a client says first: its public keys for letters and for masks, and the commitment to its own mask."""
    return tuple(row[i : i + keys.KEY] for i in range(0, KEYS, keys.KEY))


def masks_with(
    member: int, pair: keys.KeyPair, others: Mapping[int, bytes], width: int, name: Callable[[int], str]
) -> Tensor:
    """The sum of a member's masks with ``others`` {member: public mask key}, from its pair of mask keys: [width]."""

    def streams() -> Iterator[tuple[int, Tensor]]:
        for other, public in others.items():
            yield other, keys.stream(keys.derived(_agreed(pair, public, name(other)), "mask"), width)

    return pair_masks(member, streams(), width)


def _agreed(pair: keys.KeyPair, public: bytes, who: str) -> bytes:
    """The secret that two clients have in common; ``who`` has sent the public key."""
    try:
        return pair.agreed(public)
    except ValueError as error:
        raise PeerError(f"{who} sent a key with which no secret can be agreed on.") from error


class Client:
    """A client as it goes through the protocol: each method takes what the server said and returns what to answer.

    It answers the question for shares once: of every member either the share of its own mask or that of its mask key,
    for both together open its vector.
    """

    def __init__(self, number: int, group: Group, vector: Tensor, name: Callable[[int], str]) -> None:
        if vector.shape != (group.width,):
            raise IsthmusError(f"{name(number)} has a vector {list(vector.shape)}; all of a sum have [{group.width}].")
        check_inputs(vector, len(group.members))
        self.number, self.group, self.vector, self._name = number, group, vector, name
        self._letters, self._masks, self._own = keys.KeyPair(), keys.KeyPair(), keys.new_key()
        self._public: dict[int, tuple[bytes, ...]] = {}  # of letters, and of masks
        self._common: dict[int, bytes] = {}  # secrets that letters to and from a member are sealed with
        self._kept: dict[int, tuple[bytes, bytes]] = {}  # a member's shares: of its mask key, and of its own mask
        self._opened = False

    def public_keys(self) -> Tensor:
        """The public keys of this client, for letters and for masks, and a commitment to the seed of its own mask."""
        told = self._letters.public + self._masks.public + keys.commitment(self._own)
        return labelled_rows.write({self.number: told}, KEYS)

    def seal_shares(self, listed: Tensor) -> Tensor:
        """Shares of this client's secrets, each sealed for its receiver, given the keys of all who take part."""
        rows = self._read(Kind.KEYS, listed, KEYS, self.group.members)
        self.group.check_enough(rows, "keys", self._name)
        self._check_listed(rows)
        self._public = {member: thirds(row)[:2] for member, row in rows.items()}
        points = [self.group.point(member) for member in rows]
        of_key, of_own = (shamir.share(each, self.group.threshold, points) for each in (self._masks.private, self._own))
        both = {member: of_key[point] + of_own[point] for member, point in zip(rows, points, strict=True)}
        self._keep(self.number, both.pop(self.number))
        sealed = {other: keys.seal(self._key(self.number, other), each) for other, each in both.items()}
        return labelled_rows.write(sealed, SEALED)

    def mask(self, sealed: Tensor) -> Tensor:
        """The masked vector [1, width] of this client, given the shares that others have sealed for it."""
        rows = self._read(Kind.KEY_SHARES, sealed, SEALED, set(self._public) - {self.number})
        self.group.check_enough({self.number, *rows}, "shares of their keys", self._name)
        for sender, letter in rows.items():
            try:
                self._keep(sender, keys.open_sealed(self._key(sender, self.number), letter))
            except ValueError as error:
                raise PeerError(f"{self._name(sender)} sent {self._name(self.number)} {error}.") from error
        width, public = self.group.width, {each: self._public[each][1] for each in rows}
        masks = masks_with(self.number, self._masks, public, width, self._name)
        return (self.vector + masks + keys.stream(self._own, width))[None]

    def open_shares(self, arrived: Tensor) -> Tensor:
        """Shares that open the sum: of the own masks of clients whose vectors arrived, of the mask keys of others."""
        survivors = self._read(Kind.MASKED, arrived, 0, self._kept)
        self.group.check_enough(survivors, "masked vectors", self._name)
        self._check_listed(survivors)
        if self._opened:
            raise PeerError(f"{self._name(SERVER)} asked twice for shares; of one client it gets one kind alone.")
        self._opened = True
        opened = {each: own if each in survivors else key for each, (key, own) in self._kept.items()}
        return labelled_rows.write(opened, SHARE)

    def _read(self, kind: Kind, letter: Tensor, width: int, due: Collection[int]) -> dict[int, bytes]:
        return labelled_rows.read(kind, letter, width, due, self._name(SERVER), whole=False)

    def _check_listed(self, listed: Collection[int]) -> None:
        if self.number not in listed:
            raise PeerError(f"{self._name(SERVER)} left {self._name(self.number)} out of the list that it sent it.")

    def _keep(self, member: int, both: bytes) -> None:
        if len(both) != 2 * SHARE:
            raise ValueError(f"shares of {len(both)} bytes, where {2 * SHARE} are due")
        self._kept[member] = both[:SHARE], both[SHARE:]

    def _key(self, sender: int, receiver: int) -> bytes:
        """The key of the one letter from one member to another, one of which is this client."""
        other = receiver if sender == self.number else sender
        if other not in self._common:
            self._common[other] = _agreed(self._letters, self._public[other][0], self._name(other))
        return keys.derived(self._common[other], f"shares from {sender} to {receiver}")
