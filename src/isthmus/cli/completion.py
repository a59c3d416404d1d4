"""Names that the shell completes: commands and options come from typer, names of what is shipped from here.

They are read from the listing of the package, so that a key press imports neither PyTorch nor plug-ins; names of
plug-ins are therefore not among them. Where nothing matches, shells complete files.
"""

from __future__ import annotations

from importlib import resources

from isthmus.cli.listing import shipped
from isthmus.runs.model_names import OFFERED

PRESETS = ("open", "bank", "strict")
SPLITS = ("louvain", "metis", "random", "label:", "attribute:")


def method_names(incomplete: str) -> list[tuple[str, str]]:
    """Shipped methods that begin like this, each with its summary."""
    return _named(incomplete, "methods")


def data_names(incomplete: str) -> list[tuple[str, str]]:
    """Shipped data sets that begin like this, each with its summary."""
    return _named(incomplete, "datasets")


def study_names(incomplete: str) -> list[str]:
    """Shipped studies that begin like this."""
    return [row["name"] for row in shipped("studies") if row["name"].startswith(incomplete)]


def recipe_names(incomplete: str) -> list[str]:
    """Shipped recipes that begin like this."""
    files = resources.files("isthmus.runs").joinpath("recipes").iterdir()
    names = sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))
    return [name for name in names if name.startswith(incomplete)]


def model_names(incomplete: str) -> list[str]:
    """Models that begin like this."""
    return [name for name in OFFERED if name.startswith(incomplete)]


def preset_names(incomplete: str) -> list[str]:
    """Policies that ship with the package and begin like this."""
    return [name for name in PRESETS if name.startswith(incomplete)]


def split_names(incomplete: str) -> list[str]:
    """Ways to split a graph that begin like this; after the colon stands a number or a column."""
    return [name for name in SPLITS if name.startswith(incomplete)]


def _named(incomplete: str, what: str) -> list[tuple[str, str]]:
    return [(row["name"], row["summary"]) for row in shipped(what) if row["name"].startswith(incomplete)]
