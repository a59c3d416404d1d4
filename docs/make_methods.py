"""``python docs/make_methods.py``: write docs/methods/NAME.md, one page for every method of the catalogue.

What a page says comes from docstrings, options and defaults of the method's parts, from what the method did when it
was tried (docs/method_facts.json), from docs/method_words.toml, and from the scores in docs/results.
"""

from __future__ import annotations

import inspect
import re
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

from method_flows import flow_table, more_kinds, tried, unseen  # noqa: E402
from method_scores import scores  # noqa: E402
from option_words import equation_and_prose, meaning  # noqa: E402

from isthmus.methods import catalogue  # noqa: E402
from isthmus.methods.method import AXES, Method  # noqa: E402
from isthmus.methods.parts import part_options  # noqa: E402

SETTING = {"fedgcn": " --model gcn", "hifgl": " --model gcn"}  # models without which the command is refused


def pages() -> dict[str, str]:
    """The text of every page by its path under docs/."""
    return {f"methods/{slug(name)}.md": page(name) for name in catalogue.names()}


def slug(name: str) -> str:
    """The name of a method as part of an address: ``sync-sgd+fwd-le`` is sync-sgd-fwd-le, ``fedsage+`` fedsage-plus."""
    return re.sub(r"\+$", "-plus", name).replace("+", "-")


@cache
def words() -> dict[str, Any]:
    """What pages say beyond the code."""
    return tomllib.loads((DOCS / "method_words.toml").read_text())


def page(name: str) -> str:
    """The page of one method."""
    method, said = catalogue.get(name), words()[name]
    paper = words()["papers"].get(method.paper, method.paper)
    head = [
        f"# `{name}`",
        f"This page is about the method `{name}`: {method.summary}. It is made from the code by "
        "`python docs/make_methods.py`.",
        f"```sh\nisthmus run --data blocks --silos 5 --method {name}{SETTING.get(name, '')}\n```",
        f"**When to use it.** {said['use']}",
        f"**Paper.** {paper}." if paper else "**Paper.** None: a baseline.",
        f"**Read more.** [{title(said['page'])}](../{said['page']})." if "page" in said else "",
        "## What it does",
        equation_and_prose(catalogue.docstring(name)),
        *parts(method),
        *crossing(name, method),
        *answers(name),
        *options(method),
        *equalities(said),
        *scores(name),
    ]
    return "\n\n".join(filter(None, head)) + "\n"


def title(page: str) -> str:
    """The title of a page of docs/."""
    return (DOCS / page).read_text().splitlines()[0].removeprefix("# ")


# ---- parts and options


def chosen(method: Method) -> list[tuple[str, str, Any]]:
    """[(phase, axis, part)] of a method, models and mechanisms included; without phases where there is one."""
    several = len(method.phases) > 1
    found = [(phase.name if several else "", axis, getattr(phase, axis)) for phase in method.phases for axis in AXES]
    found += [("", f"models.{name}", spec) for name, spec in method.models.items() if part_options(spec)]
    return found + [("", "protect", mechanism) for mechanism in method.protect]


def parts(method: Method) -> list[str]:
    """The sections on what a method is composed of: each part that does something, in its own words."""
    doing = [(phase, axis, part) for phase, axis, part in chosen(method) if does_something(axis, part)]
    if not doing:
        return ["Its parts are those that do nothing: no exchange, no common step, no protection."]
    found, seen = [], set()
    for phase, axis, part in doing:
        label = f"{axis} = {part.name}" if hasattr(part, "name") else axis
        lead = f"**{label}**" + (f", in the phase `{phase}`" if phase else "")
        again = type(part) in seen
        found += [lead + (" (see above)" if again else "")]
        found += [] if again else [equation_and_prose(inspect.getdoc(type(part)) or "")]
        seen.add(type(part))
    return found


def does_something(axis: str, part: Any) -> bool:
    """Whether a part differs from the one of its axis that leaves everything as it is."""
    idle = {"exchange": "nothing", "sync": "alone", "objective": "task"}
    if axis == "schedule":
        return part != type(catalogue.get("local").last.schedule)()
    return getattr(part, "name", axis) != idle.get(axis)


def options(method: Method) -> list[str]:
    """The section on a method's options: key, default, and the sentence of the docstring that explains it."""
    rows = []
    for phase, axis, part in chosen(method):
        if axis == "schedule" and not any(each.exchange.stepwise for each in method.phases):
            continue  # nothing crosses within steps, so there is nothing to schedule
        head = f"phase.{phase}.{axis}" if phase else axis
        rows += [
            f"| `{head}.{key}` | `{value_text(value)}` | {explained(type(part), key)} |"
            for key, value in part_options(part).items()
        ]
    if len(method.phases) > 1:
        rows += [
            f"| `phase.{each.name}.epochs` | `{each.epochs}` | how many epochs it lasts (0: what is left) |"
            for each in method.phases
        ]
    table = ["| key | default | meaning |\n|---|---|---|\n" + "\n".join(rows)] if rows else ["It has none."]
    more = "Set one by `--set KEY=VALUE`. Those of data, model and training are [everywhere the same](../running.md)."
    return ["## Options", more, *table]


def explained(part: type[Any], option: str) -> str:
    """What an option means: as docs/method_words.toml has it, else a sentence of its docstring."""
    return words()["options"].get(f"{part.__name__}.{option}") or meaning(part, option)


def value_text(value: Any) -> str:
    """A default as a table shows it."""
    return ",".join(map(str, value)) or "(empty)" if isinstance(value, tuple | list) else str(value) or "(empty)"


# ---- what crosses, and what is refused


def crossing(name: str, method: Method) -> list[str]:
    """The section on what a method sends to whom, from the ledger of the run in which it was tried."""
    head = "## What it sends to whom"
    if method.merged:
        return [head, "One party holds everything, so that nothing crosses between parties: a simulation."]
    lead = (
        "From the ledger of a run of full batches between three silos in one process, unprotected but for what the "
        "method itself does. [What the server sees](../what-the-server-sees.md) explains the kinds."
    )
    flows, sampled = (tried()[name][how] for how in ("flows", "sampled"))
    return [head, lead, flow_table(flows), more_kinds(sampled), unseen(flows + sampled)]


def answers(name: str) -> list[str]:
    """The section on what a method can be used with, in the words of its own refusals."""
    rows = []
    for asked, said in tried()[name]["answers"].items():
        yes = "yes, along edges inside each silo" if asked == "edge labels" and inside(catalogue.get(name)) else "yes"
        rows.append(f"| {asked} | {yes if said == 'yes' else 'no: ' + said.replace('|', ' ')} |")
    return ["## What it goes with", "| together with | may it be used? |\n|---|---|\n" + "\n".join(rows)]


def inside(method: Method) -> bool:
    """Whether silos train along their own edges alone."""
    return all(phase.exchange.view == "drop" for phase in method.phases) and not method.merged


# ---- what it equals, and its scores


def equalities(said: dict[str, Any]) -> list[str]:
    """The section on what a method equals, each with its test."""
    if "equals" not in said:
        return []
    points = [
        f"- {what} (`{test.split('::')[1]}` in [{test.split('::')[0]}](../../{test.split('::')[0]}))"
        for what, test in said["equals"]
    ]
    return ["## What it equals", "In exact arithmetic, as tests on small graphs show:", "\n".join(points)]


if __name__ == "__main__":
    (DOCS / "methods").mkdir(exist_ok=True)
    for path, text in pages().items():
        (DOCS / path).write_text(text)
