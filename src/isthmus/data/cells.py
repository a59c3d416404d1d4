"""Numbers in columns of text: which of several ways of writing them a column has, and which cells are gaps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from isthmus.data.tables import Sheet, as_text

# How programs and people write that there is nothing.
MISSING = ("na", "n/a", "#n/a", "<na>", "nan", "-nan", "nat", "null", "-", "--", "?", ".")
MAYBE = ("none", "missing", "unknown")  # words that may be a class of their own, and mostly are none
GAPS = (*MISSING, *MAYBE)
NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
CODE = r"^0[0-9]+$"  # digits that are a name, such as 01234
SPELT_OTHERWISE = r"^[+-]?[0-9]{1,3}([ .,'’\x{a0}][0-9]{3})*[.,]?[0-9]*\s*%?$"  # 25,5 or 1.234,56 or 12 %
_BLANK = r"[ '’\x{a0}\x{202f}]"
COMMA = rf"^[+-]?([0-9]+|[0-9]{{1,3}}(\.[0-9]{{3}})+|[0-9]{{1,3}}({_BLANK}[0-9]{{3}})+)(,[0-9]*)?$"
POINT = rf"^[+-]?([0-9]+|[0-9]{{1,3}}(,[0-9]{{3}})+|[0-9]{{1,3}}({_BLANK}[0-9]{{3}})+)(\.[0-9]*)?([eE][+-]?[0-9]+)?$"
UNCLEAR = r"^[+-]?[0-9]{1,3}[.,][0-9]{3}$"  # 1,234 and 1.234 are each a number in one country and another elsewhere
SETTLED = {  # cells that show what points, or commas, between three digits stand for in their column
    ".": r"^[+-]?[0-9]{1,3}((\.[0-9]{3})+,[0-9]*|(\.[0-9]{3}){2,})$",
    ",": r"^[+-]?[0-9]{1,3}((,[0-9]{3})+\.[0-9]*|(,[0-9]{3}){2,})$",
}


@dataclass(frozen=True)
class Numbers:
    """What a column of text says as numbers: [rows] float64, NaN in gaps, and how they are written (empty: usually)."""

    values: np.ndarray
    how: str = ""


def gaps_in(text: Any, words: tuple[str, ...] = GAPS) -> np.ndarray:
    """Which cells of a column of text are empty or a word for nothing: [rows] bool."""
    import pyarrow as pa
    from pyarrow import compute

    known = compute.is_in(compute.utf8_lower(text), value_set=pa.array(["", *words], pa.string()))
    found: np.ndarray = known.to_numpy()
    return found


def trimmed(sheet: Sheet, name: str) -> Any:
    """A column as text without blanks around it; empty where a cell is missing."""
    from pyarrow import compute

    return compute.utf8_trim_whitespace(as_text(sheet, name).fill_null(""))


def numbers_in_text(sheet: Sheet, name: str) -> Numbers | None:
    """The numbers that a column of text holds; None for one of words. Raises, by row, for one that is neither."""
    from pyarrow import compute

    text = trimmed(sheet, name)
    filled = ~gaps_in(text)
    told = int(filled.sum())

    def are(pattern: str) -> np.ndarray:
        found: np.ndarray = compute.match_substring_regex(text, pattern).to_numpy() & filled
        return found

    plain = are(NUMBER)
    if not told or are(CODE).any():
        return None
    if plain.sum() == told:
        return Numbers(_read(text, filled, comma=~filled), _nothings(text, filled))
    comma, point = are(COMMA), are(POINT)
    meant = plain | comma | point | are(SPELT_OTHERWISE)
    if 2 * meant.sum() < told:
        return None
    odd = filled & ~plain & ~comma & ~point
    if odd.any():
        row = int(np.argmax(odd))
        what = f"'{text[row].as_py()}' is not a number, while {int((filled & ~odd).sum()):,} of {told:,} cells are"
        raise sheet.wrong(name, row, what, f"write it like 1234.5 or leave it empty; {_as_attribute(sheet, name)}")
    unclear = _unclear(are, comma & ~point, point & ~comma)
    if unclear.any():
        said = text[int(np.argmax(unclear))].as_py()
        whole, part = said.replace(",", "").replace(".", ""), said.replace(",", ".")
        todo = f"write every number of the column like 1234.5; {_as_attribute(sheet, name)}"
        raise sheet.wrong(name, int(np.argmax(unclear)), f"'{said}' may be {whole} or {part}", todo)
    by_comma = filled if _all_by(comma, point, filled) else comma & ~point
    how = filter(None, (_how(by_comma & are(",")), _nothings(text, filled)))
    return Numbers(_read(text, filled, by_comma), " and ".join(how))


def _all_by(comma: np.ndarray, point: np.ndarray, filled: np.ndarray) -> bool:
    """Whether every cell can be read with a decimal comma, and some in no other way."""
    return bool(comma[filled].all() and (comma & ~point).any())


def _unclear(are: Callable[[str], np.ndarray], by_comma: np.ndarray, by_point: np.ndarray) -> np.ndarray:
    """Cells such as 1,234 that may be two numbers, where no other cell of the column shows which: [rows] bool."""
    cells = are(UNCLEAR)
    one_way = bool(by_comma.any()) != bool(by_point.any())
    if not one_way:
        return cells
    between = "." if by_comma.any() else ","  # the mark between thousands, if the other one is the decimal mark
    found: np.ndarray = cells & are(rf"[{between}]") & (not are(SETTLED[between]).any())
    return found


def _nothings(text: Any, filled: np.ndarray) -> str:
    """How cells are written that stand for nothing; empty where they are empty."""
    words = [cell for cell, known in zip(text.to_pylist(), filled.tolist(), strict=True) if cell and not known]
    return f"{len(words):,} cells such as '{words[0]}' that stand for nothing" if words else ""


def _as_attribute(sheet: Sheet, name: str) -> str:
    """How a column is kept from being a feature: in a part by its silo.toml, else by an option."""
    toml = sheet.path.parent / "silo.toml"
    if toml.is_file():
        return f"list it as attributes in the [schema] of {toml} if the column is no feature"
    return f"use --set data.attributes={name} if the column is no feature"


def _read(text: Any, filled: np.ndarray, comma: np.ndarray) -> np.ndarray:
    """Cells as numbers, NaN where they are not ``filled``; those with a decimal ``comma`` are told."""
    cells = text.to_pylist()
    blanks = dict.fromkeys(map(ord, " '’\u00a0\u202f"))
    out = np.full(len(cells), np.nan)
    for row in np.flatnonzero(filled):
        cell = cells[row].translate(blanks)
        out[row] = float(cell.replace(".", "").replace(",", ".") if comma[row] else cell.replace(",", ""))
    return out


def _how(comma: np.ndarray) -> str:
    """How numbers are written that are not written as usual; no cell is told, as notes may cross."""
    if comma.any():
        return f"{int(comma.sum()):,} numbers with a decimal comma"
    return "numbers with marks between thousands"
