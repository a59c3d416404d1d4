"""Reading a policy: a TOML file, or one that ships with the package; what is not understood is an error."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.files import there
from isthmus.core.kinds import Kind
from isthmus.methods import catalogue
from isthmus.nn.model import LAYERS
from isthmus.policy.protections import PROTECTIONS, RequiredProtection
from isthmus.policy.rules import ALLOW, EVERYBODY, REFUSE, Budget, KindRules, Rules, RunRules
from isthmus.policy.units import UNITS

TABLES = ("run", "leave", "budget", "bytes", "account")
RUN = ("methods", "models", "columns", "started_by")
KIND = ("to", "protect", "smallest_sum")
BUDGET = ("epsilon", "delta")
_FORMATS = "formats"


def preset_names() -> list[str]:
    """Names of the policies that ship with the package."""
    found = resources.files("isthmus.policy.presets").iterdir()
    return sorted(each.name.removesuffix(".toml") for each in found if each.name.endswith(".toml"))


def preset_text(name: str) -> str:
    """The text of a policy that ships with the package."""
    if name not in preset_names():
        raise unknown("policy", name, preset_names())
    return resources.files("isthmus.policy.presets").joinpath(f"{name}.toml").read_text()


def read_policy(source: str) -> Rules:
    """The policy of a file, or of one that ships with the package, by its name."""
    path = Path(source)
    if source in preset_names():
        return parse_policy(preset_text(source), source)
    if not there(path) or not path.is_file():
        raise IsthmusError(f"There is no policy file '{source}'. Policies to start from: {', '.join(preset_names())}.")
    try:
        return parse_policy(path.read_text(), source)
    except (OSError, UnicodeDecodeError) as error:
        raise IsthmusError(f"'{source}' cannot be read as text: {error}.") from error


def parse_policy(text: str, source: str) -> Rules:
    """The policy of a TOML text; ``source`` is where it comes from, for errors."""
    try:
        told = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise IsthmusError(f"Policy '{source}' is not valid TOML: {error}.") from error
    return _Reader(source).rules(told)


class _Reader:
    """Reads the tables of one policy; every error names the file, the key and what is allowed."""

    def __init__(self, source: str) -> None:
        self.source = source

    def rules(self, told: Mapping[str, Any]) -> Rules:
        self._known("", told, TABLES)
        leave = self._table("leave", told.get("leave", {}))
        return Rules(
            self.source,
            self._run(self._table("run", told.get("run", {}))),
            self._choice("leave.others", leave.get("others", ALLOW), (ALLOW, REFUSE)),
            self._kinds({key: value for key, value in leave.items() if key != "others"}),
            self._whole("bytes", told.get("bytes", 0), 0),
            self._budgets(self._table("budget", told.get("budget", {}))),
            self._text("account", told.get("account", "")),
        )

    def _run(self, table: Mapping[str, Any]) -> RunRules:
        self._known("run", table, RUN)
        found = RunRules(**{key: self._names(f"run.{key}", table[key]) for key in table})
        for label in found.methods:
            name = label.partition(",")[0]
            self._one_of("run.methods", name, (*catalogue.names(), EVERYBODY))
        for name in found.models:
            self._one_of("run.models", name, (*LAYERS, EVERYBODY))
        return found

    def _kinds(self, tables: Mapping[str, Any]) -> dict[Kind, KindRules]:
        self._known("leave", tables, [kind.value for kind in Kind])
        return {Kind(name): self._kind(Kind(name), self._table(f"leave.{name}", tables[name])) for name in tables}

    def _kind(self, kind: Kind, table: Mapping[str, Any]) -> KindRules:
        key = f"leave.{kind}"
        self._known(key, table, KIND)
        to = self._names(f"{key}.to", table.get("to", [EVERYBODY]), empty=True)
        smallest = self._whole(f"{key}.smallest_sum", table.get("smallest_sum", 1), 1)
        return KindRules(kind, to, self._alternatives(f"{key}.protect", table.get("protect", [])), smallest)

    def _alternatives(self, key: str, value: Any) -> tuple[tuple[RequiredProtection, ...], ...]:
        if not isinstance(value, list):
            raise self._wrong(key, value, 'a list of tables, like [{ gaussian = { sigma = 1.0 } }, { "shares" = {} }]')
        return tuple(self._demands(f"{key}[{i}]", self._table(f"{key}[{i}]", each)) for i, each in enumerate(value))

    def _demands(self, key: str, table: Mapping[str, Any]) -> tuple[RequiredProtection, ...]:
        if not table:
            raise self._wrong(key, {}, f"a table of one or more of: {', '.join(sorted(PROTECTIONS))}")
        self._known(key, table, PROTECTIONS)
        return tuple(self._demand(f"{key}.{name}", name, self._table(f"{key}.{name}", table[name])) for name in table)

    def _demand(self, key: str, name: str, table: Mapping[str, Any]) -> RequiredProtection:
        bounds = PROTECTIONS[name].bounds
        self._known(key, table, [*bounds, *([_FORMATS] if name == "format" else [])])
        formats = self._names(f"{key}.{_FORMATS}", table[_FORMATS]) if _FORMATS in table else ()
        numbers = {each: self._number(f"{key}.{each}", table[each]) for each in table if each in bounds}
        return RequiredProtection(name, tuple(numbers.items()), formats)

    def _budgets(self, tables: Mapping[str, Any]) -> tuple[Budget, ...]:
        self._known("budget", tables, UNITS)
        return tuple(self._budget(unit, self._table(f"budget.{unit}", tables[unit])) for unit in tables)

    def _budget(self, unit: str, table: Mapping[str, Any]) -> Budget:
        key = f"budget.{unit}"
        self._known(key, table, BUDGET)
        for missing in [each for each in BUDGET if each not in table]:
            raise self._wrong(f"{key}.{missing}", None, "a number: a budget names epsilon and delta")
        epsilon, delta = (self._number(f"{key}.{each}", table[each]) for each in BUDGET)
        if not 0 < delta < 1:
            raise self._wrong(f"{key}.delta", delta, "a number between 0 and 1, both excluded")
        return Budget(unit, epsilon, delta)

    # ---- values

    def _known(self, where: str, table: Mapping[str, Any], choices: Collection[str]) -> None:
        for key in table:
            if key not in choices:
                raise self._unknown(f"key in [{where}]" if where else "key", key, choices)

    def _one_of(self, key: str, value: str, choices: Collection[str]) -> None:
        if value not in choices:
            raise self._unknown(f"name in {key}", value, choices)

    def _unknown(self, what: str, given: str, choices: Collection[str]) -> IsthmusError:
        return IsthmusError(f"Policy '{self.source}': {unknown(what, given, choices)}")

    def _wrong(self, key: str, value: Any, wanted: str) -> IsthmusError:
        given = "missing" if value is None else repr(value)
        return IsthmusError(f"Policy '{self.source}': {key} is {given}; it must be {wanted}.")

    def _table(self, key: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._wrong(key, value, "a table")
        return value

    def _names(self, key: str, value: Any, empty: bool = False) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
            raise self._wrong(key, value, 'a list of names, like ["*"]')
        if not value and not empty:
            raise self._wrong(key, value, 'a list of one or more names; ["*"] is any')
        return tuple(value)

    def _choice(self, key: str, value: Any, choices: tuple[str, ...]) -> str:
        if value not in choices:
            raise self._wrong(key, value, " or ".join(f'"{each}"' for each in choices))
        return str(value)

    def _text(self, key: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self._wrong(key, value, "the name of a file")
        return value

    def _whole(self, key: str, value: Any, least: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
            raise self._wrong(key, value, f"a whole number, {least} or more")
        return value

    def _number(self, key: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise self._wrong(key, value, "a finite number, 0 or more")
        return float(value)
