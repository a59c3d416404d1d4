"""Every objective keeps the contract, and the contract catches objectives that do not."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from isthmus.engine.learner import CLASSIFIER, Learner
from isthmus.engine.masked import MaskedClassifier
from isthmus.engine.site import Site
from isthmus.graph.cut import split_graph
from isthmus.methods.method import Method
from isthmus.methods.objective.base import LiveObjective, NodeLosses, Objective
from isthmus.methods.objective.fed_pub import SparseMasks
from isthmus.methods.objective.fedprox import LiveProximal, Proximal
from isthmus.methods.parts import PARTS
from isthmus.sample.batches import Batch
from isthmus.testing import ObjectiveContract
from isthmus.testing.runs import method_of, open_of, small_graph, step_losses

# Options that a default does not show.
OTHERS = {
    "task, minority": lambda: Objective(minority_weight=4.0),
    "fed-pub, strong": lambda: SparseMasks(sparsity=0.1, proximity=1.0),
    "fed-pub, sparsity alone": lambda: SparseMasks(proximity=0.0),
    "proximal, strong": lambda: Proximal(mu=1.0, minority_weight=2.0),
}


class TestMaskedObjective(ObjectiveContract):
    """FED-PUB's penalties on a model that has masks."""

    part = partial(SparseMasks, sparsity=0.1, proximity=1.0)

    def composed(self, part: Any, **others: Any) -> Method:
        return replace(super().composed(part, **others), models={CLASSIFIER: MaskedClassifier()})


class TestObjective(ObjectiveContract):
    @pytest.fixture(autouse=True, params=[*PARTS["objective"], *OTHERS])
    def make(self, request: pytest.FixtureRequest) -> None:
        self.part = {**PARTS["objective"], **OTHERS}[request.param]


# ---- the contract can fail


def broken(live: type[LiveObjective], parent: type[Objective] = Objective) -> ObjectiveContract:
    """The contract of an objective whose live part breaks it."""

    @dataclass(frozen=True)
    class Broken(parent):
        def open(self, site: Site) -> LiveObjective:
            return live(self, site)

    contract = ObjectiveContract()
    contract.part = Broken
    return contract


class OneForAll(LiveObjective):
    """The mean of the batch in place of each seed's loss: of no seeds it is not a number."""

    def seed_losses(self, logits: Tensor, batch: Batch) -> Tensor:
        return super().seed_losses(logits, batch).mean()


class HalfTheBatch(LiveObjective):
    """Learns from seeds of the first class alone."""

    def seed_losses(self, logits: Tensor, batch: Batch) -> Tensor:
        losses = super().seed_losses(logits, batch)
        return torch.where(batch.y.reshape(len(batch.y), -1)[:, 0] == 0, losses, losses.detach())


class Overflows(LiveObjective):
    def seed_losses(self, logits: Tensor, batch: Batch) -> Tensor:
        return logits.exp().square().square().sum(1)


class Drifts(LiveObjective):
    """Weighs a batch by how many it has seen."""

    def seed_losses(self, logits: Tensor, batch: Batch) -> Tensor:
        self.__dict__["seen"] = self.__dict__.get("seen", 0) + 1
        return super().seed_losses(logits, batch) / self.__dict__["seen"]


class PullsEverybody(LiveProximal):
    def penalty(self, learner: Learner, batches: Sequence[Batch], active: Tensor) -> Tensor:
        return super().penalty(learner, batches, torch.ones_like(active))


class NodesOfEverybody(LiveObjective):
    """Every node of every silo adds its classifier's weights."""

    def __init__(self, spec: Objective, site: Site) -> None:
        super().__init__(spec, site)
        self.__dict__["site"] = site

    def node_losses(self, batches: Sequence[Batch], active: Tensor) -> NodeLosses:
        site: Site = self.__dict__["site"]
        at, weight = torch.arange(site.stack.rows), next(iter(site.learner.classifier.sets.parameters.values()))
        return NodeLosses(at, site.stack.ptr, weight.flatten(1).sum(1)[site.stack.silo_of(at)])


class OneForEachSilo(LiveObjective):
    def penalty(self, learner: Learner, batches: Sequence[Batch], active: Tensor) -> Tensor:
        return torch.zeros(len(active))


class ForgetsTheRound(LiveProximal):
    """Remembers where the round began, but not in its state."""

    def round_begin(self, learner: Learner) -> None:
        super().round_begin(learner)
        self.__dict__["start"], self.state = self.state, {}

    def penalty(self, learner: Learner, batches: Sequence[Batch], active: Tensor) -> Tensor:
        now = {name: p.detach().clone() for name, p in learner.classifier.sets.parameters.items()}
        self.state = self.__dict__.setdefault("start", now)
        found = super().penalty(learner, batches, active)
        self.state = {}
        return found


@dataclass(frozen=True)
class Strong(Proximal):
    mu: float = 5.0


def test_losses_that_are_not_one_for_each_seed_are_caught() -> None:
    with pytest.raises(AssertionError, match=r"losses \[\] of 10 seeds"):
        broken(OneForAll).test_every_seed_has_one_finite_loss()
    with pytest.raises(AssertionError, match="losses of no seeds"):
        broken(OneForAll).test_no_seeds_are_no_loss()
    with pytest.raises(AssertionError, match="losses of seeds are .*inf"):
        broken(Overflows).test_every_seed_has_one_finite_loss()


def test_a_seed_that_nobody_learns_from_is_caught() -> None:
    with pytest.raises(AssertionError, match="no gradient reaches"):
        broken(HalfTheBatch).test_every_seed_learns()


def test_a_loss_that_changes_when_asked_again_is_caught() -> None:
    with pytest.raises(AssertionError, match="another loss when asked again"):
        broken(Drifts).test_a_loss_follows_from_the_logits()


def test_penalties_of_the_wrong_silos_or_shape_are_caught() -> None:
    with pytest.raises(AssertionError, match="of a silo without seeds"):
        broken(PullsEverybody, Strong).test_a_penalty_moves_active_silos_alone()
    with pytest.raises(AssertionError, match=r"has the shape \[3\]"):
        broken(OneForEachSilo).test_a_penalty_is_a_number_or_none()
    with pytest.raises(AssertionError, match="nodes of a silo without seeds have losses"):
        broken(NodesOfEverybody).test_losses_of_nodes_are_finite_and_move_active_silos_alone()


def test_state_outside_checkpoints_is_caught() -> None:
    with pytest.raises(AssertionError, match="in a run resumed after epoch 1"):
        broken(ForgetsTheRound, Strong).test_a_resumed_run_goes_on_as_the_whole_one()


def test_a_silo_whose_labels_are_all_yes_learns() -> None:
    graph = small_graph(18, 72)
    y = torch.ones(18, 1, dtype=torch.int64)
    tasks = replace(graph, y=y, schema=replace(graph.schema, task="tasks", labels=("p",)))
    assert step_losses(open_of(method_of(), split_graph(tasks, torch.arange(18) % 3, 3)))[0] > 0
