"""What ``isthmus policy`` does: which rules would refuse a run, what a party has spent, and policies to start from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isthmus.core.errors import IsthmusError
from isthmus.core.name_lists import some_of
from isthmus.data.members import is_parts, member_names
from isthmus.data.parts import read_part
from isthmus.graph.silo import Silo
from isthmus.launch.host import open_run, prepare
from isthmus.launch.policies import Found, Policies, all_names
from isthmus.launch.silos import load_silos
from isthmus.launch.trial import Foreseen, foresee
from isthmus.policy.chain_file import read_chain
from isthmus.policy.parties import ACCOUNT, ACCOUNTS
from isthmus.policy.reading import read_policy
from isthmus.policy.rules import Budget
from isthmus.policy.spending import BYTES, RELEASE, RUN, SpentTotals
from isthmus.policy.units import EDGE, UNITS
from isthmus.protect.events import describe
from isthmus.runs.config import RunConfig

_COUNTED = "What a run counts (bytes, epsilon, sizes of sums) is not in this; 'isthmus plan' estimates it."


def check_policy(config: RunConfig, named: str) -> dict[str, Any]:
    """What the policies of the silos whose data is here would refuse of a run, all of it at once.

    ``named`` is asked instead of the silos' own. A party that has its own part alone checks for itself.
    """
    config = prepare(config)
    names = _here(config)
    policies = Policies(config, names, all_names(config), named)
    if named:
        policies.rules = dict.fromkeys(names, read_policy(named))
    found, notes = policies.of_run(policies.others), [_COUNTED]
    told, silos = Foreseen(), list[Silo]()
    if not config.method.merged:
        silos = _silos(config, names)
        told = foresee(config, silos[0].schema, open_run)
        found += [*policies.of_data(silos), *policies.of_steps(silos, told.demands)]
        notes += [f"What this run sends could not be foreseen: {told.unknown}"] if told.unknown else []
    return {
        "method": config.label,
        "parties": {name: policies.rules[silo].source for silo, name in names.items()},
        "permits": {silo.name: policies.summary(silo, told.demands) for silo in silos},
        "refused": _rows(found),
        "notes": notes,
    }


def _rows(found: Found) -> list[dict[str, str]]:
    return [
        {"party": party, "what": refusal.what, "rule": refusal.rule, "reason": refusal.reason}
        for party, refusal in found
    ]


def _here(config: RunConfig) -> dict[int, str]:
    """The silos whose data is on this machine."""
    every = dict(enumerate(all_names(config)))
    if not is_parts(config.data.name):
        return every
    root = Path(config.data.name)
    here = {silo: name for silo, name in every.items() if (root / name).is_dir()}
    if not here:
        raise IsthmusError(f"'{root}' has no folder of a silo; there must be that of {some_of(list(every.values()))}.")
    return here


def _silos(config: RunConfig, names: Mapping[int, str]) -> list[Silo]:
    if not is_parts(config.data.name):
        return load_silos(config.data, config.method.merged)
    root = Path(config.data.name)
    return [read_part(root, member_names(root), silo) for silo in names]


# ---- what was spent


def spent_of(places: Sequence[str]) -> list[dict[str, Any]]:
    """What the accounts of parties add up to: of each file, or of all in a folder of parts or of accounts."""
    return [_spent(path) for path in _accounts(places)]


def _accounts(places: Sequence[str]) -> list[Path]:
    found = list[Path]()
    for place in map(Path, places or (".", f"runs/{ACCOUNTS}")):
        inside = [*place.glob(ACCOUNT), *place.glob(f"*/{ACCOUNT}"), *place.glob("*.jsonl")]
        found += [place] if place.is_file() else sorted(set(inside))
    if not found:
        where = some_of(list(places)) if places else f"this folder and runs/{ACCOUNTS}"
        raise IsthmusError(
            f"There is no account in {where}; give its file, or the folder of a part or of parts. A party has one once "
            "a run of it counted against a budget."
        )
    return found


def _spent(path: Path) -> dict[str, Any]:
    lines = read_chain(path)
    runs = [line for line in lines if line["what"] == RUN]
    sent = {line["run"]: line["bytes"] for line in lines if line["what"] == BYTES}
    told = {"account": str(path), "party": runs[-1]["party"] if runs else "", "lines": len(lines)}
    units = dict.fromkeys(line["unit"] for line in lines if line["what"] == RELEASE)
    return {
        **told,
        "runs": len({line["run"] for line in runs}),
        "bytes_booked": sum(sent.values()),
        "units": [_of_unit(unit, lines) for unit in units],
    }


def _of_unit(unit: str, lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What was spent of a unit: epsilon at the delta of its last booking, and of what budget that was."""
    last = next(line for line in reversed(lines) if line["what"] == RELEASE and line["unit"] == unit)
    totals, budget = SpentTotals.of(lines), Budget(unit, last["of"], last["delta"])
    told: dict[str, Any] = {"unit": unit, "meaning": UNITS[unit].meaning, "budget": budget.epsilon}
    if unit == EDGE:
        epsilon, delta = totals.pair()
        return {**told, "epsilon": epsilon, "delta": delta, "releases": []}
    by_noise = [
        {"noise": describe((how[0],)), "releases": count, "room": totals.room(budget, how)}
        for how, count in totals.releases[unit].items()
    ]
    return {**told, "epsilon": totals.spent(budget), "delta": budget.delta, "releases": by_noise}
