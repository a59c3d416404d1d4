"""Lists of names in sentences that people read."""

from collections.abc import Sequence


def some_of(names: Sequence[str], most: int = 8) -> str:
    """Names with commas between them; of more than ``most`` the first ones, and how many others there are."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} others"
