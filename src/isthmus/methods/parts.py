"""Every part by its name on its axis, so that ``--set exchange=optimes`` can swap one; users add their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

from isthmus.core.errors import IsthmusError, unknown
from isthmus.methods.exchange.base import Nothing
from isthmus.methods.exchange.ce_fedgnn import MovingAverage
from isthmus.methods.exchange.fedgcn import FeatureSums
from isthmus.methods.exchange.fwd_bwd_le import LayerWise
from isthmus.methods.exchange.generated import Generated
from isthmus.methods.exchange.hifgl import SecretMessages
from isthmus.methods.exchange.mended import Mended
from isthmus.methods.exchange.optimes import OptimES
from isthmus.methods.exchange.prototypes import Embeddings, Prototypes
from isthmus.methods.exchange.swift import ServerAggregate
from isthmus.methods.objective.asked_reconstruction import AskedReconstruction
from isthmus.methods.objective.base import Objective
from isthmus.methods.objective.fed_pub import SparseMasks
from isthmus.methods.objective.fedprox import Proximal
from isthmus.methods.objective.reconstruction import Reconstruction
from isthmus.methods.schedule import Schedule, Shrinking
from isthmus.methods.sync.base import Sync
from isthmus.methods.sync.ce_fedgnn import GradientAverage
from isthmus.methods.sync.fed_pub import SimilarModels
from isthmus.methods.sync.fedavg import FedAvg
from isthmus.methods.sync.fedpergnn import PseudoItems
from isthmus.methods.sync.llcg import LLCG
from isthmus.methods.sync.llcg_every_step import LLCGEveryStep
from isthmus.methods.sync.sync_sgd import SyncSGD
from isthmus.protect.dp_sgd import DPSGD
from isthmus.protect.fixed_point import FixedPoint
from isthmus.protect.gaussian import Gaussian
from isthmus.protect.laplace import Laplace
from isthmus.protect.masks import Masks
from isthmus.protect.number_format import NumberFormat
from isthmus.protect.server_masks import ServerMasks
from isthmus.protect.shares import Shares

Maker = Callable[[], Any]

PARTS: dict[str, dict[str, Maker]] = {
    "exchange": {
        "nothing": Nothing,
        "fwd-le": partial(LayerWise, adjoint=False),
        "fwd-bwd-le": LayerWise,
        "optimes": OptimES,
        "ce-fedgnn": MovingAverage,
        "fedgcn": FeatureSums,
        "swift": ServerAggregate,
        "embeddings": Embeddings,
        "prototypes": Prototypes,
        "generated": Generated,
        "mended": Mended,
        "hifgl": SecretMessages,
    },
    "schedule": {"every": Schedule, "shrinking": Shrinking},
    "sync": {
        "alone": Sync,
        "fedavg": FedAvg,
        "sync-sgd": SyncSGD,
        "ce-fedgnn": GradientAverage,
        "llcg": LLCG,
        "llcg-every-step": LLCGEveryStep,
        "fed-pub": SimilarModels,
        "fedpergnn": PseudoItems,
    },
    "objective": {
        "task": Objective,
        "proximal": Proximal,
        "reconstruction": Reconstruction,
        "asked-reconstruction": AskedReconstruction,
        "fed-pub": SparseMasks,
    },
    "protect": {
        "gaussian": Gaussian,
        "dp-sgd": DPSGD,
        "laplace": Laplace,
        "format": NumberFormat,
        "fixed-point": FixedPoint,
        "shares": Shares,
        "masks": Masks,
        "server-masks": ServerMasks,
        **{name: partial(NumberFormat, format=name) for name in ("float32", "bfloat16", "int8")},
    },
}


def register_part(axis: str, name: str) -> Callable[[Maker], Maker]:
    """Register a part of your own under a name: put ``@register_part("sync", "scaffold")`` above its class."""
    if axis not in PARTS:
        raise unknown("axis", axis, PARTS)

    def add(make: Maker) -> Maker:
        known = PARTS[axis].get(name)
        if known is not None and getattr(known, "__module__", "") != getattr(make, "__module__", ""):
            raise IsthmusError(f"There is a part '{name}' on the axis {axis} already; choose another name.")
        PARTS[axis][name] = make
        return make

    return add


def make_part(axis: str, name: str) -> Any:
    """The named part with its default options."""
    if name not in PARTS[axis]:
        raise unknown(f"{axis}", name, PARTS[axis])
    return PARTS[axis][name]()


def part_options(part: Any) -> dict[str, Any]:
    """The options of a part and their values."""
    return {f.name: getattr(part, f.name) for f in fields(part) if f.init}
