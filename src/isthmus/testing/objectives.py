"""The contract of objectives: subclass ``ObjectiveContract`` in the tests of a new one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.graph.graph import TRAIN
from isthmus.graph.silo import Silo
from isthmus.methods.method import Method
from isthmus.methods.objective.base import Objective
from isthmus.methods.sync.fedavg import FedAvg
from isthmus.sample.batches import Batch, Seeds
from isthmus.testing.contract import PartContract
from isthmus.testing.runs import method_of, small_silos
from isthmus.train.training import Training


class ObjectiveContract(PartContract):
    """Properties of an objective: subclass it; ``part`` makes the spec."""

    part: Callable[[], Objective]

    def composed(self, part: Any, **others: Any) -> Method:
        """Federated averaging in rounds of two epochs, towards the objective."""
        beside = {"sync": FedAvg(local_epochs=2), "models": self.part().needs}
        return method_of(**{"objective": part, **beside, **others})

    def runs(self) -> Iterator[Training]:
        """A run that learns classes, and one that learns several yes/no tasks, where it is not refused."""
        for silos in (small_silos(), _with_tasks()):
            try:
                yield self.fresh(silos, batches="local")
            except IsthmusError as error:
                assert silos[0].schema.task == "tasks", f"node classes are refused: {error}"

    def test_every_seed_has_one_finite_loss(self) -> None:
        """There is one finite loss for each seed, also where logits are large."""
        for training in self.runs():
            batch = _batch(training)
            for scale in (1.0, 100.0):
                found = training.stage.objective.seed_losses(scale * _logits(batch, training), batch)
                assert found.shape == (len(batch.y),), f"losses {list(found.shape)} of {len(batch.y)} seeds"
                assert bool(torch.isfinite(found).all()), f"losses of seeds are {found.tolist()}"

    def test_every_seed_learns(self) -> None:
        """The gradient reaches the logits of every seed, and is finite."""
        for training in self.runs():
            batch = _batch(training)
            logits = _logits(batch, training).requires_grad_()
            training.stage.objective.seed_losses(logits, batch).sum().backward()
            assert logits.grad is not None and bool(torch.isfinite(logits.grad).all()), "a gradient is not finite"
            assert bool(logits.grad.any(1).all()), "no gradient reaches the logits of some seeds"

    def test_a_loss_follows_from_the_logits(self) -> None:
        """Two calls with equal logits give equal losses: an objective draws nothing and remembers no batch."""
        for training in self.runs():
            batch = _batch(training)
            logits = _logits(batch, training)
            first, again = (training.stage.objective.seed_losses(logits, batch) for _ in range(2))
            assert torch.equal(first, again), "the same logits have another loss when asked again"

    def test_no_seeds_are_no_loss(self) -> None:
        """A host whose silos have no seed at a step has no losses to add, and no errors."""
        for training in self.runs():
            batch = _batch(training, nobody=True)
            found = training.stage.objective.seed_losses(_logits(batch, training), batch)
            assert found.shape == (0,) and float(found.sum()) == 0, f"losses of no seeds are {found}"

    def test_a_penalty_is_a_number_or_none(self) -> None:
        """A penalty is None or a finite scalar, whether all silos are active in a step or none is."""
        for training in self.runs():
            for active in (torch.ones(3, dtype=torch.bool), torch.zeros(3, dtype=torch.bool)):
                term = self._penalty(training, active)
                if term is not None:
                    assert term.dim() == 0, f"a penalty is one number, and has the shape {list(term.shape)}"
                    assert bool(torch.isfinite(term)), f"the penalty is {float(term)}"

    def test_a_penalty_moves_active_silos_alone(self) -> None:
        """The gradient of a penalty is zero for the parameters of a silo that has no seeds in a step."""
        for training in self.runs():
            _check_still(training, self._penalty(training, torch.tensor([True, False, True])), "penalty")

    def test_losses_of_nodes_are_finite_and_move_active_silos_alone(self) -> None:
        """One for each node, in the order of stack rows; no node of a silo without seeds in a step has one."""
        for training in self.runs():
            for active in (torch.tensor([True, False, True]), torch.zeros(3, dtype=torch.bool)):
                found = training.stage.objective.node_losses([_batch(training, not bool(active.any()))], active)
                if found is None:
                    continue
                assert found.losses.shape == found.at.shape, f"{len(found.losses)} losses of {len(found.at)} nodes"
                assert bool(torch.isfinite(found.losses).all()), "a loss of a node is not finite"
                assert bool((found.at.diff() > 0).all()) and found.ptr == training.stage.site.stack.segments(found.at)
                assert not bool(found.counts()[~active].any()), "nodes of a silo without seeds have losses"
                _check_still(training, found.total(), "losses of nodes")

    def _penalty(self, training: Training, active: Tensor) -> Tensor | None:
        """The penalty of a step, with parameters away from those at the start of the round."""
        learner, objective = training.learner, training.stage.objective
        objective.round_begin(learner)
        generator = torch.Generator().manual_seed(1)
        for p in learner.classifier.sets.parameters.values():
            p.data += torch.randn(p.shape, generator=generator, dtype=p.dtype)
        return objective.penalty(learner, [_batch(training, nobody=not bool(active.any()))], active)


def _check_still(training: Training, term: Tensor | None, what: str) -> None:
    """Raise where a term moves the parameters of the second silo."""
    if term is None or not term.requires_grad:
        return
    term.backward()
    for model in training.learner.models.values():
        for name, p in model.sets.parameters.items():
            still = p.grad is None or not bool(p.grad[1].any())
            assert still, f"{what}: {name} of a silo without seeds moves"


def _batch(training: Training, nobody: bool = False) -> Batch:
    """The first batch of a run, or one without seeds."""
    seeds: Seeds = next(iter(training.stage.epoch_seeds(training.progress)))
    seeds = seeds.of(torch.zeros(3, dtype=torch.bool)) if nobody else seeds
    [work] = training.stage.works(seeds, 0)
    return work.batch


def _logits(batch: Batch, training: Training) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    shape = len(batch.y), len(training.stage.site.schema.labels)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _with_tasks() -> list[Silo]:
    """Silos whose nodes have two yes/no labels, some of them unknown; every silo learns from both answers."""
    made = []
    for silo in small_silos():
        schema = replace(silo.schema, task="tasks", labels=("p", "q"))
        number = torch.arange(silo.n)
        second = torch.where(number % 5 == 0, -1, number // 2 % 2)
        made.append(replace(silo, schema=schema, y=torch.stack([number % 2, second], 1), split=silo.split * 0 + TRAIN))
    return made
