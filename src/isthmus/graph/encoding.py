"""How the columns of a table become features: numbers as they are, a feature for each word, and one for gaps.

Silos read their tables alone, each with the words and gaps of its own rows. Once all have agreed on the columns, every
silo recodes its features: words that it lacks are 0 in all its rows, and gaps are filled with the same number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

NUMBER, WORDS, EMPTY, UNUSED = "number", "words", "empty", "unused"
KINDS = (NUMBER, WORDS, EMPTY, UNUSED)


@dataclass(frozen=True)
class TableColumn:
    """One column: numbers, words (a feature for each), nothing (``empty``, which fits all), or not used, and ``why``.

    ``gaps``: cells are missing, and a feature marks them; those of numbers are filled with ``fill``. In what a run has
    written down of columns it is None where each silo used a mean of its own. ``constant``: all cells of the silo's
    table are alike, so that the column is no feature if it is so, with the same value, in all silos.
    """

    name: str
    kind: str = NUMBER
    words: tuple[str, ...] = ()
    gaps: bool = False
    fill: float | None = 0.0
    why: str = ""
    constant: bool = False

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that the column becomes."""
        own = {NUMBER: (self.name,), WORDS: tuple(f"{self.name}={word}" for word in self.words)}.get(self.kind, ())
        return (*own, f"{self.name} missing") if self.gaps and self.kind in (NUMBER, WORDS) else own

    @property
    def plain(self) -> bool:
        """Whether the column is numbers without gaps that differ, which need no encoding."""
        return self.kind == NUMBER and not self.gaps and not self.constant


Encoding = tuple[TableColumn, ...]  # () where every feature is a column of numbers


def feature_names(columns: Encoding) -> tuple[str, ...]:
    """Names of all features that columns become, in order."""
    return tuple(name for column in columns for name in column.features)


def plain_columns(names: Sequence[str], rows: int) -> Encoding:
    """Columns of numbers without gaps, by the names of their features; of a table without rows nothing is known."""
    return tuple(TableColumn(name, NUMBER if rows else EMPTY) for name in names)


def as_columns(told: Sequence[Mapping[str, Any]]) -> Encoding:
    """Columns from what :func:`told_columns` made of them."""
    return tuple(TableColumn(**{**each, "words": tuple(each["words"])}) for each in told)


def told_columns(columns: Encoding) -> list[dict[str, Any]]:
    """Columns as JSON."""
    return [{**asdict(column), "words": list(column.words)} for column in columns]


def folded(word: str) -> str:
    """What words that differ in case or in blanks around them alone have in common."""
    return word.strip().casefold()


def source_columns(names: Sequence[str], columns: Encoding) -> tuple[str, ...]:
    """The columns that features come from, each once; without an encoding they are the features themselves."""
    of = {feature: column.name for column in columns for feature in column.features}
    return tuple(dict.fromkeys(of.get(name, name) for name in names))


def recode(x: Tensor, mine: Encoding, agreed: Encoding) -> Tensor:
    """Features [rows, of mine] as [rows, of agreed]: columns in the agreed order, and with the agreed words."""
    known = {column.name: column for column in mine}
    place = {name: at for at, name in enumerate(feature_names(mine))}
    parts = [_recoded(x, known[column.name], column, place) for column in agreed]
    return torch.cat([x[:, :0], *parts], 1)


def _recoded(x: Tensor, mine: TableColumn, agreed: TableColumn, place: Mapping[str, int]) -> Tensor:
    """The features of one column as agreed."""
    marked = f"{mine.name} missing"
    missing = x[:, [place[marked]]] if marked in place and mine.gaps else torch.full_like(x[:, :1], mine.kind == EMPTY)
    if agreed.kind == NUMBER:
        value = x[:, [place[mine.name]]] if mine.kind == NUMBER else torch.zeros_like(missing)
        fill = agreed.fill if agreed.gaps and agreed.fill is not None else mine.fill
        own = torch.where(missing > 0, float(fill or 0.0), value)
    elif agreed.kind == WORDS:
        at = {folded(word): place[f"{mine.name}={word}"] for word in mine.words if mine.kind == WORDS}
        nobody = torch.zeros_like(missing)
        words = [x[:, [at[folded(word)]]] if folded(word) in at else nobody for word in agreed.words]
        own = torch.cat([x[:, :0], *words], 1)
    else:
        return x[:, :0]
    return torch.cat([own, missing], 1) if agreed.gaps else own


def fills_of(x: Tensor, columns: Encoding) -> Tensor:
    """For each column of numbers with gaps the sum of its known values, and how many they are: [columns, 2]."""
    place = {name: at for at, name in enumerate(feature_names(columns))}
    sums = []
    for column in columns:
        if column.kind == NUMBER and column.gaps:
            known = x[:, place[f"{column.name} missing"]] == 0
            sums.append([float(x[known, place[column.name]].double().sum()), float(known.sum())])
    return torch.tensor(sums, dtype=torch.float64).reshape(-1, 2)


def with_fills(columns: Encoding, sums: Tensor) -> Encoding:
    """Columns whose gaps are filled with the means of what :func:`fills_of` has summed, as float32 holds them."""
    means = iter((sums[:, 0] / sums[:, 1].clamp(min=1)).float().tolist())
    return tuple(
        replace(column, fill=next(means)) if column.kind == NUMBER and column.gaps else column for column in columns
    )
