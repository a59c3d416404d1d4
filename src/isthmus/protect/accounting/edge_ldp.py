"""Edge-LDP of neighbour lists of which only samples are read: the mathematics, apart from any bookkeeping.

A node's list of D neighbours is drawn from, d entries at a time: without replacement where d < D, else d times with
replacement. FedDEP (appendix B, after Sun and Lyu 2021) gives one draw the pair

    d < D:    epsilon = ln((D + 1) / (D + 1 - d)),    delta = d / D
    d >= D:   epsilon = d ln((D + 1) / D),            delta = 1 - ((D - 1) / D)^d

and k draws of one list, for any slack delta' in [0, 1],

    delta~   = 1 - (1 - delta') product of (1 - delta)
    epsilon~ = min(sum of epsilon, sum of epsilon tanh(epsilon / 2) + U sqrt(2 sum of epsilon^2))
    U        = min(sqrt(ln(e + sqrt(sum of epsilon^2) / delta')), sqrt(ln(1 / delta')))

over the draws (Kairouz, Oh and Viswanath 2015, theorem 3.5). The paper's theorem 3.1 leaves out the "1 -" of delta~.

Delta is the chance that a given entry was drawn at all, and no epsilon makes it smaller: an entry that was drawn is
seen. All functions take whole arrays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isthmus.core.errors import IsthmusError

Numbers = NDArray[np.float64]
SHARE = 0.01  # the slack where none is given, as a part of the delta of the draws


@dataclass(frozen=True)
class Pair:
    """Epsilon and delta, each a number or an array of the same shape."""

    epsilon: Numbers
    delta: Numbers

    def __iter__(self) -> Any:
        return iter((self.epsilon, self.delta))


def single_draw(degree: ArrayLike, fanout: ArrayLike) -> Pair:
    """The published pair of one draw of ``fanout`` entries from a list of ``degree`` entries."""
    size, drawn = (np.asarray(each, dtype=np.float64) for each in (degree, fanout))
    _check("degree", size, 1)
    _check("fanout", drawn, 1)
    replaced = drawn >= size
    with np.errstate(divide="ignore"):  # a list of one entry is always seen: its delta is 1
        without = -np.log1p(-np.where(replaced, 0.0, drawn) / (size + 1)), drawn / size
        repeated = drawn * np.log1p(1 / size), -np.expm1(drawn * np.log1p(-1 / size))
    return Pair(np.where(replaced, repeated[0], without[0]), np.where(replaced, repeated[1], without[1]))


def composed(epsilon: ArrayLike, delta: ArrayLike, draws: ArrayLike, slack: ArrayLike | None = None) -> Pair:
    """The pair of a list that was drawn from in several ways, ``draws`` times in each; ways lie along the first axis.

    Without a ``slack`` it is chosen: 0 where the sum of epsilons is least anyway, else ``SHARE`` of the delta that the
    draws cost without it.
    """
    each, lost, times = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (epsilon, delta, draws)))
    _check("draws", times, 0)
    plain = (times * each).sum(0)
    drift, squares = (times * each * np.tanh(each / 2)).sum(0), (times * each**2).sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        kept = np.where(times > 0, times * np.log1p(-lost), 0.0).sum(0)  # ln of the chance that nothing is seen
    base = -np.expm1(kept)
    given = SHARE * base if slack is None else np.broadcast_to(np.asarray(slack, dtype=np.float64), base.shape)
    _check("slack", given, 0, 1)
    least = np.minimum(plain, drift + _excess(squares, given))
    if slack is None:
        given = np.where(least < plain, given, 0.0)
    return Pair(least, -np.expm1(kept) + given * np.exp(kept))


def _excess(squares: Numbers, slack: Numbers) -> Numbers:
    """U sqrt(2 sum of epsilon^2), which the loss exceeds its mean by with chance ``slack`` at most; infinite at 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        straying = np.log(np.minimum(math.e + np.sqrt(squares) / slack, 1 / slack))
    return np.where(slack > 0, np.sqrt(2 * squares * np.where(slack > 0, straying, 0.0)), math.inf)


def edge_ldp(degree: int, fanout: int, draws: int, slack: float | None = None) -> tuple[float, float]:
    """Epsilon~ and delta~ of one list of ``degree`` entries from which ``fanout`` were drawn ``draws`` times."""
    pair = single_draw(degree, fanout)
    found = composed(pair.epsilon[None], pair.delta[None], draws, slack)
    return float(found.epsilon), float(found.delta)


def amplified(epsilon: float, delta: float, rate: float) -> tuple[float, float]:
    """The pair after amplification by sampling at ``rate`` r, as FedDEP claims it: ln(1 + r (e^epsilon - 1)), r delta.

    The claim is for a sampler that drops generated rows. It drops them after the draws that protect edges, and to drop
    outputs does not lower the worst case: the claim is not justified, and never the headline of a run.
    """
    if not 0 <= rate <= 1:
        raise IsthmusError(f"rate is {rate}; it is the chance that a generated row is kept, and lies in 0..1.")
    if rate == 0:
        return 0.0, 0.0
    if epsilon < 1:
        return math.log1p(rate * math.expm1(epsilon)), rate * delta
    return epsilon + math.log(rate + (1 - rate) * math.exp(-epsilon)), rate * delta  # e^epsilon may be too large


def shortest_list(fanout: int, draws: int, delta: float) -> int:
    """The fewest entries of a list for which ``draws`` draws of ``fanout`` show a given one with chance <= ``delta``.

    To promise this delta, lists with fewer entries must not be drawn from.
    """
    if not 0 < delta < 1:
        raise IsthmusError(f"delta is {delta}; it must lie between 0 and 1, both excluded.")
    _check("fanout", np.float64(fanout), 1)
    _check("draws", np.float64(draws), 1)
    one = -math.expm1(math.log1p(-delta) / draws)  # what one draw may cost
    return max(fanout + 1, math.ceil(fanout / one * (1 - 1e-12)))


def _check(name: str, values: Any, least: float, most: float = math.inf) -> None:
    """Refuse ``values`` outside of ``least`` .. ``most``, and NaN; ``name`` is what the error calls them."""
    numbers = np.asarray(values)
    wrong = numbers[~((numbers >= least) & (numbers <= most))]
    if wrong.size:
        bound = f"at least {least:g}" if most == math.inf else f"in {least:g}..{most:g}"
        raise IsthmusError(f"{name} is {wrong.flat[0]:g}; it must be {bound}.")
