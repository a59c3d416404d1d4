"""Which policy each silo has: the file in the folder of its part, else the one that was named, else ``open``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from isthmus.policy.reading import read_policy
from isthmus.policy.rules import Rules

FILE, ACCOUNT, ACCOUNTS = "policy.toml", "account.jsonl", "accounts"


def policies_of(names: Mapping[int, str], parts: Path | None, named: str) -> dict[int, Rules]:
    """The policy of each silo {number: name}; ``parts`` holds a folder for each, ``named`` is a file or a preset."""
    other = read_policy(named) if named else Rules()
    found = {}
    for silo, name in names.items():
        own = None if parts is None else parts / name / FILE
        found[silo] = read_policy(str(own)) if own is not None and own.is_file() else other
    return found


def note_on_open(names: Mapping[int, str], parts: Path, named: str) -> str:
    """A note on silos without a policy; empty where every one has one, or one was named for all."""
    without = [name for name in names.values() if not (parts / name / FILE).is_file()]
    if named or not without:
        return ""
    return (
        f"No {FILE} in the folders of {len(without)} of {len(names)} silos of this host: the policy of these parties "
        "is 'open', which refuses nothing."
    )


def account_of(rules: Rules, name: str, parts: Path | None, out: Path) -> Path:
    """Where the account of a silo lies.

    In the folder that its policy names, else in the folder of its part, else in ``accounts`` beside the run folder.
    """
    if rules.account:
        return Path(rules.source).parent / rules.account / f"{name}.jsonl"
    if parts is not None:
        return parts / name / ACCOUNT
    return out.absolute().parent / ACCOUNTS / f"{name}.jsonl"
