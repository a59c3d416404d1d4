"""Folders and files that are no tables of nodes and edges, but that a data set by name can read: how to say so."""

from __future__ import annotations

import csv
from pathlib import Path

from isthmus.core.errors import IsthmusError
from isthmus.core.files import there

AMLSIM_FILES = ("nodes.csv", "transactions.csv")
AMLSIM_ENDS = ("sourceNodeId", "targetNodeId")
IBM_COLUMNS = ("From Bank", "To Bank", "Is Laundering")


def refuse_other_layouts(folder: Path) -> None:
    """Raise if a folder is a file, or holds files of another layout instead of edges; says which option reads them."""
    if there(folder) and folder.is_file():
        raise IsthmusError(
            f"{folder} is a file; give the folder that holds nodes and edges as .parquet or .csv, or a .csv file of "
            "transactions like IBM's."
        )
    if not there(folder) or any((folder / name).is_file() for name in ("edges.csv", "edges.parquet")):
        return
    if all((folder / name).is_file() for name in AMLSIM_FILES) and _names(folder / AMLSIM_FILES[1], AMLSIM_ENDS):
        raise IsthmusError(
            f"{folder} holds AMLSim's tables ({' and '.join(AMLSIM_FILES)}) and no edges. The data set 'amlsim' reads "
            f"them: give amlsim instead of the folder, and --set data.path={folder}."
        )
    transfers = [path for path in sorted(folder.glob("*.csv")) if _names(path, IBM_COLUMNS)]
    if transfers:
        raise IsthmusError(
            f"{folder} holds transactions like IBM's ({', '.join(path.name for path in transfers)}) and no edges. "
            f"Give such a file instead of the folder: {transfers[0]}."
        )


def _names(path: Path, columns: tuple[str, ...]) -> bool:
    """Whether the first line of a CSV file names all of some columns; a file that cannot be read names none."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            header = {name.strip() for name in next(csv.reader(file), [])}
    except (OSError, UnicodeDecodeError, csv.Error):
        return False
    return header.issuperset(columns)
