"""Who took part in a run, as far as each party has shown it: by which certificate, and under which policy."""

from __future__ import annotations

from isthmus.report.disclosure import wire_words
from isthmus.runs.folder import RunFolder
from isthmus.runs.summary import fact
from isthmus.runs.text import list_names

_SHOWN = len("SHA256:") + 8 * 3 - 1  # letters of a fingerprint: eight bytes of it


def wire_and_parties(folder: RunFolder) -> str:
    """Sentences on how the wire was secured, on the certificates of parties, and on whose policies were asked."""
    told = fact(folder, "parties", {})
    shown = [f"{name} ({each['certificate'][:_SHOWN]}…)" for name, each in told.items() if "certificate" in each]
    ruled = [name for name, each in told.items() if each.get("permits", "open") != "open"]
    words = [wire_words(folder)]
    if shown:
        words.append(f"Parties showed certificates: {', '.join(shown)}; metrics.json has the whole fingerprints.")
    if ruled:
        words.append(
            f"{list_names(ruled)} let leave what a policy of {'its' if len(ruled) == 1 else 'their'} own permits."
        )
    return " ".join(filter(None, words))
