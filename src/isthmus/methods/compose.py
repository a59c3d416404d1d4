"""Swap parts of a method by name and set their options, as recipes and ``--set`` ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from isthmus.core.coerce import as_type
from isthmus.core.errors import IsthmusError, unknown
from isthmus.engine.learner import ModelSpec
from isthmus.methods import catalogue
from isthmus.methods.method import Method
from isthmus.methods.parts import PARTS, make_part, part_options
from isthmus.methods.phase import AXES, Phase
from isthmus.protect.base import Mechanism

NAME = "name"  # the key that swaps a part: exchange.name, short exchange=NAME
TABLES = (*AXES, "protect", "phase", "models")  # keys of a recipe that hold tables of a method


def compose(method: Method, asked: Mapping[str, Any]) -> Method:
    """The method with parts and options replaced: ``{"sync": {"local_epochs": 3}, "protect": {"name": "gaussian"}}``.

    Every key must be read by a part. With several phases an axis stands for the one phase whose part has these options;
    otherwise say which: ``{"phase": {"federate": {"sync": {...}}}}``.
    """
    for axis in AXES:
        table = asked.get(axis)
        if table:
            phase = _phase_of(method, axis, table)
            method = method.with_phase(phase.name, **{axis: _part(method, axis, getattr(phase, axis), table)})
    for name, tables in asked.get("phase", {}).items():
        method = _with_tables(method, name, tables)
    if asked.get("models"):
        method = replace(method, models={**method.models, **_model_specs(method, asked["models"])})
    if asked.get("protect"):
        method = replace(method, protect=_chain(method, asked["protect"]))
    return replace(method, scores=_ways(asked["score"])) if asked.get("score") else method


def _ways(asked: Any) -> tuple[str, ...]:
    """Ways of scoring, from a list or from a text with commas."""
    parts = asked.split(",") if isinstance(asked, str) else asked
    if not isinstance(parts, Sequence):
        raise IsthmusError(f"score is {asked!r}; give a name, or several: score=own,across.")
    return tuple(str(part).strip() for part in parts)


def _with_tables(method: Method, name: str, tables: Mapping[str, Any]) -> Method:
    """The method with parts and options of the phase ``name`` replaced as its ``tables`` say."""
    phase = next((phase for phase in method.phases if phase.name == name), None)
    if phase is None:
        raise unknown(f"phase of '{method.name}'", name, [each.name for each in method.phases])
    changes: dict[str, Any] = {}
    for key, value in tables.items():
        if key in AXES:
            table = value if isinstance(value, Mapping) else {NAME: value}
            changes[key] = _part(method, key, getattr(phase, key), table)
        elif key == "epochs":
            changes[key] = as_type(f"phase.{name}.epochs", value, 0)
        else:
            raise unknown(f"key in [phase.{name}]", key, [*AXES, "epochs"])
    return method.with_phase(name, **changes)


def _phase_of(method: Method, axis: str, table: Mapping[str, Any]) -> Phase:
    """The phase that is meant where an axis is given without a phase."""
    if len(method.phases) == 1:
        return method.phases[0]
    nothing = type(make_part(axis, next(iter(PARTS[axis]))))
    having = [phase for phase in method.phases if type(getattr(phase, axis)) is not nothing]
    if NAME not in table:
        having = [phase for phase in having if set(table) <= set(part_options(getattr(phase, axis)))] or having
    if len(having) != 1:
        names = ", ".join(f"phase.{phase.name}.{axis}" for phase in method.phases)
        many = "more than one phase has" if having else "no phase has"
        raise IsthmusError(
            f"Method '{method.name}' has several phases, and {many} a part of its own on the axis {axis}; say which "
            f"is meant: {names}."
        )
    return having[0]


def _model_specs(method: Method, tables: Mapping[str, Any]) -> dict[str, ModelSpec]:
    """The specs of the models in ``tables``, {name: {option: value}}, with these options set."""
    specs = {}
    for name, table in tables.items():
        if name not in method.models:
            raise unknown(f"model of '{method.name}'", name, method.models)
        specs[name] = spec = method.models[name]
        for key, value in (table if isinstance(table, Mapping) else {str(table): ""}).items():
            if key not in part_options(spec):
                raise unknown(f"option of models.{name}", key, part_options(spec))
            specs[name] = replace(specs[name], **{key: as_type(f"models.{name}.{key}", value, getattr(spec, key))})
    return specs


def _part(method: Method, axis: str, part: Any, table: Mapping[str, Any]) -> Any:
    """A part of a phase, swapped where its name is given, with options set."""
    name = table.get(NAME, part.name)
    part = part if name == part.name else make_part(axis, str(name))
    for key, value in table.items():
        if key == NAME:
            continue
        if key not in part_options(part):
            raise _no_such_option(method, axis, key, [part])
        part = replace(part, **{key: as_type(f"{axis}.{key}", value, getattr(part, key))})
    return part


def _chain(method: Method, table: Mapping[str, Any]) -> tuple[Mechanism, ...]:
    """The chain of protection: the named mechanisms in order, or those whose options are given, with these options."""
    chain = list(method.protect)
    if NAME in table:
        given = table[NAME]
        names = [str(each).strip() for each in (given if isinstance(given, list | tuple) else str(given).split(","))]
        chain = [make_part("protect", name) for name in names if name and name != "nothing"]
    for key, value in table.items():
        if key != NAME:
            _set_option(method, chain, key, value, implied=NAME not in table)
    return tuple(chain)


def _set_option(method: Method, chain: list[Mechanism], key: str, value: Any, implied: bool) -> None:
    """Set an option of all mechanisms of a chain that have it; with ``implied``, add one that has, if there is none."""
    if implied and not any(key in part_options(mechanism) for mechanism in chain):
        known = (make_part("protect", name) for name in ("gaussian", "laplace", "dp-sgd", "format"))
        for mechanism in [each for each in known if key in part_options(each)][:1]:
            chain.insert(len(chain) if mechanism.encodes else 0, mechanism)
    places = [i for i, mechanism in enumerate(chain) if key in part_options(mechanism)]
    if not places:
        raise _no_such_option(method, "protect", key, chain)
    for place in places:
        old = getattr(chain[place], key)
        chain[place] = replace(chain[place], **{key: as_type(f"protect.{key}", value, old)})


def _no_such_option(method: Method, axis: str, key: str, parts: list[Any]) -> IsthmusError:
    known = [f"{axis}.{option}" for part in parts for option in part_options(part)]
    offer = f"it has {', '.join(known)}" if known else "it has none"
    return IsthmusError(f"Method '{method.name}' has no option {axis}.{key}; on the axis {axis} {offer}.")


def swapped(method: Method) -> list[str]:
    """The parts that a method does not have in the catalogue, each as ``axis=name``; empty for methods of one's own."""
    if method.name not in catalogue.names():
        return []
    usual = catalogue.get(method.name)
    pairs = [(axis, here, there) for axis, here, there in _each_part(method, usual) if here.name != there.name]
    chains = [",".join(mechanism.name for mechanism in each.protect) for each in (method, usual)]
    protect = [f"protect={chains[0] or 'nothing'}"] if chains[0] != chains[1] else []
    return [f"{axis}={here.name}" for axis, here, _ in pairs] + protect


def _each_part(method: Method, usual: Method) -> list[tuple[str, Any, Any]]:
    """[(axis, part of ``method``, part of ``usual``)] for every phase and axis; both methods have the same phases."""
    several = len(method.phases) > 1
    return [
        (f"{here.name}.{axis}" if several else axis, getattr(here, axis), getattr(there, axis))
        for here, there in zip(method.phases, usual.phases, strict=True)
        for axis in AXES
    ]


def tables_of(method: Method) -> dict[str, Any]:
    """The tables from which :func:`compose` makes this method out of the catalogue's method of its name."""
    tables: dict[str, Any] = {}
    for phase in method.phases:
        mine = {axis: _table(getattr(phase, axis)) for axis in AXES}
        if len(method.phases) == 1:
            tables |= mine
        else:
            tables.setdefault("phase", {})[phase.name] = {**mine, "epochs": phase.epochs}
    if method.protect:
        options = [part_options(mechanism) for mechanism in method.protect]
        tables["protect"] = {NAME: [mechanism.name for mechanism in method.protect]}
        tables["protect"] |= {key: value for each in options for key, value in each.items()}
    models = {name: part_options(spec) for name, spec in method.models.items() if part_options(spec)}
    if models:
        tables["models"] = models
    tables["score"] = ",".join(method.scores)
    return tables


def _table(part: Any) -> dict[str, Any]:
    return {NAME: part.name, **part_options(part)}
