"""What can be counted around a transfer, by hand: a lower bound on what a model of the same neighbourhood can learn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isthmus.data.interbank import CURRENCIES, SimulatedTraffic

WINDOW = 4 * 1440  # minutes; most attempts last four days at most
ALIKE = 0.15  # difference of the logarithms of dollars
APART = 100.0  # farther than two logarithms of dollars can lie from each other


@dataclass(frozen=True)
class Transfers:
    """Those that somebody knows, in any order."""

    source: np.ndarray  # accounts
    target: np.ndarray
    minute: np.ndarray
    worth: np.ndarray  # logarithm of dollars

    @staticmethod
    def of(traffic: SimulatedTraffic) -> Transfers:
        rate = np.array([rate for rate, _ in CURRENCIES.values()])
        worth = np.log(traffic.paid / rate[traffic.paid_in])
        return Transfers(traffic.source, traffic.target, traffic.minute.astype(np.int64), worth)

    def only(self, rows: np.ndarray) -> Transfers:
        return Transfers(self.source[rows], self.target[rows], self.minute[rows], self.worth[rows])


def structure(known: Transfers, scored: Transfers, accounts: int) -> np.ndarray:
    """Counts around each scored transfer (all of them are known too): [scored, 15]."""
    pair = known.source * accounts + known.target
    pairs, count = np.unique(pair, return_counts=True)
    once = known.only(count[np.searchsorted(pairs, pair)] == 1)  # payments to nobody's circle, or laundering
    columns = [count[np.searchsorted(pairs, scored.source * accounts + scored.target)]]
    for end in (scored.source, scored.target):
        for single, each in ((once.source, known.source), (once.target, known.target)):
            columns += [_soon(single, once.minute, end, scored.minute - WINDOW, scored.minute)]
            columns += [_soon(single, once.minute, end, scored.minute, scored.minute + WINDOW)]
            columns += [np.bincount(each, minlength=accounts)[end]]
    came = _alike(known.target, known, scored.source, scored, -WINDOW, 0)  # the payer got as much before
    went = _alike(known.source, known, scored.target, scored, 0, WINDOW)  # and the payee passes it on
    return np.stack([*columns, came, went], 1)


def _soon(at: np.ndarray, minute: np.ndarray, end: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """How many of the transfers at an account lie between two moments."""
    line = np.sort(at * 10**6 + minute)
    clip = np.clip([first, last], 0, 10**6 - 1)
    return np.searchsorted(line, end * 10**6 + clip[1], side="right") - np.searchsorted(line, end * 10**6 + clip[0])


def _alike(at: np.ndarray, known: Transfers, end: np.ndarray, scored: Transfers, first: int, last: int) -> np.ndarray:
    """How many transfers at an account are worth about the same, and lie so many minutes away."""
    order = np.lexsort((known.worth, at))
    line = (at * APART + known.worth)[order]
    low, high = (np.searchsorted(line, end * APART + scored.worth + by) for by in (-ALIKE, ALIKE))
    row = np.repeat(np.arange(len(end)), high - low)
    place = np.arange(len(row)) + np.repeat(low - np.cumsum(high - low) + (high - low), high - low)
    away = known.minute[order][place] - scored.minute[row]
    return np.bincount(row[(first <= away) & (away <= last)], minlength=len(end))
