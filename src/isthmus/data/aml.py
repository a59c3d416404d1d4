"""IBM's anti-money-laundering data (Altman et al., NeurIPS 2023) as a graph: accounts, and transactions between them.

The task is to find the transactions that launder money. A node is an account of a bank and has no features of its own;
an edge is a transaction with amounts, currencies, format and time. Training, validation and test transactions follow
each other in time. Moments of amounts and the lists of known currencies and formats, which encode edges, are taken from
training transactions alone.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from isthmus.core.errors import IsthmusError
from isthmus.data.aml_file import Transfers, WordColumn, read_transfers
from isthmus.graph.graph import SPLIT_NAMES, TEST, TRAIN, VALID, Graph, Schema

DAY = 86400
SMALL = "HI-Small_Trans.csv"


def aml(path: str = SMALL, folder: str | None = None, valid_from: float = 8.0, test_from: float = 9.0) -> Graph:
    """The graph of the transactions in one file.

    ``path`` is a file, or the name of one in ``folder``/IBM-AML. ``valid_from`` and ``test_from`` say where
    validation and test begin: two day numbers (the first day of the file is 0), or two shares of all transactions in
    order of time.
    """
    return graph_of(read_transfers(find_transfers(path, folder)), valid_from, test_from)


def graph_of(transfers: Transfers, valid_from: float = 8.0, test_from: float = 9.0) -> Graph:
    """The graph of transactions that were read from a file or simulated."""
    split = _split(transfers, valid_from, test_from)
    ids, banks, ends = _accounts(transfers)
    attributes, names = _attributes(transfers, split == TRAIN)
    return Graph(
        ids=ids,
        x=torch.ones(len(ids), 1),
        edge_index=torch.from_numpy(ends),
        schema=Schema(
            features=1,
            labels=("normal", "laundering"),
            target="edge",
            edge_features=len(names),
            timed=True,
            feature_names=("one",),
            edge_feature_names=names,
        ),
        edge_attr=torch.from_numpy(attributes),
        edge_time=torch.from_numpy(transfers.time),
        edge_y=torch.from_numpy(transfers.laundering),
        edge_split=torch.from_numpy(split),
        columns={"bank": banks},
        name=transfers.path.stem,
    ).check()


def find_transfers(path: str = SMALL, folder: str | None = None) -> Path:
    """The file that a path names, as it is or in the folder IBM-AML of the data folder; raises if there is none."""
    places = [Path(path), *([Path(folder) / "IBM-AML" / path] if folder else [])]
    for place in places:
        if place.is_file():
            return place
    raise IsthmusError(
        f"There is no file {' or '.join(map(str, places))}; fetch the transactions from Kaggle ('IBM Transactions "
        "for Anti Money Laundering'), or make some with 'isthmus simulate-aml'; name the file by --set data.path=FILE."
    )


def _split(transfers: Transfers, valid_from: float, test_from: float) -> np.ndarray:
    """The split of each transaction, [m] int8: the earliest train, later ones validate, the last ones test."""
    time = transfers.time
    if 0 < valid_from < test_from < 1:
        share = np.array([valid_from, test_from])
        bounds = np.sort(time)[(share * len(time)).astype(np.int64)]  # a moment is never divided
    elif 1 <= valid_from < test_from and valid_from == int(valid_from) and test_from == int(test_from):
        bounds = (time.min() // DAY + np.array([valid_from, test_from])) * DAY
    else:
        raise IsthmusError(
            f"data.valid_from is {valid_from:g} and data.test_from is {test_from:g}; give two whole day numbers such "
            "as 8 and 9, or two shares between 0 and 1 such as 0.6 and 0.8, the smaller first."
        )
    split: np.ndarray = (TRAIN + (time >= bounds[0]) + (time >= bounds[1])).astype(np.int8)
    for part in (TRAIN, VALID, TEST):
        if not (split == part).any():
            last = (time.max() // DAY) - (time.min() // DAY)
            raise IsthmusError(
                f"{transfers.path} covers days 0 to {last}, so that data.valid_from={valid_from:g} and "
                f"data.test_from={test_from:g} leave no transactions for '{SPLIT_NAMES[part]}'; choose other days, or "
                "shares such as data.valid_from=0.6 and data.test_from=0.8."
            )
    return split


def _accounts(transfers: Transfers) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids [n] and banks [n] of all accounts, and the rows of each transaction's sender and receiver [2, m].

    An account is the pair of bank and number, because banks number their accounts independently of each other.
    """
    bank, account = transfers.bank, transfers.account
    pairs = bank.code.astype(np.int64) * len(account.names) + account.code
    values, first, row = np.unique(pairs, return_index=True, return_inverse=True)
    appearance = np.argsort(first)  # rows are numbered as accounts appear, senders first
    known = values[appearance]
    banks = np.array(bank.names)[known // len(account.names)]
    numbers = np.array(account.names)[known % len(account.names)]
    ids = np.char.add(np.char.add(banks, ":"), numbers)
    ends = np.argsort(appearance)[row].reshape(2, -1)
    return ids, banks, ends


def _attributes(transfers: Transfers, train: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """The features of all edges, [m, features] float32, and their names; ``train`` marks training edges."""
    angle = (transfers.time % DAY) * (2 * np.pi / DAY)
    dense = {
        "log_received": _standard(np.log1p(transfers.received), train),
        "log_paid": _standard(np.log1p(transfers.paid), train),
        "time": _standard(transfers.time, train),
        "hour_sin": np.sin(angle),
        "hour_cos": np.cos(angle),
    }
    one_hot = [
        _slots("received", transfers.received_in, train),
        _slots("paid", transfers.paid_in, train),
        _slots("format", transfers.format, train),
    ]
    names = (*dense, *(name for _, names in one_hot for name in names))
    out = np.zeros((len(train), len(names)), dtype=np.float32)
    for column, values in enumerate(dense.values()):
        out[:, column] = values
    start, rows = len(dense), np.arange(len(train))
    for slot, slot_names in one_hot:
        out[rows, start + slot] = 1
        start += len(slot_names)
    return out, names


def _standard(values: np.ndarray, train: np.ndarray) -> np.ndarray:
    """The values shifted and scaled to mean 0 and deviation 1 over the training rows."""
    known = values[train]
    standard: np.ndarray = (values - known.mean()) / (known.std() or 1.0)
    return standard


def _slots(title: str, words: WordColumn, train: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """The one-hot column of each row's word [m], and the columns' names.

    Words of training rows have a column each; the last column is for all other words.
    """
    seen = np.bincount(words.code[train], minlength=len(words.names)) > 0
    known = sorted(name for name, is_known in zip(words.names, seen, strict=True) if is_known)
    place = {name: number for number, name in enumerate(known)}
    slot = np.array([place.get(name, len(known)) for name in words.names])
    return slot[words.code], [f"{title}:{name}" for name in (*known, "other")]
