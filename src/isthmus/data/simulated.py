"""Simulated transfers between banks as a graph, without a file between; names of banks, accounts and formats."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from isthmus.data.aml import graph_of
from isthmus.data.aml_file import Transfers, WordColumn
from isthmus.data.interbank import BITCOIN, CURRENCIES, FORMATS, Interbank, SimulatedTraffic, simulate
from isthmus.graph.graph import Graph

FIRST_DAY = np.datetime64("2022-09-01T00:00", "m")
FORMAT_NAMES = [*FORMATS, list(CURRENCIES)[BITCOIN]]


def bank_names(traffic: SimulatedTraffic) -> list[str]:
    """The names of all banks: numbers with a leading 0, as in the public files."""
    banks = int(traffic.bank.max()) + 1
    width = max(3, len(str(banks)) + 1)
    return [f"{number:0{width}}" for number in range(1, banks + 1)]


def account_names(traffic: SimulatedTraffic) -> list[str]:
    """The names of all accounts, in the style of the public files."""
    return [f"8{number:07X}0" for number in range(len(traffic.bank))]


def transfers_of(traffic: SimulatedTraffic) -> Transfers:
    """Simulated transfers as ``read_transfers`` would return them, had they been written to a file."""
    account = np.concatenate([traffic.source, traffic.target])
    return Transfers(
        path=Path("simulated"),
        time=FIRST_DAY.astype("datetime64[s]").astype(np.int64) + 60 * traffic.minute.astype(np.int64),
        bank=WordColumn(traffic.bank[account], bank_names(traffic)),
        account=WordColumn(account, account_names(traffic)),
        received=traffic.received,
        paid=traffic.paid,
        received_in=WordColumn(traffic.received_in, list(CURRENCIES)),
        paid_in=WordColumn(traffic.paid_in, list(CURRENCIES)),
        format=WordColumn(traffic.format, FORMAT_NAMES),
        laundering=(traffic.attempt >= 0).astype(np.int64),
    )


def simulated(settings: Interbank, valid_from: float = 8.0, test_from: float = 9.0) -> Graph:
    """The graph of a simulation: what ``isthmus simulate-aml`` would write and the data set ``aml`` would load."""
    return graph_of(transfers_of(simulate(settings)), valid_from, test_from)
