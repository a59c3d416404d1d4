"""Columns of a table as features: numbers, words of which each becomes a feature, gaps that are marked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from isthmus.core.attempts import attempt
from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.name_lists import some_of
from isthmus.data.cells import MISSING, Numbers, gaps_in, numbers_in_text, trimmed
from isthmus.data.columns import lists, numbers
from isthmus.data.tables import ArrowColumn, Sheet, as_text, is_list, is_number, is_text
from isthmus.graph.encoding import EMPTY, NUMBER, UNUSED, WORDS, Encoding, TableColumn, feature_names, folded

IMPUTE, REFUSE = "impute", "refuse"
ALIKE_FROM = 5  # rows from which on a column can be told to be constant; of fewer its value would be that of a node


@dataclass(frozen=True)
class Reading:
    """How columns become features, where that is a choice.

    A column of words has a feature for each, if they are at most ``categories`` (0: words are never features).
    ``missing`` cells are filled with the mean of the others and marked (``impute``), or refused. ``words``: columns
    that are words whatever they look like, such as codes of digits, and however many of them a table has. A word in
    fewer rows of a table than ``rarest`` is none of its words, so that no other silo hears of it, and a label that
    fewer rows have is refused.
    """

    categories: int = 20
    missing: str = IMPUTE
    words: tuple[str, ...] = ()
    rarest: int = 1

    def check(self) -> Reading:
        """Raise for a value that is not allowed; returns the choices themselves."""
        if self.categories < 0:
            raise IsthmusError(f"data.categories is {self.categories}; it must be 0 or more.")
        if isinstance(self.rarest, bool) or not isinstance(self.rarest, int) or self.rarest < 1:
            raise IsthmusError(f"data.rarest is {self.rarest!r}; it must be a whole number of rows, 1 or more.")
        if self.missing not in (IMPUTE, REFUSE):
            raise unknown("data.missing", self.missing, (IMPUTE, REFUSE))
        return self

    def check_words(self, *sheets: Sheet) -> None:
        """Raise for a column of words that no table has."""
        names = {name for sheet in sheets for name in sheet.names}
        for word in self.words:
            if word not in names:
                raise unknown("column of words (data.words)", word, names)


@dataclass(frozen=True)
class TableFeatures:
    """The features of a table [rows, features] float32, the columns that they come from, and sentences on them."""

    x: Tensor
    columns: Encoding
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all features."""
        return feature_names(self.columns)

    @property
    def encoding(self) -> Encoding:
        """The columns; nothing where each is numbers without gaps, so that features need no encoding."""
        return () if all(column.plain for column in self.columns) else self.columns


@dataclass(frozen=True)
class _Found:
    """One column: what it is, its features [rows, features], how its cells are written, if not as usual.

    ``rare``: how many cells have a word that too few rows have. ``respelt``: how many cells are written otherwise, in
    case or blanks around them alone, than most cells of the same word.
    """

    column: TableColumn
    values: np.ndarray
    how: str = ""
    rare: int = 0
    respelt: int = 0


def table_features(sheet: Sheet, without: Sequence[str], reading: Reading) -> TableFeatures:
    """All columns but those named in ``without`` as features."""
    found: list[_Found] = []
    nothing = np.empty((len(sheet.table), 0), dtype=np.float32)
    for name in sheet.names:
        if name not in without:
            found += attempt(partial(_read, sheet, name, reading), [_Found(TableColumn(name, UNUSED), nothing)])
    x = np.concatenate([nothing, *(each.values for each in found)], axis=1)
    columns = tuple(each.column for each in found)
    return TableFeatures(torch.from_numpy(x), columns, tuple(_notes(sheet, found, reading)))


def _read(sheet: Sheet, name: str, reading: Reading) -> list[_Found]:
    """One column; one of lists holds several of numbers."""
    column = sheet.table[name]
    if name == "x" and is_list(column) and len(column):
        values = lists(sheet, name)
        return [_Found(TableColumn(f"x{at}"), values[:, at : at + 1]) for at in range(values.shape[1])]
    if name in reading.words and (is_number(column) or is_text(column)):
        return [_of_words(sheet, name, reading)]
    if is_number(column):
        return [_of_numbers(sheet, name, numbers(sheet, name), reading)]
    if is_text(column):
        said = numbers_in_text(sheet, name)
        return [_of_words(sheet, name, reading) if said is None else _of_said(sheet, name, said, reading)]
    return [_unused(sheet, name, f"it holds {_kind(column)}, which are neither numbers nor words")]


def _kind(column: ArrowColumn) -> str:
    """What a column holds that is neither numbers nor words, as people call it."""
    from pyarrow import types

    if types.is_date(column.type) or types.is_timestamp(column.type):
        return "dates"
    return "times of day" if types.is_time(column.type) else f"values of the type {column.type}"


def _unused(sheet: Sheet, name: str, why: str) -> _Found:
    return _Found(TableColumn(name, UNUSED, why=why), np.empty((len(sheet.table), 0), dtype=np.float32))


def _of_said(sheet: Sheet, name: str, said: Numbers, reading: Reading) -> _Found:
    """A column of numbers that are typed as text."""
    found = _of_numbers(sheet, name, said.values.astype(np.float32), reading)
    return replace(found, how=said.how or "numbers that are typed as text")


def _of_numbers(sheet: Sheet, name: str, values: np.ndarray, reading: Reading) -> _Found:
    """A column of numbers [rows], NaN in gaps, which are filled with the mean of the others and marked."""
    gaps = np.isnan(values)
    if gaps.any() and reading.missing == REFUSE:
        raise sheet.wrong(
            name, int(np.argmax(gaps)), "a missing value cannot be a feature", "fill or remove such rows, or set "
            "data.missing=impute"
        )  # fmt: skip
    if gaps.all() and len(values):
        return replace(_unused(sheet, name, "all its cells are empty"), column=TableColumn(name, EMPTY, gaps=True))
    fill = float(np.float32(values[~gaps].astype(np.float64).mean())) if gaps.any() else 0.0
    filled = np.where(gaps, np.float32(fill), values).astype(np.float32)
    features = [filled, gaps.astype(np.float32)] if gaps.any() else [filled]
    alike = not gaps.any() and len(filled) >= ALIKE_FROM and bool((filled == filled[0]).all())
    return _Found(TableColumn(name, NUMBER, gaps=bool(gaps.any()), fill=fill, constant=alike), np.stack(features, 1))


def _of_words(sheet: Sheet, name: str, reading: Reading) -> _Found:
    """A column of words: a feature for each, and one for gaps; too many words are no feature."""
    from pyarrow import compute

    text = trimmed(sheet, name)
    gaps = gaps_in(text, MISSING)
    spelt = [word for word in compute.unique(text).to_pylist() if word and word.lower() not in MISSING]
    by_fold: dict[str, str] = {}
    for word in sorted(spelt):
        by_fold.setdefault(folded(word), word)
    rows = int((~gaps).sum())
    if not by_fold:
        return replace(_unused(sheet, name, ""), column=TableColumn(name, EMPTY, gaps=True))
    words, rare = _frequent(text.to_pylist(), by_fold, reading.rarest)
    if not words:
        return _unused(sheet, name, f"each of its words is in fewer rows than data.rarest = {reading.rarest}")
    if len(words) > reading.categories and name not in reading.words:
        limit = f"data.categories = {reading.categories}"
        return _unused(sheet, name, f"it has {len(words):,} different words, and {limit} is the most")
    if 2 * len(words) > rows and name not in reading.words:
        return _unused(sheet, name, f"it has {len(words):,} different words in {rows:,} rows")
    if gaps.any() and reading.missing == REFUSE:
        row = int(np.argmax(gaps))
        raise sheet.wrong(name, row, "a missing word", "fill or remove such rows, or set data.missing=impute")
    codes = {folded(word): at for at, word in enumerate(words)}
    place = np.array([codes.get(folded(cell or ""), len(words)) for cell in text.to_pylist()], dtype=np.int64)
    values = np.eye(len(words) + 1, dtype=np.float32)[place]
    values[:, -1] = gaps
    alike = len(words) == 1 and not gaps.any() and not rare and len(sheet.table) >= ALIKE_FROM
    found = TableColumn(name, WORDS, words, gaps=bool(gaps.any()), constant=alike)
    kept = values if gaps.any() else values[:, :-1]
    return _Found(found, kept, rare=rare, respelt=_respelt(as_text(sheet, name).to_pylist(), codes))


def _respelt(cells: Sequence[str | None], words: Container[str]) -> int:
    """How many cells of ``words`` differ, in case or blanks around them alone, from how most cells have their word."""
    spellings: dict[str, Counter[str]] = {}
    for cell in cells:
        if cell and folded(cell) in words:
            spellings.setdefault(folded(cell), Counter())[cell] += 1
    return sum(count.total() - max(count.values()) for count in spellings.values())


def _frequent(cells: Sequence[str | None], by_fold: Mapping[str, str], rarest: int) -> tuple[tuple[str, ...], int]:
    """The words in at least ``rarest`` cells, and how many cells have other words."""
    rows = Counter(folded(cell or "") for cell in cells)
    kept = tuple(word for fold, word in by_fold.items() if rows[fold] >= rarest)
    return kept, sum(rows[fold] for fold in by_fold if rows[fold] < rarest)


def _notes(sheet: Sheet, found: Sequence[_Found], reading: Reading) -> list[str]:
    """Sentences on columns that are not simply numbers: what they became, and which are no features."""
    notes = [sheet.note] if sheet.note else []
    notes += [f"{sheet.path}: column '{each.column.name}' has {each.how}." for each in found if each.how]
    columns = [each.column for each in found]
    words = [f"'{each.name}' ({', '.join(each.words)})" for each in columns if each.kind == WORDS and not each.constant]
    notes += [f"{sheet.path}: a feature for each word of {some_of(words)}."] if words else []
    rare = [f"'{each.column.name}' ({each.rare:,})" for each in found if each.rare]
    notes += (
        [f"{sheet.path}: words in fewer rows than data.rarest are none of the words of {some_of(rare)}."]
        if rare
        else []
    )
    respelt = [f"'{each.column.name}' ({each.respelt:,})" for each in found if each.respelt]
    alike = "cells whose words differ from others in case or blanks alone are taken for the same word"
    notes += [f"{sheet.path}: {alike}: {some_of(respelt)}."] if respelt else []
    marked = [each for each in found if each.column.gaps and each.column.features]
    gaps = [f"'{each.column.name}' ({int(each.values[:, -1].sum()):,})" for each in marked]
    filled = "numbers are filled with their column's mean, and a feature marks each gap"
    notes += [f"{sheet.path}: cells are missing in {some_of(gaps)}: {filled}."] if gaps else []
    for each in columns:
        if each.kind in (UNUSED, EMPTY) and len(sheet.table):
            notes.append(f"{sheet.path}: column '{each.name}' is no feature: {each.why or 'all its cells are empty'}.")
    return notes
