"""The configuration of a run: recipes are checked and completed to a ``RunConfig``, which repeats the run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from isthmus.core.coerce import fill, table_of, whole_number
from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.plugins import load_plugins
from isthmus.engine.absence import STOPPING, AbsenceConfig
from isthmus.engine.settings import TrainConfig
from isthmus.kernels import CHOICES as KERNELS
from isthmus.methods import catalogue
from isthmus.methods.compose import NAME, TABLES, compose, swapped, tables_of
from isthmus.methods.method import Method
from isthmus.nn.model import ModelConfig
from isthmus.runs.data_config import MOST_SILOS, DataConfig, read_data
from isthmus.runs.model_config import model_name, read_model, suited_defaults
from isthmus.runs.network_time import LinkConfig, link_of

DTYPES = ("float32", "float64")
TRACKERS = ("tensorboard", "mlflow")
LONGEST_TIMEOUT = 1_000_000  # seconds; sockets count milliseconds in 31 bits


@dataclass(frozen=True)
class SystemConfig:
    """Settings of speed and place, which never affect results.

    ``threads`` 0 leaves the number of threads to PyTorch; ``kernels`` "plain" switches compiled kernels off. ``log`` is
    a file for JSON lines on what happens (empty: none), ``track`` trackers that follow a run, each with a folder:
    ``tensorboard:DIR``, ``mlflow:DIR``, or both with a comma between.
    """

    device: str = "cpu"
    hosts: int = 1
    timeout: float = 60.0
    threads: int = 1
    kernels: str = "auto"
    log: str = ""
    track: str = ""

    def check(self) -> None:
        """Raise a clear error for a value that is not allowed."""
        if self.device not in ("cpu", "cuda"):
            raise unknown("device", self.device, ("cpu", "cuda"))
        if self.hosts < 1:
            raise IsthmusError(f"--hosts is {self.hosts}; it must be at least 1.")
        if not 0 < self.timeout <= LONGEST_TIMEOUT:
            raise IsthmusError(
                f"system.timeout is {self.timeout:g}; it must be a positive number of seconds, at most "
                f"{LONGEST_TIMEOUT:,}."
            )
        if not 0 <= self.threads <= 1024:
            raise IsthmusError(f"system.threads is {self.threads}; it must lie in 0..1024 (0: as PyTorch chooses).")
        if self.kernels not in KERNELS:
            raise unknown("kernels", self.kernels, KERNELS)
        for kind, place in self.trackers:
            if kind not in TRACKERS:
                raise unknown("tracker", kind, TRACKERS)
            if not place or "://" in place:
                raise IsthmusError(f"--track {kind}:{place} needs a folder on this machine, like {kind}:runs/{kind}.")

    @property
    def trackers(self) -> list[tuple[str, str]]:
        """The kind and the folder of each tracker."""
        each = [part.strip().partition(":") for part in self.track.split(",") if part.strip()]
        return [(kind.strip(), place.strip()) for kind, _, place in each]


@dataclass(frozen=True)
class RunConfig:
    """The whole configuration of a run."""

    method: Method
    data: DataConfig
    model: ModelConfig
    train: TrainConfig
    system: SystemConfig
    seed: int = 0
    dtype: str = "float32"
    link: LinkConfig = LinkConfig()
    absence: AbsenceConfig = STOPPING

    def as_dict(self) -> dict[str, Any]:
        """The configuration as a recipe that repeats the run."""
        data = asdict(self.data)
        data |= data.pop("options")
        recipe: dict[str, Any] = {"method": self.method.name, "seed": self.seed, "dtype": self.dtype}
        recipe |= {
            "data": data,
            "model": asdict(self.model),
            "train": asdict(self.train),
            "system": asdict(self.system),
            "link": asdict(self.link),
            "federation": asdict(self.absence),
        }
        recipe |= tables_of(self.method)
        plain: dict[str, Any] = json.loads(json.dumps(recipe))
        return plain

    def toml(self) -> str:
        """The text of ``config.toml``."""
        import tomli_w

        return tomli_w.dumps(self.as_dict())

    def _essence(self) -> dict[str, Any]:
        """All settings that affect results, by dotted key; a run may be continued for longer, or on another device."""
        recipe = self.as_dict()
        recipe["system"] = {"hosts": self.system.hosts}
        recipe.pop("link")
        for free in ("epochs", "checkpoint_every"):
            recipe["train"].pop(free)
        return flat(recipe)

    @property
    def label(self) -> str:
        """The method's name, and the parts that are not its own: ``fedavg, exchange=optimes``."""
        return ", ".join([self.method.name, *swapped(self.method)])

    def digest(self) -> str:
        """A short hash of all settings that affect results; a checkpoint belongs to one digest."""
        return hashlib.blake2b(json.dumps(self._essence(), sort_keys=True).encode(), digest_size=8).hexdigest()

    def difference(self, other: RunConfig, free: Collection[str] = ()) -> str:
        """The settings that affect results and differ in the configuration ``other``, in words; empty if none do.

        Dotted keys in ``free`` may differ.
        """
        here, there = self._essence(), other._essence()
        keys = [key for key in sorted({*here, *there} - set(free)) if here.get(key) != there.get(key)]
        words = [f"{key} is {there.get(key)!r} there and {here.get(key)!r} here" for key in keys]
        return "; ".join(words[:3] + (["..."] if len(words) > 3 else []))


def flat(table: Mapping[str, Any], head: str = "") -> dict[str, Any]:
    """A nested table as a flat one with dotted keys, each beginning with ``head``."""
    dotted: dict[str, Any] = {}
    for key, value in table.items():
        dotted |= flat(value, f"{head}{key}.") if isinstance(value, Mapping) else {f"{head}{key}": value}
    return dotted


def resolve(recipe: Mapping[str, Any], method: Method | None = None) -> RunConfig:
    """The configuration of a recipe, with defaults for what it leaves out; raises for a wrong key or value.

    ``method`` is composed instead of the catalogue's method that the recipe names.
    """
    load_plugins()
    allowed = {"method", "seed", "dtype", "data", "model", "train", "system", "link", "federation", "score", *TABLES}
    for key in recipe:
        if key not in allowed:
            raise unknown("key", key, allowed)
    tables = {key: table_of(recipe, key) for key in ("data", "model", "train", "system")}
    method = catalogue.get(str(recipe.get("method", "fedavg"))) if method is None else method
    asked = {key: _part_table(recipe, key) for key in TABLES}
    method = compose(method, {**asked, "score": recipe.get("score", "")})
    data = read_data(tables["data"])
    data = replace(data, cross=data.cross or method.cross, level=data.level or method.level)
    dtype = str(recipe.get("dtype", "float32"))
    if dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    system = fill(SystemConfig(), tables["system"], "system")
    system.check()
    suited = suited_defaults(model_name(tables["model"], method, data.name), data.name)
    train = fill(TrainConfig(), {**suited.get("train", {}), **tables["train"]}, "train")
    model = read_model({**suited.get("model", {}), **tables["model"]}, method, data.name)
    train.check(model.layers)
    method.check(model, train)
    method.check_cross(data.cross)
    method.check_level(data.level, train.pooled)
    seed = whole_number("seed", recipe.get("seed", 0))
    absence = _absence(recipe, method, system)
    return RunConfig(method, data, model, train, system, seed, dtype, link_of(recipe), absence)


def _absence(recipe: Mapping[str, Any], method: Method, system: SystemConfig) -> AbsenceConfig:
    """The settings of a recipe's ``[federation]``."""
    absence = fill(STOPPING, table_of(recipe, "federation"), "federation")
    absence.check()
    method.check_absence(absence)
    if absence.away and system.hosts > 1:
        absence.check_silos(MOST_SILOS, system.hosts)
    return absence


def _part_table(recipe: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The table of a part of a method; a bare name becomes a table that holds only the name."""
    value = recipe.get(key, {})
    named = isinstance(value, str) or (key == "protect" and isinstance(value, list))
    return {NAME: value} if named and key != "phase" else table_of(recipe, key)
