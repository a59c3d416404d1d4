"""The data set ``interbank``: simulated transfers between banks, without a file."""

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
    """The graph of simulated transfers, as ``isthmus simulate-aml`` would write and ``aml`` would load them.

    By default it is smaller than what ``simulate-aml`` writes, and one transfer in a hundred launders, not one in a
    thousand, so that there is enough laundering to learn from and to test on.
    """
    return simulated(Interbank(transactions, banks, accounts, days, illicit_rate, seed), valid_from, test_from)
