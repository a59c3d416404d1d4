"""A judge: one way of scoring a run, the parameters selected by it, and its verdict at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from isthmus.train.metrics import Scores
from isthmus.train.scorers import Scorer
from isthmus.train.select import Best


@dataclass
class Judge:
    """One way of scoring (``how``, a name of ``core.kinds.SCORES``), with a selection of its own.

    A run has several where one training is to be scored in several ways: parameters are selected by each of them.
    """

    how: str
    scorer: Scorer
    best: Best


@dataclass(frozen=True)
class Verdict:
    """Scores of the parameters that one way of scoring selected, scored in that way."""

    how: str
    valid: Scores | None
    test: Scores
    best_epoch: list[int]
    alerts: dict[str, Any] = field(default_factory=dict)  # of two classes, figures on the highest scores of this host
