"""The catalogue: every published method as one composition of parts.

A method answers six questions: what crosses the boundary (exchange), at which steps (schedule), how parameters
agree (sync), what a silo minimises (objective), what is done to a payload before it leaves (protect), and how
parameters are scored (score). In ``local`` the answer to each is the part that does nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace

from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.kinds import DEVICE
from isthmus.engine.learner import CLASSIFIER, ModelSpec
from isthmus.engine.masked import MaskedClassifier
from isthmus.federation.federation import UNKNOWN
from isthmus.methods.exchange.ce_fedgnn import MovingAverage
from isthmus.methods.exchange.fedgcn import FeatureSums
from isthmus.methods.exchange.fwd_bwd_le import LayerWise
from isthmus.methods.exchange.generated import Generated
from isthmus.methods.exchange.hifgl import SecretMessages
from isthmus.methods.exchange.mended import Mended
from isthmus.methods.exchange.optimes import OptimES
from isthmus.methods.exchange.prototypes import Embeddings, Prototypes
from isthmus.methods.exchange.swift import ServerAggregate
from isthmus.methods.method import Method, vary
from isthmus.methods.missing_neighbours import ENCODER, GENERATOR, LOCAL, Encoder, FusedClassifier, NeighbourGenerator
from isthmus.methods.objective.asked_reconstruction import AskedReconstruction
from isthmus.methods.objective.fed_pub import SparseMasks
from isthmus.methods.objective.fedprox import Proximal
from isthmus.methods.objective.reconstruction import Reconstruction
from isthmus.methods.phase import Phase, one_phase
from isthmus.methods.schedule import Schedule, Shrinking
from isthmus.methods.sync.ce_fedgnn import GradientAverage
from isthmus.methods.sync.fed_pub import SimilarModels
from isthmus.methods.sync.fedavg import FedAvg
from isthmus.methods.sync.fedpergnn import PseudoItems
from isthmus.methods.sync.llcg import LLCG
from isthmus.methods.sync.llcg_every_step import LLCGEveryStep
from isthmus.methods.sync.sync_sgd import SyncSGD
from isthmus.protect.dp_sgd import DPSGD
from isthmus.protect.fixed_point import FixedPoint
from isthmus.protect.laplace import Laplace
from isthmus.protect.masks import Masks
from isthmus.protect.shares import Shares

_LAYERWISE = "Ceydeli 2026"
_MOVING = "Guo et al. 2026"
_FEDDEP = "Zhang et al. 2024"
_FEDSAGE = "Zhang et al. 2021"
_SWIFT = "Swift-FedGNN, OpenReview QXwtkVI8Yr"

_CATALOGUE: dict[str, Callable[[], Method]] = {}


def method(make: Callable[[], Method]) -> Callable[[], Method]:
    """Add a method to the catalogue under its own name; a decorator for scripts and plug-ins too."""
    name = make().name
    if name in _CATALOGUE and _CATALOGUE[name].__module__ != make.__module__:
        raise IsthmusError(f"There is a method called '{name}' already; choose another name.")
    _CATALOGUE[name] = make
    return make


@method
def local() -> Method:
    """Each silo trains alone on what it owns: nothing crosses, nothing is averaged, nothing is protected."""
    return Method("local", "each silo trains alone")


@method
def local_mlp() -> Method:
    """Each silo trains an MLP alone, without edges: a baseline for what features tell without the graph."""
    return replace(local(), name="local-mlp", summary="each silo trains alone, without edges", model="mlp")


@method
def fedavg() -> Method:
    """Local epochs, then the mean of the parameters, weighted by training nodes (the paper's Algorithm 1)."""
    summary = "local training, then the mean of parameters"
    return Method("fedavg", summary, "McMahan et al. 2017", one_phase(sync=FedAvg()))


@method
def fedprox() -> Method:
    """FedAvg whose silos also minimise (mu / 2) ||w - w_round||^2 (the paper's equation 2)."""
    return vary(fedavg(), "fedprox", "FedAvg with a proximal term", "Li et al. 2020", objective=Proximal())


@method
def fedper() -> Method:
    """FedAvg of all layers but the head, of which each silo keeps its own (the paper's personalisation layers)."""
    home = FedAvg(private=("head",))
    return vary(fedavg(), "fedper", "FedAvg with a private head for each silo", "Arivazhagan et al. 2019", sync=home)


@method
def pretrained_fedavg() -> Method:
    """Each silo trains alone for some epochs, then FedAvg goes on from there."""
    alone, together = Phase("pretrain", epochs=10), Phase("federate", sync=FedAvg())
    return Method("pretrained-fedavg", "local training for 10 epochs, then FedAvg", phases=(alone, together))


@method
def sync_sgd() -> Method:
    """The gradient sum of all silos at every step, one optimiser state, joint batches, agreed statistics."""
    summary = "the gradient sum of all silos at every step"
    return Method("sync-sgd", summary, phases=one_phase(sync=SyncSGD(), batches="joint"))


def layerwise(base: Method, name: str, adjoint: bool) -> Method:
    """A method with layer-wise exchange: halo rows refreshed at every layer (A3 of the paper), with adjoints back (A4).

    Joint batches and agreed statistics make ``sync-sgd+fwd-bwd-le`` centralised training, exactly.
    """
    summary = f"{base.name}, embeddings at every layer" + (", adjoints back" if adjoint else "")
    return vary(base, name, summary, _LAYERWISE, batches="joint", exchange=LayerWise(adjoint=adjoint))


@method
def optimes() -> Method:
    """FedAvg that reads halo rows of layers 1 .. L-1 one round old; they are pushed before parameters are averaged."""
    summary = "FedAvg, boundary embeddings once a round"
    return vary(fedavg(), "optimes", summary, "Naman and Simmhan 2026", exchange=OptimES())


@method
def ce_fedgnn() -> Method:
    """Moving averages of pre-activations (the paper's equation 5) and gradients (9), exchanged once an epoch.

    With long epochs that is every K = 32 steps, as in the paper; ``sync.local_steps=32`` does so in short ones, too.
    """
    summary = "moving averages of embeddings and gradients, exchanged every epoch, or every 32 steps"
    return Method("ce-fedgnn", summary, _MOVING, one_phase(exchange=MovingAverage(), sync=GradientAverage()))


@method
def fedgnn_st() -> Method:
    """CE-FedGNN without averages: rows as last computed, plain gradients."""
    summary = "boundary embeddings every epoch, or every 32 steps, read as they were computed"
    parts = one_phase(exchange=MovingAverage(gamma=1.0), sync=GradientAverage(beta=1.0))
    return Method("fedgnn-st", summary, _MOVING, parts)


@method
def fedgcn() -> Method:
    """Sums of neighbours' features over all silos, once, before FedAvg in rounds of 32 steps; the model must be gcn."""
    summary = "FedAvg of a gcn, sums of neighbours' features exchanged once before training"
    parts = one_phase(exchange=FeatureSums(), sync=FedAvg(local_steps=32, weights="silos"))
    return Method("fedgcn", summary, "Yao et al. 2023", parts)


@method
def fedgnn_g() -> Method:
    """Every silo uses its neighbours beyond the boundary at every iteration, aggregated through the server."""
    summary = "aggregates of neighbours elsewhere, through the server, at every step"
    parts = one_phase(exchange=ServerAggregate(), sync=SyncSGD(weights="silos"))
    return Method("fedgnn-g", summary, _SWIFT, parts)


@method
def fedsage() -> Method:
    """FedSage: silos sample local neighbours only; at every step all move along the mean of silos' gradients.

    So Swift-FedGNN's paper compares FedSage. No neighbour is generated: ``fedsage+`` does that.
    """
    summary = "the mean gradient of all silos at every step, local neighbours alone, none generated"
    alone = vary(fedgnn_g(), "fedsage", summary, _FEDSAGE, schedule=Schedule(silos=0))
    return replace(alone, scores=("own",))


@method
def fedsage_plus() -> Method:
    """Generators of each silo's own, which learn from gradients of other silos, then FedAvg on mended graphs.

    Phase ``generate`` is the paper's federated training of NeighGen (its equation 4, and the task loss of a classifier
    of the silo's own beside it), phase ``train`` FedSage on the graphs that are mended then.
    """
    learning = Phase(
        "generate", (LOCAL, GENERATOR), LOCAL, Mended(anew=True), objective=AskedReconstruction(hide=0.1), epochs=20
    )
    train = Phase("train", exchange=Mended(), sync=FedAvg())
    generator = NeighbourGenerator(shared=True, unit=False)
    models = {CLASSIFIER: ModelSpec(), GENERATOR: generator, LOCAL: ModelSpec()}
    summary = "FedAvg on graphs mended with generated neighbours, whose generators got gradients from all other silos"
    return Method("fedsage+", summary, _FEDSAGE, (learning, train), models, model="sage", cross=UNKNOWN)


@method
def swift_fedgnn() -> Method:
    """At every I-th step K silos use FedGNN-G's aggregates; all other steps are FedSage's (the paper's Algorithm 2)."""
    summary = "aggregates of neighbours elsewhere, through the server, every 10th step, by half of the silos"
    return vary(fedgnn_g(), "swift-fedgnn", summary, schedule=Schedule(every=10, share=0.5))


@method
def fedgnn_pns() -> Method:
    """FedGNN-G at intervals that each silo has for itself and that shrink; in between it reuses its last aggregates."""
    summary = "aggregates of neighbours elsewhere at ever shorter intervals, reused in between"
    kept = ServerAggregate(reuse=True)
    return vary(fedgnn_g(), "fedgnn-pns", summary, "Du and Wu 2022", exchange=kept, schedule=Shrinking())


@method
def llcg() -> Method:
    """Rounds of K rho^r local steps on local neighbours alone (the paper's Algorithm 2), averaged without weights.

    After each the server takes S steps on some nodes with all their neighbours. Parameters are scored with aggregates
    through the server. K = 16 is what the authors' code has for Cora, rho = 1.1 for Reddit, S = 1 for nearly all.
    """
    summary = "FedAvg in growing rounds, each followed by a step of the server, to which features of some nodes go"
    return vary(fedgnn_g(), "llcg", summary, "Ramezani et al. 2022", schedule=Schedule(silos=0), sync=LLCG())


@method
def llcg_every_step() -> Method:
    """FedSage, and at every 10th step a step of the server on some nodes with all their neighbours.

    This is LLCG as Swift-FedGNN's paper compares it. Parameters are scored with aggregates through the server.
    """
    summary = "the mean gradient of all silos at every step, corrected by the server, to which features go"
    corrected = LLCGEveryStep(weights="silos")
    return vary(fedgnn_g(), "llcg-every-step", summary, _SWIFT, schedule=Schedule(silos=0), sync=corrected)


@method
def feddep() -> Method:
    """Each silo trains an encoder, prototypes cross once, then FedAvg trains a neighbour generator and a classifier.

    Section 3.2 of the paper: prototypes and pseudo-FL; 3.1: generator and embedding-fused layers; equation 3.1: losses.
    Layers are those of section 3.1 (``sage-gcn``), or GraphSAGE's (``sage``), as in the authors' code.
    """
    encode = Phase("encode", (ENCODER,), ENCODER, exchange=Prototypes(), epochs=50)
    joint = CLASSIFIER, GENERATOR
    train = Phase("train", joint, exchange=Generated(), objective=Reconstruction(), sync=FedAvg())
    models = {CLASSIFIER: FusedClassifier(), ENCODER: Encoder(), GENERATOR: NeighbourGenerator()}
    summary = "FedAvg on graphs mended with generated neighbours, learnt from prototypes that are exchanged once"
    return Method(
        "feddep", summary, _FEDDEP, (encode, train), models, model="sage-gcn", instead=("sage",), cross=UNKNOWN
    )


@method
def feddep_no_prototypes() -> Method:
    """FedDEP without prototypes: generated rows go to all other silos at every step, which send gradients back.

    As in FedSage+ (equation 4 there), with rows of each silo's encoder in the place of features.
    """
    summary = "FedDEP without prototypes: generated rows go to all other silos at every step, gradients come back"
    whole = replace(feddep(), name="feddep-no-prototypes", summary=summary)
    return whole.with_phase("encode", exchange=Embeddings()).with_phase("train", objective=AskedReconstruction())


@method
def feddep_no_generator() -> Method:
    """FedDEP without generated neighbours: FedAvg of its classifier, whose second input is 0."""
    models = {CLASSIFIER: FusedClassifier(), ENCODER: Encoder()}
    summary = "FedAvg of FedDEP's classifier, without generated neighbours"
    parts = one_phase(sync=FedAvg())
    return Method(
        "feddep-no-generator", summary, _FEDDEP, parts, models, model="sage-gcn", instead=("sage",), cross=UNKNOWN
    )


@method
def feddep_dpsgd() -> Method:
    """FedDEP whose silos bound the gradient of every seed and add noise at every step, in both of its phases.

    The paper's ablation without noise-free DP, sigma = 2. It names no clipping norm: here 1.
    """
    summary = "FedDEP with clipped gradients of seeds and noise at every step (DP-SGD)"
    return replace(feddep(), name="feddep-dpsgd", summary=summary, protect=(DPSGD(seed_clip=1.0, seed_sigma=2.0),))


@method
def fed_pub() -> Method:
    """Masked models, mixed by the server by how alike their outputs on a random graph are; cross edges are unknown.

    The sync is the paper's personalised weight aggregation by functional similarity with tau, the model its adaptive
    weight masking, the objective its local loss with lambda_1 on masks and lambda_2 on the distance from the weights
    that the server gave.
    """
    summary = "masked models of each silo's own, mixed by the server by what they say of a random graph"
    parts = one_phase(sync=SimilarModels(), objective=SparseMasks())
    models = {CLASSIFIER: MaskedClassifier()}
    return Method("fed-pub", summary, "Baek et al. 2023", parts, models, cross=UNKNOWN)


@method
def fedpergnn() -> Method:
    """The mean of noisy gradients at every step (equation 1 of Wu et al.), with pseudo items; cross edges are unknown.

    FedDEP's authors call it FedGNN. Its graph expansion, in which a third party matches encrypted ids, is not here.
    """
    summary = "the mean of bounded gradients with Laplace noise and pseudo items, local neighbours alone"
    parts, protect = one_phase(sync=PseudoItems()), (Laplace(bound=0.1, scale=0.2),)
    return Method("fedpergnn", summary, "Wu et al. 2022", parts, protect=protect, cross=UNKNOWN)


@method
def hifgl() -> Method:
    """Every node a device: rows travel as shares of which no party reads one, and neighbours' sums alone are opened.

    Section 4.2 of the paper: the source scales its row (equation 2), the target the sum (3), shares are Lagrange's (4),
    with T = 1; 4.3: silos average parameters. Devices hand gradients in as masked sums, which the paper sends openly.
    """
    summary = "FedAvg in which every node is a device, whose row nobody reads: sums of neighbours' shares are opened"
    parts = one_phase(exchange=SecretMessages(), sync=FedAvg())
    protect = FixedPoint(), Shares(), Masks()
    return Method("hifgl", summary, "Guo et al. 2024", parts, protect=protect, level=DEVICE)


@method
def local_fwd_le() -> Method:
    """``local`` with halo rows refreshed at every layer, as constants."""
    return layerwise(local(), "local+fwd-le", adjoint=False)


@method
def local_fwd_bwd_le() -> Method:
    """``local`` with halo rows refreshed at every layer, and adjoints back."""
    return layerwise(local(), "local+fwd-bwd-le", adjoint=True)


@method
def fedavg_fwd_le() -> Method:
    """FedAvg with halo rows refreshed at every layer, as constants."""
    return layerwise(fedavg(), "fedavg+fwd-le", adjoint=False)


@method
def fedavg_fwd_bwd_le() -> Method:
    """FedAvg with halo rows refreshed at every layer, and adjoints back."""
    return layerwise(fedavg(), "fedavg+fwd-bwd-le", adjoint=True)


@method
def sync_sgd_fwd_le() -> Method:
    """Sync-SGD with halo rows refreshed at every layer, as constants."""
    return layerwise(sync_sgd(), "sync-sgd+fwd-le", adjoint=False)


@method
def sync_sgd_fwd_bwd_le() -> Method:
    """Sync-SGD with halo rows refreshed at every layer, and adjoints back: centralised training, exactly."""
    return layerwise(sync_sgd(), "sync-sgd+fwd-bwd-le", adjoint=True)


@method
def centralised() -> Method:
    """One silo owns the whole graph and trains alone, on joint batches; ``sync-sgd+fwd-bwd-le`` equals it."""
    summary = "one silo owns all nodes (simulation only)"
    return Method("centralised", summary, phases=one_phase(batches="joint"), merged=True)


_ALSO_CALLED = {"exact": "sync-sgd+fwd-bwd-le"}  # names that stand for another one


def names() -> list[str]:
    """Every method of the catalogue, in its order."""
    return list(_CATALOGUE)


def get(name: str) -> Method:
    """The method of this name from the catalogue."""
    return _maker(name)()


def docstring(name: str) -> str:
    """What a method of the catalogue does, in the words of the function that makes it."""
    return inspect.cleandoc(_maker(name).__doc__ or "")


def _maker(name: str) -> Callable[[], Method]:
    """The function that makes a method, which may go by another name too."""
    known = _ALSO_CALLED.get(name, name)
    if known not in _CATALOGUE:
        raise unknown("method", name, _CATALOGUE)
    return _CATALOGUE[known]
