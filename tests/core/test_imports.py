"""The rooms of the package stand on each other in one order, and no module needs one that needs it."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import isthmus

ROOT = Path(isthmus.__file__).parent
# Low to high: a package imports only itself and those before it. Imports for type checkers count too.
ORDER = (
    "kernels", "core", "graph", "nn", "data", "protect", "wire", "federation", "sample", "engine", "methods", "train",
    "runs", "policy", "launch", "audit", "report", "plan", "commands", "studies", "api", "testing",
    "page", "cli", "__main__",
)  # fmt: skip


def modules() -> dict[str, Path]:
    found = {}
    for path in ROOT.rglob("*.py"):
        name = ".".join(("isthmus", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
        found[name] = path
    return found


def imports() -> dict[str, set[str]]:
    """Every import of the package within itself, also inside functions and for type checkers alone."""
    known, graph = modules(), defaultdict(set)
    for name, path in known.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "isthmus":
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                graph[name] |= {each if each in known else node.module for each in inner}
            elif isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names if alias.name.split(".")[0] == "isthmus"}
    return {name: graph[name] - {name} for name in known}


def room(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


def test_every_room_has_its_place_in_the_order() -> None:
    assert {room(name) for name in modules()} - {""} == set(ORDER)


def test_rooms_import_lower_rooms_alone() -> None:
    """The package itself, which names what users need, may import any room; nobody imports the package."""
    place = {name: i for i, name in enumerate(ORDER)}
    wrong = [
        (name, other)
        for name, others in imports().items()
        for other in others
        if room(name) and (not room(other) or place[room(other)] > place[room(name)])
    ]
    assert wrong == []


def test_no_module_needs_one_that_needs_it() -> None:
    graph, done = imports(), set[str]()

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            pytest.fail(" -> ".join((*path[path.index(name) :], name)))
        if name not in done:
            for other in sorted(graph.get(name, ())):
                visit(other, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


TRANSPORT = ("_deliver", "_swap", "_sizes", "_sum_hosts")


def test_nobody_outside_the_wire_touches_a_transport() -> None:
    used = [
        (name, node.attr)
        for name, path in modules().items()
        for node in ast.walk(ast.parse(path.read_text()))
        if room(name) != "wire" and isinstance(node, ast.Attribute) and node.attr in TRANSPORT
    ]
    calls = [
        (name, node.attr)
        for name, path in modules().items()
        for node in ast.walk(ast.parse(path.read_text()))
        if room(name) != "wire"
        and isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "dist"
    ]
    assert used == [] and calls == []


def test_a_gaussian_is_looked_for_by_nobody_but_protection() -> None:
    """Others read events: what happened, not what was configured."""
    found = [name for name, path in modules().items() if ", Gaussian)" in path.read_text()]
    assert [name for name in found if room(name) != "protect"] == []
