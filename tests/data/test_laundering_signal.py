"""Simulated laundering shows in no single transfer, but in the transfers around it, at several banks.

The bounds are explained in docs/data.md. Models are gradient-boosted trees: on the attributes of transfers, and on
counts around them (``tests/helpers/structure.py``), once of all transfers and once of those that a silo knows, which
have an end at one of its banks. A silo scores the transfers that it receives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import average_precision_score

from isthmus.data.aml import graph_of
from isthmus.data.interbank import Interbank, simulate
from isthmus.data.simulated import transfers_of
from isthmus.graph.graph import TEST, TRAIN, Graph
from isthmus.graph.partition import partition
from tests.helpers.structure import Transfers, structure

SEEDS = (0, 1, 2)
SILOS = 4
ATTRIBUTES_AT_MOST = 1.5  # PR-AUC of attributes alone, in base rates: what chance alone gives with 200 laundering rows
OVER_LOCAL = 1.5  # PR-AUC with all transfers known, over that of silos that train alone
OVER_ONE_MODEL = 1.15  # and over that of one model for all silos, each with what it knows
Views = list[tuple[np.ndarray, np.ndarray]]  # of each silo: counts, and the transfers that it scores


@dataclass(frozen=True)
class World:
    """Simulated transfers with owners, labels and splits."""

    graph: Graph
    transfers: Transfers
    accounts: int
    owner: np.ndarray  # [2, m] silo of payer and payee
    split: np.ndarray
    label: np.ndarray

    def view(self, split: int, silo: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Counts around the transfers of a split, and the transfers' numbers.

        Counts are of earlier transfers that the silo knows (None: of all earlier transfers).
        """
        every = np.full(len(self.label), silo is None)
        sees, scores = every | (self.owner == silo).any(0), every | (self.owner[1] == silo)
        rows = np.flatnonzero(scores & (self.split == split))
        known = self.transfers.only(np.flatnonzero(sees & (self.split <= split)))
        return structure(known, self.transfers.only(rows), self.accounts), rows

    def views(self, split: int) -> Views:
        return [self.view(split, silo) for silo in range(SILOS)]

    def score(self, train: Views, test: Views) -> float:
        """The PR-AUC on all test views of one model trained on all training views."""
        x, rows = (np.concatenate(part) for part in zip(*train, strict=True))
        new, scored = (np.concatenate(part) for part in zip(*test, strict=True))
        return float(average_precision_score(self.label[scored], boosted(x, self.label[rows], new)))

    def score_alone(self, train: Views, test: Views) -> float:
        """The PR-AUC over all test views, each scored by a model of its own silo's training view."""
        pairs = zip(train, test, strict=True)
        predicted = [boosted(x, self.label[rows], new) for (x, rows), (new, _) in pairs]
        scored = np.concatenate([rows for _, rows in test])
        return float(average_precision_score(self.label[scored], np.concatenate(predicted)))


def boosted(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    model = HistGradientBoostingClassifier(max_iter=100, learning_rate=0.05, random_state=0)
    return model.fit(x, y).predict_proba(new)[:, 1]


def make(seed: int) -> World:
    traffic = simulate(Interbank(60_000, banks=100, illicit_rate=0.02, seed=seed))
    graph = graph_of(transfers_of(traffic), valid_from=0.6, test_from=0.8)
    assert graph.edge_split is not None and graph.edge_y is not None
    owner = partition(graph, "attribute:bank", SILOS).numpy()[graph.edge_index.numpy()]
    transfers, accounts = Transfers.of(traffic), len(traffic.bank)
    return World(graph, transfers, accounts, owner, graph.edge_split.numpy(), graph.edge_y.numpy())


@pytest.fixture(scope="module")
def worlds() -> list[World]:
    return [make(seed) for seed in SEEDS]


def above_base(world: World, x: np.ndarray) -> float:
    """The PR-AUC of a model of the rows ``x`` on test transfers, divided by the share of laundering."""
    train, test = (world.split == part for part in (TRAIN, TEST))
    predicted = boosted(x[train], world.label[train], x[test])
    return float(average_precision_score(world.label[test], predicted) / world.label[test].mean())


def test_attributes_alone_say_nothing(worlds: list[World]) -> None:
    for world in worlds:
        assert world.graph.edge_attr is not None
        assert above_base(world, world.graph.edge_attr.numpy()) < ATTRIBUTES_AT_MOST


def test_an_attribute_that_leaks_would_be_seen(worlds: list[World]) -> None:
    world = worlds[0]
    assert world.graph.edge_attr is not None
    leaky = world.graph.edge_attr.numpy().copy()
    rng = np.random.default_rng(0)
    leaky[:, 0] += 0.75 * world.label * rng.random(len(leaky))
    assert above_base(world, leaky) > ATTRIBUTES_AT_MOST


def test_structure_across_banks_is_worth_more_than_what_a_silo_knows(worlds: list[World]) -> None:
    found = []
    for world in worlds:
        train, test = world.views(TRAIN), world.views(TEST)
        whole = world.score([world.view(TRAIN)], [world.view(TEST)])
        found.append((whole, world.score(train, test), world.score_alone(train, test)))
    centralised, one_model, local = np.mean(found, axis=0)
    base = np.mean([world.label[world.split == TEST].mean() for world in worlds])
    assert centralised > OVER_LOCAL * local, found
    assert centralised > OVER_ONE_MODEL * one_model, found
    assert local > 2 * base, found  # a silo alone is not blind
