"""The catalogue: every published method as one composition of parts.

A method answers four questions: what crosses the boundary (exchange; by a schedule, at which steps), how parameters
agree (sync), what is done to a payload before it leaves (protect), and what a silo minimises (objective). Local-only is
all nothings.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

from isthmus.errors import IsthmusError, unknown
from isthmus.exchange.aggregates import FeatureSums
from isthmus.exchange.base import Exchange, Nothing
from isthmus.exchange.correct import Corrections
from isthmus.exchange.layerwise import LayerWise
from isthmus.exchange.moving import MovingAverage
from isthmus.exchange.optimes import OptimES
from isthmus.exchange.server import ServerAggregate
from isthmus.objective.base import Objective, Proximal
from isthmus.protect.base import Protect
from isthmus.protect.gaussian import Gaussian
from isthmus.schedule import Schedule, Shrinking
from isthmus.sync.average import FedAvg
from isthmus.sync.base import Sync
from isthmus.sync.gradients import SyncSGD
from isthmus.sync.moving import GradientAverage
from isthmus.typed import as_type

_LAYERWISE = "Ceydeli 2026"
_MOVING = "Guo et al. 2026"
_SWIFT = "Swift-FedGNN, OpenReview QXwtkVI8Yr"
AXES = ("exchange", "schedule", "sync", "protect", "objective")


@dataclass(frozen=True)
class Method:
    """A named composition.

    ``batches``: ``local`` (each silo its own batches, degree constants, normalisation moments and class weights) or
    ``joint`` (one global batch by ranks, and statistics that all agree on).
    ``merged``: one silo owns all. ``model``: the model that the method prescribes.
    """

    name: str
    summary: str
    paper: str = ""
    exchange: Exchange = field(default_factory=Nothing)
    schedule: Schedule = field(default_factory=Schedule)
    sync: Sync = field(default_factory=Sync)
    protect: Protect = field(default_factory=Gaussian)
    objective: Objective = field(default_factory=Objective)
    batches: str = "local"
    merged: bool = False
    model: str = ""


_CATALOGUE: dict[str, Callable[[], Method]] = {}


def method(make: Callable[[], Method]) -> Callable[[], Method]:
    """Add a method to the catalogue under its own name."""
    _CATALOGUE[make().name] = make
    return make


@method
def local() -> Method:
    """Every axis is nothing: each silo trains alone on what it owns."""
    return Method("local", "each silo trains alone")


@method
def local_mlp() -> Method:
    """Each silo alone, and without edges: what features are worth by themselves."""
    return replace(local(), name="local-mlp", summary="each silo trains alone, without edges", model="mlp")


@method
def fedavg() -> Method:
    """Local epochs, then the mean of the parameters, weighted by training nodes (its Algorithm 1)."""
    return Method("fedavg", "local training, then the mean of parameters", "McMahan et al. 2017", sync=FedAvg())


@method
def fedprox() -> Method:
    """FedAvg whose silos also minimise (mu / 2) ||w - w_round||^2 (its equation 2)."""
    return Method("fedprox", "FedAvg with a proximal term", "Li et al. 2020", sync=FedAvg(), objective=Proximal())


@method
def fedper() -> Method:
    """FedAvg of the base layers; the head stays at home (its personalisation layers)."""
    home = FedAvg(private=("head",))
    return Method("fedper", "FedAvg with a private head for each silo", "Arivazhagan et al. 2019", sync=home)


@method
def sync_sgd() -> Method:
    """The gradient sum of all silos at every step, one optimiser state, joint batches, agreed statistics."""
    summary = "the gradient sum of all silos at every step"
    return Method("sync-sgd", summary, sync=SyncSGD(), batches="joint")


def layerwise(base: Method, adjoint: bool) -> Method:
    """A method with layer-wise exchange: halo rows refreshed at every layer (A3 of the paper), with adjoints back (A4).

    Joint batches and agreed statistics make ``sync-sgd+fwd-bwd-le`` centralised training, exactly.
    """
    name = f"{base.name}+{'fwd-bwd-le' if adjoint else 'fwd-le'}"
    summary = f"{base.name}, embeddings at every layer" + (", adjoints back" if adjoint else "")
    shared: dict[str, Any] = {"batches": "joint", "exchange": LayerWise(adjoint=adjoint)}
    return replace(base, name=name, summary=summary, paper=_LAYERWISE, **shared)


@method
def optimes() -> Method:
    """FedAvg that reads halo rows of layers 1 .. L-1 one round old; they are pushed before parameters are averaged."""
    summary = "FedAvg, boundary embeddings once a round"
    return replace(fedavg(), name="optimes", summary=summary, paper="Naman and Simmhan 2026", exchange=OptimES())


@method
def ce_fedgnn() -> Method:
    """Moving averages of pre-activations (its equation 5) and of gradients (9), exchanged every K = 32 steps."""
    summary = "moving averages of embeddings and gradients, exchanged every 32 steps"
    parts: dict[str, Any] = {"exchange": MovingAverage(), "sync": GradientAverage()}
    return Method("ce-fedgnn", summary, _MOVING, **parts)


@method
def fedgnn_st() -> Method:
    """CE-FedGNN without averages: rows as last computed, plain gradients."""
    summary = "boundary embeddings every 32 steps, read as they were computed"
    parts: dict[str, Any] = {"exchange": MovingAverage(gamma=1.0), "sync": GradientAverage(beta=1.0)}
    return Method("fedgnn-st", summary, _MOVING, **parts)


@method
def fedgcn() -> Method:
    """Sums of neighbours' features over all silos, once, before FedAvg in rounds of 32 steps; the model must be gcn."""
    summary = "FedAvg of a gcn, sums of neighbours' features exchanged once before training"
    parts: dict[str, Any] = {"exchange": FeatureSums(), "sync": FedAvg(local_steps=32, weights="silos")}
    return Method("fedgcn", summary, "Yao et al. 2023", **parts)


@method
def fedsage() -> Method:
    """Local neighbours alone; the server steps along the mean of all silos' gradients, at every iteration."""
    summary = "the mean gradient of all silos at every step, local neighbours alone"
    parts: dict[str, Any] = {"exchange": ServerAggregate(), "schedule": Schedule(silos=0)}
    return Method("fedsage", summary, "Zhang et al. 2021", sync=SyncSGD(weights="silos"), **parts)


@method
def fedgnn_g() -> Method:
    """Every silo uses its neighbours beyond the boundary at every iteration, aggregated through the server."""
    summary = "aggregates of neighbours elsewhere, through the server, at every step"
    return replace(fedsage(), name="fedgnn-g", summary=summary, paper=_SWIFT, schedule=Schedule())


@method
def swift_fedgnn() -> Method:
    """FedGNN-G at every I-th iteration and by K silos alone (its Algorithm 2); FedSage otherwise."""
    summary = "aggregates of neighbours elsewhere, through the server, every 10th step, by half of the silos"
    return replace(fedgnn_g(), name="swift-fedgnn", summary=summary, schedule=Schedule(every=10, share=0.5))


@method
def fedgnn_pns() -> Method:
    """FedGNN-G of each silo at ever shorter intervals of its own; in between it reuses the aggregates of the last."""
    summary = "aggregates of neighbours elsewhere at ever shorter intervals, reused in between"
    parts: dict[str, Any] = {"exchange": ServerAggregate(reuse=True), "schedule": Shrinking()}
    return replace(fedgnn_g(), name="fedgnn-pns", summary=summary, paper="Du and Wu 2022", **parts)


@method
def llcg() -> Method:
    """FedSage, and every 10th iteration a step of the server on some nodes with all their neighbours."""
    summary = "local neighbours alone, corrected by the server, to which features of some nodes go"
    parts: dict[str, Any] = {"exchange": Corrections(), "schedule": Schedule(every=10)}
    return replace(fedsage(), name="llcg", summary=summary, paper="Ramezani et al. 2022", **parts)


for _base in (local, fedavg, sync_sgd):
    for _adjoint in (False, True):
        method(partial(lambda base, adjoint: layerwise(base(), adjoint), _base, _adjoint))


@method
def centralised() -> Method:
    """One silo owns everything and trains alone, on the same joint batches: the upper end of the space."""
    summary = "one silo owns all nodes (simulation only)"
    return Method("centralised", summary, batches="joint", merged=True)


def names() -> list[str]:
    """Every method of the catalogue, in its order."""
    return list(_CATALOGUE)


def get(name: str) -> Method:
    """A fresh copy of the named method."""
    if name not in _CATALOGUE:
        raise unknown("method", name, _CATALOGUE)
    return copy.deepcopy(_CATALOGUE[name]())


def adjust(method: Method, overrides: Mapping[str, Mapping[str, Any]]) -> Method:
    """Replace options of a method's parts: ``{"sync": {"local_epochs": 3}}``; every key must be read by a part."""
    for axis, options in overrides.items():
        part = getattr(method, axis)
        for key, value in options.items():
            if key not in part_options(part):
                raise _no_such_option(method, axis, key)
            part = replace(part, **{key: as_type(f"{axis}.{key}", value, getattr(part, key))})
        method = replace(method, **{axis: part})
    return method


def part_options(part: Any) -> dict[str, Any]:
    """The options of a part and their values."""
    return {f.name: getattr(part, f.name) for f in fields(part) if f.init}


def _no_such_option(method: Method, axis: str, key: str) -> IsthmusError:
    known = [f"{axis}.{k}" for k in part_options(getattr(method, axis))]
    offer = f"it has {', '.join(known)}" if known else "it has none"
    return IsthmusError(f"Method '{method.name}' has no option {axis}.{key}; on the axis {axis} {offer}.")
