"""The eight laundering patterns of Altman et al. (NeurIPS 2023): who pays whom, in which order and how fast.

A laundering attempt has members (accounts, numbered from 0) and one or two legs of transactions. The second leg begins
after the first has ended, and the transactions of a leg follow each other in time, so that money never leaves an
account before it arrived there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

PayersAndPayees = tuple[np.ndarray, np.ndarray]
# Payers and payees (member numbers) of a leg's transactions, from their places in the leg and the attempt's two widths.
Leg = Callable[[np.ndarray, np.ndarray, np.ndarray], PayersAndPayees]
Draw = Callable[[int], np.ndarray]  # so many random accounts

# In HI-Small_Patterns.txt a quarter of all attempts has the smallest width (10 % of fan-ins, 37 % of stacks), and the
# others are spread evenly up to the largest.
SMALLEST = 0.25


@dataclass(frozen=True)
class Pattern:
    """One type of laundering attempt.

    ``widths`` (smallest and largest) and ``window`` (longest duration in days) are taken from HI-Small_Patterns.txt. A
    leg has as many transactions as the attempt's width; with ``own_width`` (gather-scatter) the second leg has a width
    of its own. ``members`` counts the accounts of an attempt from its two widths. ``stream`` maps the place of a
    transaction in its leg to the number of a sum of money: transactions that pass on one sum are about equal in
    dollars, as in the public file. None: every transaction has a sum of its own.
    """

    name: str
    title: str  # what the public files write after the name; {} stands for the width
    widths: tuple[int, int]
    window: float
    members: Callable[[np.ndarray, np.ndarray], np.ndarray]
    legs: tuple[Leg, ...]
    own_width: bool = False
    stream: Callable[[np.ndarray], np.ndarray] | None = None

    def leg_widths(self, widths: np.ndarray) -> list[np.ndarray]:
        """How many transactions each leg of each attempt has; ``widths`` is [attempts, 2]."""
        return [widths[:, leg if self.own_width else 0] for leg in range(len(self.legs))]


def _hub(i: np.ndarray) -> np.ndarray:
    """Member 0, once for each place ``i``: the account at the centre of a fan."""
    return np.zeros_like(i)


def _one_sum(i: np.ndarray) -> np.ndarray:
    """Sum number 0 for every place: all transactions of the attempt pass one sum of money on."""
    return np.zeros_like(i)


def _one_sum_each(i: np.ndarray) -> np.ndarray:
    """Sum number i for place i: what arrives by the i-th transaction of leg 1 leaves by the i-th of leg 2."""
    return i


# All types are about equally frequent in the public file: 40 to 54 of 370 attempts.
PATTERNS = (
    Pattern(
        "FAN-OUT", ":  Max {}-degree Fan-Out", (1, 16), 4.0, lambda w, v: w + 1, (lambda i, w, v: (_hub(i), i + 1),)
    ),
    Pattern("FAN-IN", ":  Max {}-degree Fan-In", (1, 16), 4.0, lambda w, v: w + 1, (lambda i, w, v: (i + 1, _hub(i)),)),
    Pattern(
        "GATHER-SCATTER",
        ":  Max {}-degree Fan-In",
        (1, 16),
        8.0,
        lambda w, v: w + v + 1,
        (lambda i, w, v: (i + 1, _hub(i)), lambda i, w, v: (_hub(i), w + i + 1)),
        own_width=True,
    ),
    Pattern(
        "SCATTER-GATHER",
        "",
        (1, 16),
        4.0,
        lambda w, v: w + 2,
        (lambda i, w, v: (_hub(i), i + 1), lambda i, w, v: (i + 1, w + 1)),
        stream=_one_sum_each,
    ),
    Pattern(
        "CYCLE",
        ":  Max {} hops",
        (2, 12),
        4.0,
        lambda w, v: w,
        (lambda i, w, v: (i, (i + 1) % w),),
        stream=_one_sum,
    ),
    Pattern(
        "RANDOM", ":  Max {} hops", (1, 11), 4.0, lambda w, v: w + 1, (lambda i, w, v: (i, i + 1),), stream=_one_sum
    ),
    Pattern("BIPARTITE", "", (1, 15), 2.0, lambda w, v: 2 * w, (lambda i, w, v: (i, w + i),)),
    Pattern(
        "STACK",
        "",
        (1, 15),
        4.0,
        lambda w, v: 3 * w,
        (lambda i, w, v: (i, w + i), lambda i, w, v: (w + i, 2 * w + i)),
        stream=_one_sum_each,
    ),
)

WIDEST = max(pattern.widths[1] for pattern in PATTERNS)


@dataclass(frozen=True)
class Attempts:
    """All laundering attempts, and their transactions ordered by attempt and then by time."""

    kind: np.ndarray  # [attempts] number in PATTERNS
    width: np.ndarray  # [attempts]
    attempt: np.ndarray  # [transactions] number of the attempt
    source: np.ndarray  # [transactions] paying account
    target: np.ndarray  # [transactions] receiving account
    time: np.ndarray  # [transactions] days since the beginning
    stream: np.ndarray  # [transactions] number of the sum of money that is passed on


def launder(rng: np.random.Generator, budget: int, days: int, draw: Draw) -> Attempts:
    """Random laundering attempts over ``days`` days, with at most ``budget`` transactions in all.

    ``draw`` picks accounts at random. No account is two members of one attempt.
    """
    kind, widths = _choose(rng, budget)
    attempt, payer, payee, stream = _transactions(kind, widths)
    count = _per_kind(kind, lambda pattern, at: pattern.members(widths[at, 0], widths[at, 1]))
    account = _distinct(draw, np.repeat(np.arange(len(kind)), count))
    first = (np.cumsum(count) - count)[attempt]
    time = _times(rng, kind, attempt, days)
    return Attempts(kind, widths[:, 0], attempt, account[first + payer], account[first + payee], time, stream)


def _per_kind(kind: np.ndarray, value: Callable[[Pattern, np.ndarray], np.ndarray]) -> np.ndarray:
    """``value(pattern, attempts of that pattern)`` for every type of attempt: [attempts] int64."""
    out = np.zeros(len(kind), dtype=np.int64)
    for number, pattern in enumerate(PATTERNS):
        at = np.flatnonzero(kind == number)
        out[at] = value(pattern, at)
    return out


def _choose(rng: np.random.Generator, budget: int) -> tuple[np.ndarray, np.ndarray]:
    """Random types [attempts] and widths [attempts, 2] of as many attempts as fit into the budget."""
    kind = rng.integers(len(PATTERNS), size=budget)  # more than fit, as most have more than one transaction
    low, high = np.array([pattern.widths for pattern in PATTERNS])[kind].T
    widths = rng.integers(low[:, None], high[:, None] + 1, size=(budget, 2))
    smallest = rng.random((budget, 2)) < SMALLEST
    widths = np.where(smallest, low[:, None], widths)
    size = _per_kind(kind, lambda pattern, at: np.sum(pattern.leg_widths(widths[at]), axis=0))
    fits = np.cumsum(size) <= budget
    return kind[fits], widths[fits]


def _transactions(kind: np.ndarray, widths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Attempt, payer, payee (member numbers) and sum of money of each transaction, by attempt, leg and place."""
    parts = [np.empty((6, 0), dtype=np.int64)]
    for number, pattern in enumerate(PATTERNS):
        at = np.flatnonzero(kind == number)
        for leg, length in enumerate(pattern.leg_widths(widths[at])):
            place = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
            attempt = np.repeat(at, length)
            ends = pattern.legs[leg](place, *widths[attempt].T)
            sums = leg * WIDEST + place if pattern.stream is None else pattern.stream(place)
            parts.append(np.stack([place, np.full_like(place, leg), attempt, *ends, attempt * 2 * WIDEST + sums]))
    every = np.concatenate(parts, axis=1)
    attempt, payer, payee, stream = every[2:, np.lexsort(every[:3])]
    return attempt, payer, payee, np.unique(stream, return_inverse=True)[1]


def _distinct(draw: Draw, attempt: np.ndarray) -> np.ndarray:
    """A random account for each member of each attempt; an account drawn twice for one attempt is drawn again."""
    account = draw(len(attempt))
    while True:
        order = np.lexsort((account, attempt))
        twice = (np.diff(account[order]) == 0) & (np.diff(attempt[order]) == 0)
        again = order[1:][twice]
        if not len(again):
            return account
        account[again] = draw(len(again))


def _times(rng: np.random.Generator, kind: np.ndarray, attempt: np.ndarray, days: int) -> np.ndarray:
    """The time of each transaction in days: random moments within its attempt's window, ascending in each attempt.

    A window near the first or last day is shortened to fit; moving it inwards would leave these days almost without
    laundering. It lasts whole days, at least one, so that no hour is more frequent than among other transactions.
    """
    centre = 0.5 + rng.random(len(kind)) * (days - 1)
    window = np.array([pattern.window for pattern in PATTERNS])[kind]
    room = 2 * np.minimum(centre, days - centre)
    length = np.floor(np.minimum(window, room))
    moment = (centre - length / 2)[attempt] + length[attempt] * rng.random(len(attempt))
    in_order: np.ndarray = moment[np.lexsort((moment, attempt))]
    return in_order
