"""Loading graphs: data sets by name, a user's own graph by folder, transactions by file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.files import is_folder
from isthmus.data.aml import aml, find_transfers
from isthmus.data.amlsim import amlsim, find_sample
from isthmus.data.banks import interbank
from isthmus.data.blocks import blocks
from isthmus.data.files import find_folder, load_folder
from isthmus.data.patterns import patterns
from isthmus.data.public import find_raw, npz, planetoid
from isthmus.graph.graph import Graph

__all__ = ["DATASETS", "DataSet", "blocks", "find", "load", "load_folder", "patterns", "register_dataset"]

GIVEN = ("seed", "folder")  # arguments of loaders that are not options of the data set


@dataclass(frozen=True)
class DataSet:
    """A graph that can be loaded by name: its loader, the model that suits it, and where it comes from.

    ``find`` looks for its files without reading them, and raises where they are missing; None where it has none.
    """

    name: str
    summary: str
    load: Callable[..., Graph]
    default_model: str
    source: str
    find: Callable[..., object] | None = None


_PLANETOID = "kimiyoung/planetoid, MIT licence"
_SHCHUR = "shchur/gnn-benchmark, MIT licence"
_AMLSIM = "IBM/AMLSim, Apache-2.0 licence"
_AML = "Altman et al., NeurIPS 2023, its licence"
_MADE = "made here, from a seed"


def _public(name: str, summary: str, load: Callable[..., Graph], model: str, source: str) -> DataSet:
    """A public benchmark graph, read from its original files."""
    return DataSet(name, summary, partial(load, name), model, source, partial(find_raw, name))


DATASETS: dict[str, DataSet] = {
    entry.name: entry
    for entry in (
        DataSet("patterns", "directed multigraphs labelled by cycles and motifs", patterns, "multi-pna", _MADE),
        DataSet("blocks", "stochastic block model of any size, weak features", blocks, "sage", _MADE),
        _public("cora", "2,708 papers and their citations", planetoid, "gcn", _PLANETOID),
        _public("citeseer", "3,327 papers and their citations", planetoid, "gcn", _PLANETOID),
        _public("pubmed", "19,717 papers and their citations", planetoid, "gcn", _PLANETOID),
        _public("coauthor-cs", "18,333 authors who write together", npz, "sage", _SHCHUR),
        _public("amazon-photo", "7,650 goods bought together", npz, "sage", _SHCHUR),
        _public("wordnet", "117,659 word meanings", npz, "sage", "WordNet 3.0, its licence"),
        DataSet(
            "aml",
            "transactions of a file like IBM's HI-Small_Trans.csv (data.path)",
            aml,
            "multi-pna",
            _AML,
            find_transfers,
        ),
        DataSet("interbank", "simulated transfers between banks, laundering among them", interbank, "multi-pna", _MADE),
        DataSet(
            "amlsim",
            "bank transfers with fan-ins and cycles",
            partial(amlsim, "amlsim"),
            "pna",
            _AMLSIM,
            partial(find_sample, "amlsim"),
        ),
        DataSet(
            "amlsim-fanin",
            "bank transfers with fan-ins",
            partial(amlsim, "amlsim-fanin"),
            "pna",
            _AMLSIM,
            partial(find_sample, "amlsim-fanin"),
        ),
    )
}


def register_dataset(entry: DataSet) -> None:
    """Make a data set of one's own available by its name, as if it had come with the package."""
    if entry.name in DATASETS:
        raise IsthmusError(f"There is a data set called '{entry.name}' already; choose another name.")
    DATASETS[entry.name] = entry


def load(name_or_folder: str, seed: int = 0, folder: str | None = None, **options: Any) -> Graph:
    """The graph of a registered data set, of a folder with tables of nodes and edges, or of a file of transactions.

    ``folder`` is where public data sets lie (default: the environment variable ISTHMUS_DATA); ``options`` are keyword
    arguments of the loader.
    """
    loader = _loader(name_or_folder)
    takes = signature(loader).parameters
    for option in options:
        if option not in takes or option in GIVEN:
            raise unknown("data option", option, set(takes) - set(GIVEN))
    given = {"seed": seed, "folder": folder or os.environ.get("ISTHMUS_DATA")}
    return loader(**{name: value for name, value in given.items() if name in takes}, **options)


def is_own(name_or_folder: str) -> bool:
    """Whether a name stands for a user's own folder of tables, and for no data set or file of transactions."""
    return name_or_folder not in DATASETS and not name_or_folder.endswith(".csv")


def find(name_or_folder: str, folder: str | None = None, **options: Any) -> None:
    """Look for the files that :func:`load` would read, without reading them; raises where they are not here.

    A public data set is downloaded where there is a network.
    """
    finder = _finder(name_or_folder)
    if finder is not None:
        given = {"folder": folder or os.environ.get("ISTHMUS_DATA"), **options}
        finder(**{name: value for name, value in given.items() if name in signature(finder).parameters})


def _finder(name_or_folder: str) -> Callable[..., object] | None:
    """The function that looks for what a name, a folder or a .csv file stands for; None where there are no files."""
    if name_or_folder in DATASETS:
        return DATASETS[name_or_folder].find
    if name_or_folder.endswith(".csv"):
        return partial(find_transfers, name_or_folder)
    _loader(name_or_folder)  # refuses a name that stands for nothing
    return partial(find_folder, name_or_folder)


def _loader(name_or_folder: str) -> Callable[..., Graph]:
    """The function that loads what a name, a folder or a .csv file stands for."""
    if name_or_folder in DATASETS:
        return DATASETS[name_or_folder].load
    if name_or_folder.endswith(".csv"):
        return partial(aml, name_or_folder)
    if "/" in name_or_folder or os.sep in name_or_folder or is_folder(Path(name_or_folder)):
        # Bound by position, so that the folder of the public data sets cannot take its place.
        return partial(load_folder, name_or_folder)
    raise unknown("data set", name_or_folder, DATASETS)
