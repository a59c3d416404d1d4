"""``python docs/make_api.py``: write docs/api.md from the docstrings of what ``isthmus`` exports."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import isthmus

ROLE = re.compile(r":\w+:`~?(?:\w+\.)*(\w+)`")  # a reference as Sphinx has it
UNKNOWN = "(...)"  # the signature of what has none
WIDTH = 88
PARAMETERS = re.compile(r"(\w+)\((.*)\)(.*)")
BETWEEN = re.compile(r", (?=\**\w+(?:: | =|$))")  # commas between parameters, not those within an annotation
HEAD = """# API

What `import isthmus` gives, from its docstrings. A first program:

```bash
python examples/own_graph.py
```

"""


def page() -> str:
    """The whole page."""
    names = [name for name in isthmus.__all__ if not name.startswith("__")]
    return HEAD + "\n".join(section(name, getattr(isthmus, name)) for name in sorted(names, key=str.lower))


def section(name: str, thing: Any) -> str:
    """One name: how it is called, what its docstring says, and its public methods."""
    lines = [f"## `{name}`", ""]
    if callable(thing) and not is_dataclass(thing) and signature(thing) != UNKNOWN:
        lines += ["```python", broken(f"{name}{signature(thing)}"), "```", ""]
    lines += [ROLE.sub(r"`\1`", inspect.getdoc(thing) or ""), ""]
    if is_dataclass(thing):
        lines += ["Fields: " + ", ".join(f"`{f.name}`" for f in fields(thing)) + ".", ""]
    if inspect.isclass(thing):
        for member, value in sorted(vars(thing).items()):
            if not member.startswith("_") and callable(value) and inspect.getdoc(value):
                lines += [f"- `{member}{signature(value)}`: {first_line(value)}"]
        lines += [""]
    return "\n".join(lines)


def signature(thing: Any) -> str:
    """How something is called, without quotes around annotations."""
    try:
        return re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(thing)))
    except (TypeError, ValueError):
        return UNKNOWN


def broken(call: str) -> str:
    """A call as it stands, or with a line for each parameter where it is long."""
    if len(call) <= WIDTH:
        return call
    head, inside, tail = PARAMETERS.fullmatch(call).groups()  # type: ignore[union-attr]
    return "\n".join([f"{head}(", *(f"    {each}," for each in BETWEEN.split(inside)), f"){tail}"])


def first_line(thing: Any) -> str:
    """The first sentence of a docstring."""
    return (inspect.getdoc(thing) or "").splitlines()[0]


if __name__ == "__main__":
    (Path(__file__).parent / "api.md").write_text(page().rstrip() + "\n")
