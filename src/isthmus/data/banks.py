"""Simulated transfers between banks as a data set by name: no file is needed."""

from __future__ import annotations

from isthmus.data.interbank import Interbank
from isthmus.data.simulated import simulated
from isthmus.graph.graph import Graph


def interbank(
    transactions: int = 200_000,
    banks: int = 50,
    accounts: int = 0,
    days: int = 10,
    illicit_rate: float = 0.01,
    seed: int = 0,
    valid_from: float = 8.0,
    test_from: float = 9.0,
) -> Graph:
    """What ``isthmus simulate-aml`` would write and ``aml`` would read, on a smaller scale unless told otherwise.

    With one transfer in a hundred laundering, not one in a thousand, a graph of this size has enough of them to learn
    from and to test on.
    """
    return simulated(Interbank(transactions, banks, accounts, days, illicit_rate, seed), valid_from, test_from)
