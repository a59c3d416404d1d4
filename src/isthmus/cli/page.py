"""``isthmus page``: the local page."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.listing import listed
from isthmus.cli.shared import console
from isthmus.core.errors import IsthmusError

_NEEDED = ("starlette", "uvicorn", "jinja2")


def page(
    runs: Annotated[str, typer.Argument(metavar="RUNS", help="A folder that holds runs, or one run.")] = "runs",
    port: Annotated[int, typer.Option(help="Port of this machine; 0 for any that is free.")] = 8765,
    allow_start: Annotated[
        bool, typer.Option("--allow-start", help="Whoever has the address may start and stop runs in that folder.")
    ] = False,
) -> None:
    """Show runs in a browser on this machine, also while they train: curves, bytes, ledger, comparisons."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise IsthmusError(f"The page needs {', '.join(missing)}; install it with: pip install 'isthmus[page]'")
    from isthmus.page.actions import Choices
    from isthmus.page.server import serve

    choices = Choices(listed("methods"), listed("datasets")) if allow_start else None
    serve(Path(runs), port, choices, lambda text: console.print(text, markup=False, highlight=False, soft_wrap=True))
