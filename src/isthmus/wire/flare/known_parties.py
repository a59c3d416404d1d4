"""The certificates by which a party knows the others: kept when it first meets them, or given by their fingerprint."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import tomli_w

from isthmus.core.errors import IsthmusError, PeerError
from isthmus.core.files import write_atomic

FILE = "known_parties.toml"
_FORM = re.compile(r"SHA256:[0-9A-F]{2}(:[0-9A-F]{2}){31}")
_HEAD = """# The certificates by which this party knows the others, by the name in each. One that is not listed is added
# when it is first met; one that differs from its line is refused. Compare these with what their owners read to you.
"""


class KnownParties:
    """The fingerprints in a file of a party's own: {name: fingerprint}."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fingerprints: dict[str, str] = {}
        if path.is_file():
            self.fingerprints = {name: _checked(name, each) for name, each in _listed(path).items()}

    def pin(self, named: Mapping[str, str]) -> None:
        """Take fingerprints as the right ones, in the place of others, and write them down."""
        self._keep({**self.fingerprints, **{name: _checked(name, each) for name, each in named.items()}})

    def meet(self, shown: Mapping[str, str]) -> None:
        """Refuse a fingerprint that is not the one that is known of a party; write down those of new parties."""
        for name, found in shown.items():
            known = self.fingerprints.get(name, found)
            if known != found:
                raise PeerError(
                    f"{name} shows another certificate than the one by which this party knows it: {found} instead of "
                    f"{known}. Nothing has crossed. Ask {name}, by telephone, which is right; if it has a new "
                    f"certificate, run 'isthmus flare site' again with --pin {name}={found}."
                )
        self._keep({**shown, **self.fingerprints})

    def _keep(self, fingerprints: Mapping[str, str]) -> None:
        if fingerprints != self.fingerprints:
            self.fingerprints = dict(sorted(fingerprints.items()))
            write_atomic(self.path, (_HEAD + tomli_w.dumps({"fingerprints": self.fingerprints})).encode())


def parse_pins(given: list[str]) -> dict[str, str]:
    """The fingerprints of ``NAME=SHA256:...``, colons or none, small letters or capitals."""
    found = {}
    for each in given:
        name, sign, fingerprint = each.partition("=")
        if not name or not sign:
            raise IsthmusError(f"--pin {each} names no party; write --pin NAME=SHA256:AB:CD:..., once for each.")
        found[name] = _checked(name, fingerprint)
    return found


def _listed(path: Path) -> dict[str, str]:
    try:
        told = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise IsthmusError(f"'{path}' cannot be read ({error}); mend it, or delete it to meet all anew.") from error
    found = told.get("fingerprints", {})
    if set(told) - {"fingerprints"} or not isinstance(found, dict):
        raise IsthmusError(f"'{path}' must hold one table, [fingerprints], with lines like bank-b = \"SHA256:...\".")
    return found


def _checked(name: str, given: object) -> str:
    """A fingerprint as it is printed everywhere."""
    text = str(given).strip().upper()
    if ":" not in text.removeprefix("SHA256:"):
        digits = text.removeprefix("SHA256:")
        text = "SHA256:" + ":".join(digits[at : at + 2] for at in range(0, len(digits), 2))
    text = text if text.startswith("SHA256:") else f"SHA256:{text}"
    if not _FORM.fullmatch(text):
        raise IsthmusError(
            f"'{given}' is no fingerprint of {name}'s certificate: SHA256: and 32 pairs of digits, as 'isthmus flare "
            "site' prints it there."
        )
    return text
