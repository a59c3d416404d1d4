"""The work of ``isthmus audit``: attack the rows that a run has released, and measure how much they give away."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from isthmus import kernels
from isthmus.audit.context import Context
from isthmus.audit.findings import Audit, keep
from isthmus.audit.measure import Adversary, Finding, Released, TargetsDone, near_distance
from isthmus.audit.released_rows import Book, Page, read_book
from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.launch.host import load_silos, open_run
from isthmus.protect.events import Clipped, GaussianNoise
from isthmus.protect.secrets import Noise, secrets_from_seed
from isthmus.runs.config import RunConfig, resolve
from isthmus.runs.folder import RunFolder
from isthmus.runs.plain_words import WORDS
from isthmus.runs.summary import members, read_flows
from isthmus.train.training import Training
from isthmus.wire.local import LocalWire

WHAT_IF = (0.1, 0.3, 1.0, 3.0)  # noise that is added afterwards where the run added none


@dataclass(frozen=True)
class AuditRequest:
    """The settings of an audit.

    ``targets`` are attacked at each layer up to ``deepest``. ``sigmas`` are levels of noise to add to the released rows
    (None: those of ``WHAT_IF``, if the run itself added no noise).
    """

    targets: int = 64
    seed: int = 0
    sigmas: tuple[float, ...] | None = None
    deepest: int | None = None

    def check(self) -> None:
        """Raise a clear error for settings that make no sense."""
        for name, value, least in (("targets", self.targets, 1), ("seed", self.seed, 0), ("deepest", self.deepest, 0)):
            if value is not None and value < least:
                raise IsthmusError(f"--{name} is {value}; it must be at least {least}.")
        for sigma in self.sigmas or ():
            if not 0 <= sigma < math.inf:
                raise IsthmusError(f"--sigma has {sigma:g}; noise is a finite number, 0 or more.")

    def levels(self, sigma: float) -> list[float]:
        """The levels of noise to add to rows that left with noise ``sigma``; the first level is 0."""
        asked = self.sigmas if self.sigmas is not None else () if sigma else WHAT_IF
        return [0.0, *sorted({level for level in asked if level})]


def parse_sigmas(text: str | None) -> tuple[float, ...] | None:
    """The numbers in a text such as ``0.1,0.3,1``; None for None."""
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise IsthmusError(f"--sigma is '{text}'; give numbers between commas, like --sigma 0.1,0.3,1.") from None


FindingMade = Callable[[Finding], None]  # called with every finding


def audit_run(path: str, request: AuditRequest, watch: Callable[[int], tuple[TargetsDone, FindingMade]]) -> Audit:
    """Audit a finished run (with several seeds, the first) and write ``audit.json`` into its folder.

    ``watch`` is called with the number of attacks on single targets; it returns a function to call after some of them
    are done, and one to call with every finding.
    """
    request.check()
    folder = members(RunFolder.open(path))[0]
    book = read_book(folder.path, int(folder.metrics.get("hosts", 1)))
    if book is None:
        _check_nothing_left(folder)
        return keep(folder, Audit())
    training = _opened(resolve(folder.config))
    clip, sigma = _treatment(training)
    adversary = Adversary(Context(training))
    pages = {k: page for k, page in book.pages.items() if request.deepest is None or k <= request.deepest}
    left = [_located(training, layer, page, clip) for layer, page in pages.items() if len(page.rows)]
    tell, told = watch(len(request.levels(sigma)) * sum(min(len(each.node), request.targets) for each in left))
    findings = []
    for each in left:
        for finding in _attack(adversary, book, each, request, sigma, tell):
            told(finding)
            findings.append(finding)
    return keep(folder, Audit(tuple(findings), clip, sigma, request.seed))


def _treatment(training: Training) -> tuple[float, float]:
    """The clip and the noise of the rows that this run released, by the events of its chain of protection."""
    for event in training.wire.protect.events(Kind.EMBEDDINGS):
        if isinstance(event, GaussianNoise):
            return event.clip, event.sigma
        if isinstance(event, Clipped):
            return event.clip, 0.0
    return math.inf, 0.0


def _check_nothing_left(folder: RunFolder) -> None:
    """Raise if the ledger shows that rows left, although none were kept or this attack cannot read them."""
    kinds = {flow.kind for flow in read_flows(folder) if flow.rows}
    if Kind.EMBEDDINGS in kinds:
        raise IsthmusError(f"'{folder.path}' has released rows but kept no releases.parquet of them; run it again.")
    for kind in (Kind.FEATURES, Kind.AGGREGATES, Kind.PARTIALS):
        if kind in kinds:
            raise IsthmusError(
                f"'{folder.path}' has released {WORDS[kind].name}, which this attack does not read: it infers features "
                "from embeddings. Take them for disclosed."
            )


def _opened(config: RunConfig) -> Training:
    """The training of a run as it began, with all silos in this process.

    It computes in float64, because rounding errors would look like protection.
    """
    config = replace(config, dtype="float64", system=replace(config.system, device="cpu", hosts=1))
    if config.system.threads:
        torch.set_num_threads(config.system.threads)
    kernels.choose(config.system.kernels)
    try:
        silos = load_silos(config.data, merged=False)
    except IsthmusError as error:
        raise IsthmusError(f"An audit compares with the truth, so it needs all silos' data here. {error}") from error
    wire = LocalWire(len(silos), config.method.chain)
    wire.noise = Noise(secrets_from_seed(config.seed, wire.mine))
    return open_run(config, wire, silos)


def _located(training: Training, layer: int, page: Page, clip: float) -> Released:
    """The released rows of one layer, with the row of each node in the merged graph."""
    place: dict[tuple[str, str], int] = {}
    for silo in training.federation.silos:
        name = training.wire.party(silo.number)
        place |= {(name, node): len(place) + i for i, node in enumerate(map(str, silo.ids.tolist()))}
    lost = next((node for node in page.nodes if node not in place), None)
    if lost is not None:
        raise IsthmusError(
            f"Node {lost[1]} of {lost[0]} has left, but is not in the data; audit with the data of the run."
        )
    node = torch.tensor([place[node] for node in page.nodes])
    return Released(layer, node, page.releases, page.rows, clip)


def _attack(
    adversary: Adversary, book: Book, left: Released, request: AuditRequest, sigma: float, tell: TargetsDone
) -> Iterator[Finding]:
    """The findings of attacks on the rows of one layer, one for each level of noise.

    The adversary uses those of the kept parameters that fit the rows best.
    """
    context = adversary.context
    chosen, misfits = _fitting(adversary, book, left)
    targets = left.sample(request.targets, len(context.owner), request.seed)
    true = context.features(targets.node)
    near, guess = near_distance(context, targets.node), _error(adversary.guess(targets), true)
    for added in request.levels(sigma):
        error = _error(adversary.infer(targets, misfits, added, request.seed, tell), true)
        yield Finding(
            layer=left.layer,
            sigma=math.hypot(sigma, added),
            what_if=added > 0,
            parameters=chosen,
            targets=len(targets.node),
            releases=float(targets.releases.double().mean()),
            error=error,
            guess=guess,
            neighbours=near,
            misfit=float(misfits.square().mean().sqrt()),
            norm=float(targets.rows.norm(dim=1).mean()),
        )


def _fitting(adversary: Adversary, book: Book, left: Released) -> tuple[str, Tensor]:
    """The name of the kept parameters from which released rows are computed best, and the remaining misfits."""
    found: dict[str, Tensor] = {}
    for name in book.held:
        _load(adversary.context.training, book.held[name])
        found[name] = adversary.misfits(left)
    best = min(found, key=lambda name: float(found[name].sum()))
    _load(adversary.context.training, book.held[best])
    return best, found[best]


def _load(training: Training, held: list[dict[str, Tensor]]) -> None:
    """Load the kept parameters of all hosts into a training: joined, where each silo has its own, else the first."""
    sets = training.learner.classifier.sets
    live = sets.everything()
    for name in sets.names():
        parts = [part[name] for part in held if name in part]
        whole = torch.cat(parts) if sum(map(len, parts)) == len(live[name]) else parts[0] if parts else None
        if whole is None or whole.shape != live[name].shape:
            raise IsthmusError(f"The kept parameters do not fit the run's configuration ({name}); run it again.")
        live[name].copy_(whole)


def _error(x: Tensor, true: Tensor) -> float:
    """The mean squared error of estimated features."""
    return float((x - true).square().mean())
