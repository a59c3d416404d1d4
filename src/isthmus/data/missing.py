"""The error for data sets whose files are not on this machine: one for as many as there are, with the remedy once."""

from __future__ import annotations

from pathlib import Path

from isthmus.core.errors import IsthmusError


class MissingData(IsthmusError):
    """Files of data sets are not here; ``sets`` has of each its name, and where it was looked for in vain."""

    def __init__(self, *sets: tuple[str, str]) -> None:
        self.sets = sets
        if len(sets) == 1:
            said = f"The data set '{sets[0][0]}' is not on this machine: {sets[0][1]}."
        else:
            listed = "; ".join(f"'{name}' ({where})" for name, where in sets)
            said = f"{len(sets)} data sets are not on this machine: {listed}."
        them = "it" if len(sets) == 1 else "them"
        remedy = f"Set the folder that holds {them} with --set data.folder=DIR or the variable ISTHMUS_DATA."
        super().__init__(f"{said} {remedy}")


def missing_data_set(name: str, looked_for: Path, reason: str) -> MissingData:
    """The error for one data set that was looked for, and is not to be had for some reason."""
    return MissingData((name, f"looked for {looked_for}, and {reason}"))
