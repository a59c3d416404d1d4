"""What ``isthmus flare demo`` tells at its end."""

from __future__ import annotations

from isthmus.commands.flare.demo import Outcome

_SHOWN = ("model.safetensors", "report.html", "ledger.parquet", "metrics.json")


def tell(outcome: Outcome) -> list[str]:
    """Lines on the losses, on what everybody has been left with, on the server's place and on the time."""
    lines = [
        f"{outcome.losses} losses equal those of one process: the largest relative difference is "
        f"{outcome.difference:.1e}."
    ]
    for name, folder in outcome.folders.items():
        left = [file for file in _SHOWN if (folder / file).is_file()]
        left += sorted(path.name for path in folder.glob("model-*.safetensors"))
        lines.append(f"{name}: {', '.join(left)} in {folder}")
    beside = outcome.metrics["server"]["beside"]
    where = (
        f"at the site of {', '.join(beside)}, who sees what it sees"
        if beside
        else "in FLARE's server job, beside no bank"
    )
    lines.append(f"The Isthmus server ran {where}.")
    each = ", ".join(f"{what} {seconds:.0f} s" for what, seconds in outcome.seconds.items())
    return [*lines, f"{sum(outcome.seconds.values()):.0f} s in all ({each})."]
