"""The result of a run: the parameters that validation selected, and their scores on the test split, read once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from isthmus.core.kinds import SCORES, TESTS, Purpose
from isthmus.core.name_lists import some_of
from isthmus.graph.graph import TEST, VALID
from isthmus.train.alert_figures import AlertSettings, alert_figures
from isthmus.train.constant import note_on_constant
from isthmus.train.evaluate import evaluate
from isthmus.train.judge import Judge, Verdict
from isthmus.train.metrics import Scores
from isthmus.train.select import Best
from isthmus.train.training import Training
from isthmus.wire.wire import Wire


@dataclass(frozen=True)
class Result:
    """What a run found: scores of the selected parameters, every line of its history, bytes by kind.

    ``verdicts`` has an entry for each way in which the run was scored; the first is the one that the run is known by,
    and its parameters are those that ``training`` holds. ``last`` are the parameters that training ended with.
    """

    verdicts: tuple[Verdict, ...]
    history: list[dict[str, Any]]
    bytes: dict[str, int]
    training: Training = field(repr=False)
    last: dict[str, Tensor] = field(repr=False)

    @property
    def valid(self) -> Scores | None:
        """Validation scores of the selected parameters; None where nothing is validated."""
        return self.verdicts[0].valid

    @property
    def test(self) -> Scores:
        """Test scores of the selected parameters."""
        return self.verdicts[0].test

    @property
    def best_epoch(self) -> list[int]:
        """The epoch whose parameters were selected (of each silo, where silos select for themselves)."""
        return self.verdicts[0].best_epoch


def finish(training: Training) -> Result:
    """Load and score the parameters that validation selected; the test split is read here and nowhere before."""
    wire = training.wire
    last = {name: tensor.clone() for name, tensor in training.learner.everything().items()}
    wire.ledger.purpose = Purpose.END
    verdicts = [judged(training, judge, last) for judge in reversed(training.stage.judges)]
    return Result(tuple(reversed(verdicts)), training.progress.history, wire.ledger.by_kind(), training, last)


def judged(training: Training, judge: Judge, last: dict[str, Tensor]) -> Verdict:
    """The verdict of one judge: the parameters that it selected, scored in its way."""
    objective, wire, scorer = training.stage.objective, training.wire, judge.scorer
    judge.best.restore(training.learner, last)
    validated = int(scorer.pool(VALID).counts.sum()) > 0
    if validated and judge.best.undecided:
        training.federation.note(undecided(judge.best, wire))
    valid = evaluate(scorer, wire, objective, VALID, pool=True) if validated else None
    with wire.ledger.during(TESTS[judge.how]):
        test = evaluate(scorer, wire, objective, TEST, pool=True)
    for sentence in (note_on_constant(scorer, wire, test, objective.minority), undefined(test, judge.how)):
        if sentence:
            training.federation.note(sentence)
    return Verdict(judge.how, valid, test, judge.best.epochs(training.progress.epoch), _alerts(training, valid, test))


def _alerts(training: Training, valid: Scores | None, test: Scores) -> dict[str, Any]:
    """Figures on the highest scores of the rare class, of silos on this host; nothing where classes are not two."""
    if test.rare is None:
        return {}
    settings = AlertSettings(training.train.top, training.train.alerts)
    rare = int(training.stage.objective.minority)
    figures = alert_figures(None if valid is None else valid.rare, test.rare, settings, training.wire.hosts == 1)
    return {"class": training.federation.schema.labels[rare], **figures}


def undefined(test: Scores, how: str) -> str:
    """A note on silos whose test score is not defined, and which the mean leaves out; empty where all have one."""
    known = torch.isfinite(test.silos[:, 0])
    out = [name for name, here, count in zip(test.members, known, test.counts, strict=True) if count and not here]
    if not out or not bool(known.any()):
        return ""
    return (
        f"Test {test.names[0]} of {some_of(out)} is not defined (of what was scored there all has one class, or the "
        f"model has diverged): the mean ({SCORES[how]}) is over the other {int(known.sum())} of {len(known)} silos."
    )


def undecided(best: Best, wire: Wire) -> str:
    """A note that says for which silos nothing could be selected, as no validation score was ever defined."""
    who = f"of {some_of([wire.party(silo) for silo in best.undecided])} " if best.alone else ""
    return (
        f"No validation score {who}was ever defined (a ranking needs both classes), so that nothing could be selected: "
        "the parameters of the last epoch were scored."
    )
