"""Lists of laundering attempts in the public format, and the shapes that attempts claim to have."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Attempt:
    """One attempt of a file: its type, what the file says behind it, and its lines."""

    kind: str
    title: str
    lines: list[str]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Payer and payee of each transaction."""
        cells = [line.split(",") for line in self.lines]
        return [(f"{c[1]}:{c[2]}", f"{c[3]}:{c[4]}") for c in cells]

    @property
    def times(self) -> list[str]:
        return [line.split(",")[0] for line in self.lines]


def read_attempts(path: Path) -> list[Attempt]:
    """The public format: lines between BEGIN and END, and nothing else but empty lines."""
    found = []
    for block in path.read_text().strip().split("\n\n"):
        first, *lines, last = block.splitlines()
        begin = re.fullmatch(r"BEGIN LAUNDERING ATTEMPT - ([A-Z-]+)(.*)", first)
        assert begin and last == f"END LAUNDERING ATTEMPT - {begin[1]}", block
        found.append(Attempt(begin[1], begin[2], lines))
    return found


def outs(attempt: Attempt) -> Counter[str]:
    return Counter(payer for payer, _ in attempt.pairs)


def ins(attempt: Attempt) -> Counter[str]:
    return Counter(payee for _, payee in attempt.pairs)


def is_chain(pairs: list[tuple[str, str]]) -> bool:
    return all(before[1] == after[0] for before, after in zip(pairs, pairs[1:], strict=False))


def is_fan(counts: Counter[str], others: Counter[str], size: int) -> bool:
    """One account on the side of ``counts``, and as many others as transactions."""
    return list(counts.values()) == [size] and len(others) == size and not set(counts) & set(others)


def halves(attempt: Attempt) -> tuple[Attempt, Attempt]:
    half = len(attempt.lines) // 2
    return Attempt("", "", attempt.lines[:half]), Attempt("", "", attempt.lines[half:])


def hub_of(attempt: Attempt, width: int) -> tuple[Attempt, Attempt]:
    return Attempt("", "", attempt.lines[:width]), Attempt("", "", attempt.lines[width:])


def fits(attempt: Attempt) -> bool:
    """Whether an attempt has the shape that it claims."""
    pairs, size = attempt.pairs, len(attempt.lines)
    width = int(re.sub(r"\D", "", attempt.title) or 0)
    first, second = hub_of(attempt, width) if attempt.kind == "GATHER-SCATTER" else halves(attempt)
    match attempt.kind:
        case "FAN-OUT":
            return is_fan(outs(attempt), ins(attempt), size) and width == size
        case "FAN-IN":
            return is_fan(ins(attempt), outs(attempt), size) and width == size
        case "CYCLE":
            return is_chain([*pairs, pairs[0]]) and len(outs(attempt)) == size == width
        case "RANDOM":
            return is_chain(pairs) and len(outs(attempt) | ins(attempt)) == size + 1 and width == size
        case "BIPARTITE":
            return len(outs(attempt) | ins(attempt)) == 2 * size
        case "STACK":
            middle = set(ins(first)) == set(outs(second))
            return middle and len(outs(attempt) | ins(attempt)) == 3 * size // 2 and max(outs(attempt).values()) == 1
        case "SCATTER-GATHER":
            fans = is_fan(outs(first), ins(first), size // 2) and is_fan(ins(second), outs(second), size // 2)
            return fans and set(ins(first)) == set(outs(second)) and not set(outs(first)) & set(ins(second))
        case "GATHER-SCATTER":
            fans = is_fan(ins(first), outs(first), width) and is_fan(outs(second), ins(second), size - width)
            return fans and set(ins(first)) == set(outs(second)) and not set(outs(first)) & set(ins(second))
    return False
