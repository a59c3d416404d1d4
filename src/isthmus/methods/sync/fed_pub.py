"""FED-PUB's sync: the server gives each silo a mean of all models, in which those like its own count most."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.engine.learner import CLASSIFIER, Learned
from isthmus.engine.site import Site
from isthmus.graph.graph import TRAIN
from isthmus.methods.sync.base import LiveSync, Losses
from isthmus.methods.sync.fed_pub_graph import Questions, random_graph
from isthmus.methods.sync.fedavg import FedAvg, LiveFedAvg
from isthmus.nn.masks import is_mask
from isthmus.wire.arrival_checks import check_like


@dataclass(frozen=True)
class SimilarModels(FedAvg):
    r"""After a round  W_i <- sum_j a_ij W_j,  a_ij = n_j exp(tau S_ij) / sum_k n_k exp(tau S_ik)  (Baek et al. 2023).

    S_ij is the cosine of the outputs of the models of silos i and j on one random graph: the mean over its nodes of the
    rows that the last layer makes, before activation. The server computes them from the parameters that silos send,
    without masks, which silos keep. The graph has ``blocks`` of ``nodes`` nodes, any two of a block linked with
    probability ``density``, and standard normal features; it follows from the run's seed. For ``private`` parameters
    the server takes starting values.

    n_j counts ``silos`` alike, as the paper has it, or training ``nodes``; silos without any count 0. With tau = 0 this
    is FedAvg, and as tau grows each silo is left alone. The paper's tau is 3 for silos that share no node.

    The authors' code differs in two ways: silos compute the answers themselves, with their masks, and send them; and
    they send their masks too, which the server averages and nobody reads.
    """

    weights: str = "silos"
    tau: float = 3.0
    blocks: int = 5
    nodes: int = 100
    density: float = 0.1
    name: ClassVar[str] = "fed-pub"
    needs_all: ClassVar[str] = "the server mixes the models of all silos for each of them"
    mixes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.tau < math.inf:
            raise IsthmusError(f"sync.tau is {self.tau}; it must be a finite number, 0 (all alike) or more.")
        for name in ("blocks", "nodes"):
            if getattr(self, name) < 1:
                raise IsthmusError(f"sync.{name} is {getattr(self, name)}; it must be at least 1.")
        if not 0 <= self.density <= 1:
            raise IsthmusError(f"sync.density is {self.density}; it is a probability, from 0 to 1.")

    @property
    def personal(self) -> bool:
        """Silos end with models of their own: each has its own mean of all, and its own masks."""
        return True

    def shares(self, name: str) -> bool:
        """Whether a parameter is sent and mixed: all but masks, and what is private."""
        return not is_mask(name) and super().shares(name)

    def open(self, site: Site, model: Learned, losses: Losses) -> LiveSync:
        """The live sync, which has the server compare and mix after every round."""
        return LiveSimilarModels(self, site, model, losses)


class LiveSimilarModels(LiveFedAvg):
    """Sends each silo's parameters to the server, which answers each silo by itself."""

    spec: SimilarModels

    def __init__(self, spec: SimilarModels, site: Site, model: Learned, losses: Losses) -> None:
        super().__init__(spec, site, model, losses)
        if model.name != CLASSIFIER:
            raise IsthmusError(
                f"sync=fed-pub compares models by what they say of nodes, and '{model.name}' is no classifier; use "
                "fedavg in the phases that learn it."
            )
        self._names = [name for name in model.sets.names() if spec.shares(name)]

    @cached_property
    def questions(self) -> Questions:
        """The random graph and copies of the classifier to run on it, which only the server needs."""
        spec, site = self.spec, self.site
        graph = random_graph(site.schema, spec.blocks, spec.nodes, spec.density, site.seed)
        return Questions(site, graph, site.wire.silos)

    def round_end(self) -> None:
        """Send up what is shared, and go on from what the server has mixed for each silo."""
        sets, wire = self.model.sets, self.site.wire
        sent = sets.flat(self._names)
        mine = {silo: sent[i : i + 1] for i, silo in enumerate(wire.mine)}
        told = wire.consult(Kind.PARAMETERS, mine, lambda heard: self._mixed(heard, sent))
        if wire.mine:
            sets.load(self._names, torch.cat([told[silo] for silo in wire.mine]).to(sent))

    def _mixed(self, heard: dict[int, Tensor], like: Tensor) -> dict[int, Tensor]:
        """At the server: a mean of all models for each silo. A server without silos itself keeps FedAvg's mean.

        Models must have the form of ``like``, those of this host.
        """
        for silo, row in heard.items():
            check_like(Kind.PARAMETERS, row, like, self.site.wire.party(silo))
        models = torch.cat(list(heard.values())).to(like)
        answers = self.questions.answers(self._names, models)
        portions = self._portions(list(heard))
        if not self.site.wire.mine:
            self.model.sets.load(self._names, portions @ models)
        mixed = mixing_weights(answers, portions, self.spec.tau) @ models
        return {silo: mixed[i : i + 1] for i, silo in enumerate(heard)}

    def _portions(self, silos: list[int]) -> Tensor:
        """The weight n_j / sum_k n_k of each silo, as in FedAvg: [silos]."""
        counts = self.site.layout.pools[TRAIN].counts[silos]
        weights = (counts if self.spec.weights == "nodes" else counts > 0).to(self.site.dtype)
        return (weights / weights.sum().clamp(min=1)).to(self.site.device)


def mixing_weights(answers: Tensor, portions: Tensor, tau: float) -> Tensor:
    """a_ij = n_j exp(tau S_ij) / sum_k n_k exp(tau S_ik): [silos, silos], from answers [silos, width] and n [silos]."""
    direction = functional.normalize(answers)
    similar = (direction @ direction.T).clamp(-1, 1).fill_diagonal_(1.0)
    return (tau * similar + portions.log()).softmax(1)
