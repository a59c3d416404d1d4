"""Simulated transfers as the loader of files gives them, with no file between; the names that both use."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from isthmus.data.aml import graph_of
from isthmus.data.aml_file import Transfers, Words
from isthmus.data.interbank import BITCOIN, CURRENCIES, FORMATS, Interbank, Traffic, simulate
from isthmus.graph.graph import Graph

FIRST_DAY = np.datetime64("2022-09-01T00:00", "m")
FORMAT_NAMES = [*FORMATS, list(CURRENCIES)[BITCOIN]]


def bank_names(traffic: Traffic) -> list[str]:
    """A number for each bank, with a leading 0 as in the public files."""
    banks = int(traffic.bank.max()) + 1
    width = max(3, len(str(banks)) + 1)
    return [f"{number:0{width}}" for number in range(1, banks + 1)]


def account_names(traffic: Traffic) -> list[str]:
    """A name for each account that looks like the public ones."""
    return [f"8{number:07X}0" for number in range(len(traffic.bank))]


def transfers_of(traffic: Traffic) -> Transfers:
    """The same rows that a written file would give back."""
    account = np.concatenate([traffic.source, traffic.target])
    return Transfers(
        path=Path("simulated"),
        time=FIRST_DAY.astype("datetime64[s]").astype(np.int64) + 60 * traffic.minute.astype(np.int64),
        bank=Words(traffic.bank[account], bank_names(traffic)),
        account=Words(account, account_names(traffic)),
        received=traffic.received,
        paid=traffic.paid,
        received_in=Words(traffic.received_in, list(CURRENCIES)),
        paid_in=Words(traffic.paid_in, list(CURRENCIES)),
        format=Words(traffic.format, FORMAT_NAMES),
        laundering=(traffic.attempt >= 0).astype(np.int64),
    )


def simulated(wish: Interbank, valid_from: float = 8.0, test_from: float = 9.0) -> Graph:
    """The graph that ``isthmus simulate-aml`` and the loader make together, straight from the simulator."""
    return graph_of(transfers_of(simulate(wish)), valid_from, test_from)
