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
from isthmus.data.aml import aml
from isthmus.data.amlsim import amlsim
from isthmus.data.banks import interbank
from isthmus.data.blocks import blocks
from isthmus.data.files import load_folder
from isthmus.data.patterns import patterns
from isthmus.data.public import npz, planetoid
from isthmus.graph.graph import Graph

__all__ = ["DATASETS", "DataSet", "blocks", "load", "load_folder", "patterns", "register_dataset"]

GIVEN = ("seed", "folder")  # arguments of loaders that are not options of the data set


@dataclass(frozen=True)
class DataSet:
    """A graph that can be loaded by name: its loader, the model that suits it, and where it comes from."""

    name: str
    summary: str
    load: Callable[..., Graph]
    default_model: str
    source: str


_PLANETOID = "kimiyoung/planetoid, MIT licence"
_SHCHUR = "shchur/gnn-benchmark, MIT licence"
_AMLSIM = "IBM/AMLSim, Apache-2.0 licence"
_AML = "Altman et al., NeurIPS 2023, its licence"
_MADE = "made here, from a seed"

DATASETS: dict[str, DataSet] = {
    entry.name: entry
    for entry in (
        DataSet("patterns", "directed multigraphs labelled by cycles and motifs", patterns, "multi-pna", _MADE),
        DataSet("blocks", "stochastic block model of any size, weak features", blocks, "sage", _MADE),
        DataSet("cora", "2,708 papers and their citations", partial(planetoid, "cora"), "gcn", _PLANETOID),
        DataSet("citeseer", "3,327 papers and their citations", partial(planetoid, "citeseer"), "gcn", _PLANETOID),
        DataSet("pubmed", "19,717 papers and their citations", partial(planetoid, "pubmed"), "gcn", _PLANETOID),
        DataSet("coauthor-cs", "18,333 authors who write together", partial(npz, "coauthor-cs"), "sage", _SHCHUR),
        DataSet("amazon-photo", "7,650 goods bought together", partial(npz, "amazon-photo"), "sage", _SHCHUR),
        DataSet("wordnet", "117,659 word meanings", partial(npz, "wordnet"), "sage", "WordNet 3.0, its licence"),
        DataSet("aml", "transactions of a file like IBM's HI-Small_Trans.csv (data.path)", aml, "multi-pna", _AML),
        DataSet("interbank", "simulated transfers between banks, laundering among them", interbank, "multi-pna", _MADE),
        DataSet(
            "amlsim",
            "bank transfers with fan-ins and cycles",
            partial(amlsim, "amlsim"),
            "pna",
            _AMLSIM,
        ),
        DataSet(
            "amlsim-fanin",
            "bank transfers with fan-ins",
            partial(amlsim, "amlsim-fanin"),
            "pna",
            _AMLSIM,
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
