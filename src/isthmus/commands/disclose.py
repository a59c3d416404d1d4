"""What ``isthmus disclose`` does: the disclosure sheet of a finished run, or of a plan before it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from isthmus.core.errors import IsthmusError
from isthmus.core.files import is_folder, there
from isthmus.report.disclosed import Disclosed, disclosed_of_run, read_plan
from isthmus.report.sheet import DisclosureSheet, Statement, sheet_of
from isthmus.report.sheet_page import write_sheet
from isthmus.runs.folder import RunFolder
from isthmus.runs.recipe import recipe_names

PAGE = "disclosure.html"


@dataclass(frozen=True)
class DiscloseRequest:
    """What the user asked for: a run, a plan's JSON or a recipe; the page's path; and what the parties say."""

    what: str
    out: str | None = None
    sets: tuple[str, ...] = ()
    policy: str = ""
    statement: Statement = Statement()


def disclose(request: DiscloseRequest) -> tuple[DisclosureSheet, Path]:
    """Write the sheet; returns it and the path of its page."""
    path = Path(request.what)
    if is_folder(path) and request.what not in recipe_names():
        told, place = disclosed_of_run(_finished(request)), path / PAGE
    elif path.suffix == ".json":
        told, place = _plan_file(request, path), path.with_name(f"{path.stem}-{PAGE}")
    else:
        told, place = _planned(request), Path(f"{path.stem}-{PAGE}")
    try:
        sheet = sheet_of(told, request.statement)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise IsthmusError(f"'{request.what}' tells what no sheet can be made of ({error}); make it anew.") from error
    return sheet, write_sheet(sheet, Path(request.out) if request.out else place)


def _finished(request: DiscloseRequest) -> RunFolder:
    """The folder of a run that has ended."""
    _refuse_changes(request, "A run is disclosed as it was")
    return RunFolder.open(request.what)


def _plan_file(request: DiscloseRequest, path: Path) -> Disclosed:
    """The evidence in a plan's JSON."""
    _refuse_changes(request, "A plan is disclosed as it was made")
    if not there(path):
        raise IsthmusError(f"There is no plan '{path}'; write one with: isthmus plan ... --json > {path}")
    return read_plan(path)


def _refuse_changes(request: DiscloseRequest, why: str) -> None:
    """Refuse options that change a configuration where there is none to change."""
    if request.sets or request.policy:
        raise IsthmusError(f"{why}; --set and --policy are for recipes.")


def _planned(request: DiscloseRequest) -> Disclosed:
    """The evidence of a recipe, which is planned here and now."""
    from isthmus.commands.run import Request, configure
    from isthmus.plan.plan import make_plan
    from isthmus.report.disclosed import disclosed_of_plan

    config = configure(Request(request.what, {}, request.sets))
    return disclosed_of_plan(make_plan(config, policy=request.policy).as_dict(), request.what)
