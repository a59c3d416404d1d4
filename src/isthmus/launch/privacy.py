"""The privacy guarantees of a run, computed from its silos' books of releases and from the ledger of all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path

import torch
from torch import Tensor

from isthmus.core.files import write_atomic
from isthmus.core.kinds import FINAL, KINDS, PURPOSES, SERVER, Kind, Purpose
from isthmus.core.tensors import stacked
from isthmus.graph.graph import TRAIN
from isthmus.launch.release_files import RESUMED
from isthmus.protect.accounting.accountant import Spent, guarantees
from isthmus.protect.accounting.charges import Charge, charge, noise_of
from isthmus.protect.accounting.edge_lists import ListFigures, check_figures, list_figures, list_guarantees
from isthmus.protect.accounting.guarantee import APART, CHARGED, DP, EVERYTHING, NODE, RECORDS, Guarantee
from isthmus.protect.accounting.metric_rows import MetricFigures, homogeneity_note, metric_figures, metric_guarantee
from isthmus.protect.accounting.seed_labels import SeedFigures, label_guarantees, seed_figures
from isthmus.protect.events import GaussianNoise
from isthmus.train.training import Training
from isthmus.wire.books import STEP_COLUMNS
from isthmus.wire.ledger import Ledger
from isthmus.wire.wire import Wire

ALL_DATA = "all data, in one place"


@dataclass(frozen=True)
class Accounts:
    """What the accountant needs: charges [silos, kinds, fields of ``Charge``], and figures of silos by name.

    ``figures``: of metric privacy, for this host's silos. ``lists``: of drawn lists, of every silo at the server's host
    and of their own silos on others; empty where draws are not counted. ``labels``: of every silo's labels; empty where
    steps are not bounded.
    """

    charges: Tensor
    figures: dict[str, MetricFigures]
    lists: dict[str, ListFigures]
    labels: dict[str, SeedFigures]


def take_account(training: Training, folder: Path | None = None) -> Accounts:
    """Tell the server how often rows and payloads of my silos left, and measure how near released rows lie.

    Counts alone are told. Distances between rows come from private rows and get no noise, so that they stay with the
    host: in ``privacy-host-N.json`` of the ``folder`` where that host does not write the report.
    """
    wire, lists, labels = training.wire, _gather_list_figures(training), _share_label_figures(training)
    none = torch.zeros(len(CHARGED), len(fields(Charge)), dtype=torch.int64)
    if not wire.protect.noisy:
        return Accounts(none.expand(wire.silos, *none.shape), {}, lists, labels)
    mine = [
        torch.tensor([astuple(charge(wire.releases, kind, rows, silo)) for kind in CHARGED])
        for silo, rows in _places(training)
    ]
    accounts = Accounts(wire.share(Kind.METRICS, stacked(mine, none)), _figures(training), lists, labels)
    if wire.hosts == 1 and homogeneity_note(accounts.figures):
        training.federation.note(homogeneity_note(accounts.figures))
    noise = _embedding_noise(wire)
    if folder is not None and not wire.houses(SERVER) and noise is not None and accounts.figures:
        told = metric_guarantee(accounts.figures, noise).as_dict()
        write_atomic(folder / f"privacy-host-{wire.host}.json", json.dumps([told], indent=1).encode())
    return accounts


def privacy_of(training: Training, accounts: Accounts, ledger: Ledger | None = None) -> list[Guarantee]:
    """The guarantees of a run; the first is that of everything, the headline.

    Of all silos at the server's host, whose ledger has what all have sent; or of those silos whose messages another
    ``ledger`` has.
    """
    if training.method.merged:
        return [Guarantee(EVERYTHING, NODE, DP, float("inf"), 0.0, bare=(ALL_DATA,))]
    wire, schema = training.wire, training.federation.schema
    ledger = wire.ledger if ledger is None else ledger
    left = {kind: ledger.treatments(kind) for kind in (*CHARGED, *RECORDS)}
    spent: Spent = {
        kind: {
            wire.party(silo): (Charge(*accounts.charges[silo, i].tolist()), noise_of(list(each)))
            for silo, each in left[kind].items()
        }
        for i, kind in enumerate(CHARGED)
        if left[kind]
    }
    at_steps = Kind.STATISTICS in _during_training(ledger)
    bare = [kind.value for kind in RECORDS if left[kind]] + [Kind.STATISTICS.value] * at_steps
    apart = [kind.value for kind in APART if kind.value in ledger.by_kind()]
    edges = bool(schema.edge_features) or schema.target == "edge"
    found = guarantees(spent, bare, apart, edges)
    noise = _embedding_noise(wire)
    if noise is not None and accounts.figures:
        found.append(metric_guarantee(accounts.figures, noise))
    event = training.federation.learnt.event
    if accounts.labels and event is not None:
        open_labels = [kind.value for kind in (Kind.LABELS, Kind.SCORES, Kind.ADJOINTS) if ledger.treatments(kind)]
        found += label_guarantees(accounts.labels, event, open_labels, apart)
    if any(RESUMED in note for note in training.federation.notes):
        found = [replace(each, assumptions=(*each.assumptions, RESUMED)) for each in found]
    return found + (list_guarantees(accounts.lists) if accounts.lists else [])


def _share_label_figures(training: Training) -> dict[str, SeedFigures]:
    """By silo's name, in how many bounded steps its labels were (silos share the counts); {} without such steps."""
    wire, book = training.wire, training.federation.learnt
    if not wire.protect.bounds_seeds:
        return {}
    seeds = training.stage.layout.pools[TRAIN].counts.tolist()
    mine = [
        torch.tensor(astuple(seed_figures(book, rows, place, seeds[silo])))
        for place, (silo, rows) in enumerate(_places(training))
    ]
    told = wire.share(Kind.METRICS, stacked(mine, torch.zeros(len(fields(SeedFigures)), dtype=torch.int64)))
    return {wire.party(silo): SeedFigures(*numbers) for silo, numbers in enumerate(told.tolist())}


def _gather_list_figures(training: Training) -> dict[str, ListFigures]:
    """By silo's name, figures of drawn lists: all silos' at the server's host, its own on others; {} if not counted."""
    if training.train.draws != "refill":
        return {}
    wire, book = training.wire, training.federation.drawn
    mine = {silo: list_figures(book, rows).to_numbers() for silo, rows in _places(training)}
    heard = wire.gather(Kind.METRICS, mine)
    told = mine if heard is None else heard
    for silo, numbers in told.items():
        check_figures(numbers, wire.party(silo))
    rate = book.claimed_rate
    return {wire.party(silo): ListFigures.from_numbers(each, book.floor, rate) for silo, each in told.items()}


def _places(training: Training) -> Iterator[tuple[int, slice]]:
    """The number of each of my silos, and where its rows lie in the book: owned, then halo."""
    first = 0
    for silo in training.federation.silos:
        yield silo.number, slice(first, first + silo.n + silo.h)
        first += silo.n + silo.h


def _figures(training: Training) -> dict[str, MetricFigures]:
    """Metric figures of my silos that released embeddings with noise, by name."""
    wire = training.wire
    noise = _embedding_noise(wire)
    if noise is None:
        return {}
    found = {wire.party(silo): metric_figures(wire.releases, rows, noise) for silo, rows in _places(training)}
    return {name: figures for name, figures in found.items() if figures is not None}


def _embedding_noise(wire: Wire) -> GaussianNoise | None:
    """The weakest noise of embeddings that this host's silos released."""
    noise = noise_of(wire.releases.events.get(Kind.EMBEDDINGS, []))
    return noise if isinstance(noise, GaussianNoise) else None


def _during_training(ledger: Ledger) -> set[Kind]:
    """The kinds that left at steps and rounds; if statistics are among them, these are moments of rows of a batch."""
    lines = ledger.book("steps")
    kind, purpose = (lines[:, STEP_COLUMNS.index(name)] for name in ("kind", "purpose"))
    besides = torch.tensor([PURPOSES.index(each) for each in (Purpose.SETUP, Purpose.HANDOVER, *FINAL)])
    return {KINDS[i] for i in kind[~torch.isin(purpose, besides)].unique().tolist()}
