"""The ledger explorer: the lines of a ledger that a filter lets through, a page at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from isthmus.core.errors import IsthmusError
from isthmus.runs.text import party_order

if TYPE_CHECKING:
    import pyarrow as pa

WORDS = ("kind", "sender", "receiver", "purpose")
SHOWN = ("epoch", "step", "purpose", "sender", "receiver", "kind", "event", "model", "messages", "rows", "bytes")
LINES = 100  # of a page
_LAST_STEP = 2**62


@dataclass(frozen=True)
class Filter:
    """Which lines are asked for: words that must be equal (empty: any), a range of steps, and the page."""

    kind: str = ""
    sender: str = ""
    receiver: str = ""
    purpose: str = ""
    first: int | None = None
    last: int | None = None
    page: int = 1

    @staticmethod
    def of(asked: Mapping[str, str]) -> Filter:
        """The filter in an address; raises in words for steps and pages that are no numbers."""
        words = {name: asked.get(name, "")[:500] for name in WORDS}
        first, last = (_number(asked.get(name, ""), what) for name, what in (("from", "first"), ("to", "last")))
        if first is not None and last is not None and first > last:
            raise IsthmusError(f"The first step is {first:,} and the last is {last:,}: exchange them.")
        return Filter(**words, first=first, last=last, page=max(_number(asked.get("page", ""), "page") or 1, 1))

    def parameters(self, **changes: Any) -> dict[str, str]:
        """The filter as an address has it, with some changes, and without what is not asked for."""
        now = replace(self, **changes)
        named = {**{name: getattr(now, name) for name in WORDS}, "from": now.first, "to": now.last, "page": now.page}
        named["page"] = now.page if now.page > 1 else None
        return {name: str(value) for name, value in named.items() if value not in (None, "")}


@dataclass(frozen=True)
class LedgerPage:
    """A page of lines, and sums over all lines that the filter lets through."""

    rows: list[dict[str, Any]]
    count: int
    messages: int
    node_rows: int
    bytes: int
    page: int
    pages: int


def choices(table: pa.Table) -> dict[str, list[str]]:
    """What can be chosen in each filter of words."""
    import pyarrow.compute as pc

    found = {name: sorted(each for each in pc.unique(table[name]).to_pylist() if each) for name in WORDS}
    return {**found, **{name: sorted(found[name], key=party_order) for name in ("sender", "receiver")}}


def lines(table: pa.Table, asked: Filter) -> LedgerPage:
    """The lines of a ledger that a filter lets through."""
    import pyarrow.compute as pc

    tests = [pc.equal(table[name], getattr(asked, name)) for name in WORDS if getattr(asked, name)]
    tests += [pc.greater_equal(table["step"], asked.first)] if asked.first is not None else []
    tests += [pc.less_equal(table["step"], asked.last)] if asked.last is not None else []
    for test in tests[1:]:
        tests[0] = pc.and_(tests[0], test)
    found = table.filter(tests[0]) if tests else table
    pages = max(-(-len(found) // LINES), 1)
    page = min(asked.page, pages)
    here = found.slice((page - 1) * LINES, LINES).select([name for name in SHOWN if name in found.column_names])
    messages, rows, size = (pc.sum(found[name]).as_py() or 0 for name in ("messages", "rows", "bytes"))
    return LedgerPage(here.to_pylist(), len(found), messages, rows, size, page, pages)


def _number(text: str, what: str) -> int | None:
    """A whole number from a field of a form; None of an empty one."""
    text = text.strip().replace(",", "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or int(text[:20]) > _LAST_STEP:
        kind = "page" if what == "page" else f"{what} step"
        raise IsthmusError(f"The {kind} is '{text[:40]}'; give a whole number, like 10, or leave it empty.")
    return int(text)
