"""Methods of several phases and several models: who steps when, what goes on, and where a run resumes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from isthmus.core.errors import IsthmusError
from isthmus.engine.learner import CLASSIFIER, Learner, ModelSpec
from isthmus.engine.settings import TrainConfig
from isthmus.engine.site import Site
from isthmus.graph.cut import split_graph
from isthmus.graph.graph import Schema
from isthmus.methods import catalogue
from isthmus.methods.compose import compose
from isthmus.methods.method import Method
from isthmus.methods.objective.base import LiveObjective, Objective
from isthmus.methods.phase import Phase, one_phase
from isthmus.methods.sync.fedavg import FedAvg
from isthmus.nn import Linear, ModelConfig, Rows
from isthmus.sample.batches import Batch
from isthmus.train.checkpoint import Checkpoints
from isthmus.train.loop import train
from isthmus.train.progress import Progress
from isthmus.train.training import Training
from isthmus.train.watcher import Watcher
from tests.helpers.small import losses, open_method, open_of, run_method, small_graph

GRAPH, THREE = small_graph(30, 140), torch.arange(30) % 3


def pretrained(epochs: int) -> dict[str, object]:
    return {"phase": {"pretrain": {"epochs": epochs}}}


def test_pretraining_is_local_training_and_then_fedavg_goes_on() -> None:
    """The first phase has the losses of ``local``; from its parameters FedAvg goes its own way."""
    both = run_method("pretrained-fedavg", GRAPH, THREE, 3, options=pretrained(3), epochs=6)
    local, fedavg = (run_method(name, GRAPH, THREE, 3, epochs=6) for name in ("local", "fedavg"))
    assert losses(both)[:4] == losses(local)[:4]  # the fourth step starts from where the third has left
    assert losses(both)[4:] != losses(local)[4:] and losses(both)[1] != losses(fedavg)[1]
    assert [line["phase"] for line in both.history if "valid" not in line] == ["pretrain"] * 3 + ["federate"] * 3


def test_only_the_last_phase_averages() -> None:
    training = open_method("pretrained-fedavg", GRAPH, THREE, 3, options=pretrained(3), epochs=6)
    train(training)
    table = training.wire.ledger.table().to_pylist()
    assert {line["epoch"] for line in table if line["kind"] == "parameters"} == {4, 5, 6}


def test_phases_that_leave_nothing_for_the_last_are_refused_before_data_is_read() -> None:
    method = compose(catalogue.get("pretrained-fedavg"), pretrained(5))
    with pytest.raises(IsthmusError, match="take 5 of them"):
        method.check(ModelConfig(), TrainConfig(epochs=5))


def test_silos_that_have_gone_their_own_ways_cannot_step_alike_afterwards() -> None:
    method = compose(catalogue.get("pretrained-fedavg"), {"phase": {"federate": {"sync": "sync-sgd"}}})
    with pytest.raises(IsthmusError, match="optimiser state of its own"):
        method.check(ModelConfig(), TrainConfig(epochs=50))


def test_axes_without_a_phase_stand_for_the_phase_that_has_them() -> None:
    method = compose(catalogue.get("pretrained-fedavg"), {"sync": {"local_epochs": 2}})
    assert method.phases[1].sync == FedAvg(local_epochs=2)
    with pytest.raises(IsthmusError, match="phase.pretrain.exchange, phase.federate.exchange"):
        compose(catalogue.get("pretrained-fedavg"), {"exchange": {"name": "optimes"}})
    named = compose(catalogue.get("pretrained-fedavg"), {"phase": {"federate": {"exchange": "optimes"}}})
    assert [phase.exchange.name for phase in named.phases] == ["nothing", "optimes"]
    with pytest.raises(IsthmusError, match="Unknown phase.*'federated'.*federate"):
        compose(catalogue.get("pretrained-fedavg"), {"phase": {"federated": {"epochs": 3}}})


@pytest.mark.parametrize("killed_after", [1, 2, 3, 4, 5])
def test_a_run_resumes_inside_any_phase(killed_after: int, tmp_path: Path) -> None:
    """Bit for bit, whether the checkpoint lies before, at or after the change of phase."""

    def opened() -> Training:
        return open_method("pretrained-fedavg", GRAPH, THREE, 3, options=pretrained(3), epochs=6, batch=3, fanout=(2,))

    whole = train(opened())
    checkpoints = Checkpoints(tmp_path, "digest", 0, logs=False)

    class Dying(Watcher):
        def __init__(self, training: Training) -> None:
            self.training = training

        def on_epoch(self, progress: Progress, lines: object) -> None:
            checkpoints.commit(self.training)
            if progress.epoch == killed_after:
                raise KeyboardInterrupt

    first = opened()
    with pytest.raises(KeyboardInterrupt):
        train(first, Dying(first))
    again = opened()
    assert checkpoints.resume(again) == killed_after
    assert again.progress.phase == (1 if killed_after > 3 else 0)
    resumed = train(again)
    assert losses(resumed) == losses(whole)[-len(losses(resumed)) :]
    for name, tensor in whole.training.learner.everything().items():
        assert torch.equal(tensor, resumed.training.learner.everything()[name]), name
    assert resumed.bytes == whole.bytes


@dataclass(frozen=True)
class Guess(ModelSpec):
    """A second model, of another kind: a linear map of raw features."""

    def build(
        self, schema: Schema, config: ModelConfig, train: TrainConfig, specs: Mapping[str, ModelSpec]
    ) -> nn.Module:
        return Linear(schema.features, len(schema.labels))


@dataclass(frozen=True)
class Both(Objective):
    """The task loss of the classifier, and that of the second model on the seeds' own features."""

    name: ClassVar[str] = "both"

    def open(self, site: Site) -> LiveObjective:
        return LiveBoth(self, site)


class LiveBoth(LiveObjective):
    def penalty(self, learner: Learner, batches: Sequence[Batch], active: Tensor) -> Tensor:
        terms = []
        for batch in batches:
            rows = Rows(batch.seeds.ptr, batch.seed_rows.keys)
            x = batch.x[batch.ends[0]] if len(batch.x) != len(batch.y) else batch.x
            assert isinstance(x, Tensor)
            terms.append(nn.functional.cross_entropy(learner.models["guess"].module(x, rows), batch.y.long()))
        return torch.stack(terms).sum()


def two_models(learns: tuple[str, ...]) -> Method:
    phases = one_phase(sync=FedAvg(), objective=Both(), learns=learns)
    return Method("two", "a classifier and a guess", phases=phases, models={CLASSIFIER: ModelSpec(), "guess": Guess()})


def start_and_end(method: Method) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    training = open_of(method, split_graph(GRAPH, THREE, 3), epochs=3)
    start = {name: tensor.clone() for name, tensor in training.learner.everything().items()}
    train(training)
    return start, training.learner.everything()


def test_a_phase_names_the_models_that_learn() -> None:
    for learns in (("classifier",), ("guess",), ("classifier", "guess")):
        start, end = start_and_end(two_models(learns))
        moved = {
            name.partition("/")[0] if "/" in name else "classifier"
            for name in start
            if (start[name] != end[name]).any()
        }
        assert moved == set(learns), learns


def test_every_model_is_averaged_by_itself_and_counted() -> None:
    silos, both = split_graph(GRAPH, THREE, 3), (("classifier",), ("classifier", "guess"))
    one, two = (open_of(two_models(learns), silos, epochs=3) for learns in both)
    sizes = [train(training).bytes["parameters"] for training in (one, two)]
    guess = sum(p[0].numel() for p in two.learner.models["guess"].sets.parameters.values())
    assert sizes[1] - sizes[0] == 3 * 3 * 2 * guess * 8  # rounds, silos, up and down, numbers, bytes
    end = two.learner.everything()
    assert bool((end["guess/weight"] == end["guess/weight"][:1]).all())


def test_a_second_model_starts_elsewhere_than_the_first_and_does_not_move_it() -> None:
    """The classifier of a method with a second model has the curve of the classifier alone."""
    plain = Method("one", "a classifier", phases=one_phase(sync=FedAvg()))
    alone = train(open_of(plain, split_graph(GRAPH, THREE, 3), epochs=3))
    beside = train(open_of(two_models(("classifier", "guess")), split_graph(GRAPH, THREE, 3), epochs=3))
    assert losses(alone) == losses(beside)


def test_a_method_must_fit_together() -> None:
    with pytest.raises(IsthmusError, match="Unknown model in phase"):
        Method("x", "", phases=(Phase(learns=("generator",)),))
    with pytest.raises(IsthmusError, match="how many epochs"):
        Method("x", "", phases=(Phase("a"), Phase("b")))
    with pytest.raises(IsthmusError, match="must differ"):
        Method("x", "", phases=(Phase("a", epochs=1), Phase("a")))
    with pytest.raises(IsthmusError, match="scored"):
        Method("x", "", models={"generator": Guess()})
    with pytest.raises(IsthmusError, match="Unknown score"):
        replace(catalogue.get("fedavg"), scores=("beyond",))
