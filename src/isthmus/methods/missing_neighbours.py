"""FedDEP's models for neighbours that nobody knows: encoder, generator and classifier; and passes of the generator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from isthmus.core.errors import IsthmusError
from isthmus.core.random import combine, keep_mask, normals, stream
from isthmus.engine.learner import ModelSpec
from isthmus.engine.settings import TrainConfig
from isthmus.engine.site import Site
from isthmus.graph.graph import Schema
from isthmus.graph.stack import Stack
from isthmus.nn.block import Rows
from isthmus.nn.embedding_fused import FusedGNN
from isthmus.nn.generator import Generator
from isthmus.nn.model import GNN, LAYERS, ModelConfig
from isthmus.sample.batcher import Batcher
from isthmus.sample.batches import Seeds
from isthmus.sample.neighbours import Sampler

ENCODER, GENERATOR, LOCAL = "encoder", "generator", "local"  # local: a classifier of each silo's own


@dataclass(frozen=True)
class Encoder(ModelSpec):
    """A silo's own model, whose rows after ``depth`` layers stand for its nodes (0: their features do)."""

    depth: int = 2

    def __post_init__(self) -> None:
        if self.depth < 0:
            raise IsthmusError(f"models.encoder.depth is {self.depth}; it must be 0 or more.")

    def width(self, schema: Schema, config: ModelConfig) -> int:
        """How many numbers stand for a node."""
        return config.hidden if self.depth else schema.features

    def build(
        self, schema: Schema, config: ModelConfig, train: TrainConfig, specs: Mapping[str, ModelSpec]
    ) -> nn.Module:
        """A model of ``depth`` layers and a head."""
        return GNN(replace(config, layers=max(self.depth, 1), head=True), schema, train.batch)


@dataclass(frozen=True)
class FusedClassifier(ModelSpec):
    """FedDEP's classifier, whose layers also read the mean of rows generated for a node."""

    def build(
        self, schema: Schema, config: ModelConfig, train: TrainConfig, specs: Mapping[str, ModelSpec]
    ) -> nn.Module:
        """The classifier, without a head: its last layer gives the logits."""
        return FusedGNN(replace(config, head=False), schema, _width(schema, config, specs), train.batch)


@dataclass(frozen=True)
class NeighbourGenerator(ModelSpec):
    """A generator of rows for missing neighbours: at most ``most`` a node, through a layer of ``wide`` units.

    ``shared``: a node's neighbours have one last layer and noise of their own, and not layers of their own and one
    noise. ``steady``: numbers of missing neighbours follow from codes of unit length, without a ReLU. With one they
    overshoot, and where it makes all of them 0 they stay so: with FedDEP's SGD of 0.1 nothing at all is generated.
    ``unit``: generated rows have unit length, as the rows have that they stand for. Otherwise their numbers pass a
    tanh, which the same steps drive to -1 and 1 where there are many silos, and there they stay.
    """

    most: int = 5
    wide: int = 256
    shared: bool = False
    steady: bool = True
    unit: bool = True

    def __post_init__(self) -> None:
        if self.most < 1 or self.wide < 1:
            raise IsthmusError(
                f"models.generator.most is {self.most} and models.generator.wide {self.wide}; both must be 1 or more."
            )

    def build(
        self, schema: Schema, config: ModelConfig, train: TrainConfig, specs: Mapping[str, ModelSpec]
    ) -> nn.Module:
        """A generator that encodes nodes by as many layers as the classifier has."""
        kind, hidden = LAYERS[config.name], config.hidden
        encode = [kind(hidden, hidden, **config.options) for _ in range(config.layers)]
        shape = self.most, _width(schema, config, specs), self.wide
        return Generator(schema.features, hidden, encode, *shape, self.shared, self.steady, self.unit)


def _width(schema: Schema, config: ModelConfig, specs: Mapping[str, ModelSpec]) -> int:
    """The width of a generated row: that of the encoder's rows; without an encoder that of features."""
    encoder = specs.get(ENCODER)
    return encoder.width(schema, config) if isinstance(encoder, Encoder) else schema.features


@dataclass(frozen=True)
class Codes:
    """The generator's codes of some nodes, and to which silos these belong."""

    code: Tensor  # [n, hidden]
    rows: Rows

    def at(self, places: Tensor) -> Codes:
        """The codes at some places, ascending."""
        ends = torch.tensor(self.rows.ptr, device=places.device)
        ptr = tuple(torch.searchsorted(places, ends).tolist())
        return Codes(self.code[places], Rows(ptr, self.rows.keys[places]))


@dataclass(frozen=True)
class Made:
    """Generated rows: row i is the neighbour ``number[i]`` of the node at place ``node[i]`` among those asked for.

    Nodes are in ascending order.
    """

    rows: Tensor  # [some, width]
    node: Tensor  # [some]
    number: Tensor  # [some]


class GeneratorPass:
    """Passes of the generator along edges of ``stack``, inside silos; ``purpose`` names the random draws."""

    def __init__(self, site: Site, stack: Stack, purpose: str) -> None:
        self.site, self.stack, self.purpose = site, stack, purpose
        config = site.model
        degrees = LAYERS[config.name].uses_degrees
        self._batcher = Batcher(stack, config.layers, False, "node", False, False, degrees, site.train.trim)
        self._sampler = Sampler(stack, site.train.fanouts(config.layers), site.draws, False)

    @property
    def generator(self) -> Generator:
        """The model that generates."""
        module = self.site.learner.models[GENERATOR].module
        assert isinstance(module, Generator)
        return module

    def encode(self, at: Tensor, step: int, whole: bool = False) -> Codes:
        """The codes of the stack rows ``at`` (ascending): in full batches, or ``whole``, over all of their neighbours.

        Otherwise over a sample of these.
        """
        ptr = self.stack.segments(at)
        seeds = Seeds(at, torch.zeros_like(at), ptr, len(at), torch.zeros(len(ptr) - 1))
        if self.site.train.batch and not whole:
            batch = self._batcher.sampled(seeds, self._sampler.sample(at, step, self.purpose), step)
        else:
            batch = self._batcher.whole(seeds, step)
        code = self.generator.encode(batch.x, batch.x_rows, batch.blocks)
        return Codes(code[batch.ends[0]], Rows(ptr, self.stack.keys[at]))

    def make(self, every: Codes, wanted: Tensor, step: int, noisy: bool) -> Made:
        """The neighbours of coded nodes that are ``wanted`` [n, most], from noisy codes or from codes as they are."""
        node, number = wanted.nonzero(as_tuple=True)
        if self.generator.shared:
            codes = every.at(node)
            keys = combine(codes.rows.keys, number)
            code = codes.code + self.noise(keys, codes.code, step) if noisy else codes.code
            return Made(self.generator.generate(code, codes.rows), node, number)
        some = wanted.any(1).nonzero().flatten()
        codes = every.at(some)
        code = codes.code + self.noise(codes.rows.keys, codes.code, step) if noisy else codes.code
        return Made(self.generator.generate_apart(code, codes.rows, wanted[some]), node, number)

    def noise(self, keys: Tensor, code: Tensor, step: int) -> Tensor:
        """Standard normal noise for codes, which follows from seed, purpose, step and public keys: [n, hidden]."""
        stream_of_step = stream(self.site.seed, f"{self.purpose}/noise", step)
        return normals(stream_of_step, keys, code.shape[1]).to(code.dtype)

    def believed(self, every: Codes, step: int, rate: float) -> Tensor:
        """Which neighbours the generator believes that nodes miss, each kept with probability ``rate``: [n, most].

        As many as its count says, to the nearest whole number, and at most ``most``.
        """
        generator = self.generator
        count = generator.count(every.code, every.rows).detach().round()
        missing = torch.arange(generator.most, device=count.device) < count[:, None]
        if rate == 1:
            return missing
        return missing & keep_mask(
            stream(self.site.seed, f"{self.purpose}/kept", step), every.rows.keys, generator.most, 1 - rate
        )
