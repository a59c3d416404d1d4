"""Attacks on sums: partial aggregates that go through the server, and FedGCN's sums of features."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from isthmus.audit.attacks import FROM_OWN, Scene, regressed, treatment
from isthmus.audit.findings import ERROR, FEATURES, NOT_TRIED, Finding
from isthmus.audit.journal import Journal, Totals
from isthmus.audit.recording import Attacked, SumListener, choose, linear_messages, scaled_prior
from isthmus.audit.row_attacks import Adversary
from isthmus.audit.sums import SumSolver, features_of
from isthmus.core.kinds import Kind
from isthmus.nn.layer import Layer
from isthmus.train.training import Training

OWNERS = 3  # silos whose sums are attacked
EXPOSED = 0.01  # a node whose error is below this share of the guess's counts as exposed
_LEAST = 0.05  # smallest sum of ones that rows are divided by; smaller ones are noise


class SumAttack:
    """Collects the sums of some silos in solvers, and infers the features of the nodes in them.

    ``scaled``: each row is scaled by a number that follows from its degree, which the adversary does not know.
    """

    def __init__(self, adversary: Adversary, training: Training, scaled: bool, seed: int) -> None:
        self.adversary, self.stack = adversary, training.stage.site.stack.to(torch.device("cpu"))
        self.rounding = 8 * torch.finfo(training.dtype).eps
        degree = adversary.context.stack.in_degree
        self.scales = degree.add(1).double().rsqrt() if scaled else None
        self.attacked: list[Attacked] = []
        for silo in torch.randperm(len(self.stack.silos), generator=torch.Generator().manual_seed(seed)).tolist():
            nodes = choose(self.stack, silo, seed)
            if len(nodes) and len(self.attacked) < OWNERS:
                others = self._others(silo)
                scales = None if self.scales is None else self.scales[others]
                prior = scaled_prior(adversary.context.features(others), scales)
                self.attacked.append(Attacked(silo, nodes, SumSolver(len(nodes), prior)))

    def _others(self, silo: int) -> Tensor:
        """The nodes of all other silos."""
        return (self.adversary.owner != silo).nonzero().flatten()

    def finding(self, kind: Kind, layer: int | None, sigma: float, note: str) -> Finding | None:
        """The error of the features that all sums together give, over the nodes that were in any; None without any."""
        errors, guesses, times = list[Tensor](), list[Tensor](), list[Tensor]()
        for each in self.attacked:
            seen = (each.solver.times > 0).nonzero().flatten()
            if not len(seen):
                continue
            found = each.solver.solve(sigma, self.rounding)[seen]
            if self.scales is not None:
                found = features_of(found, self.scales[self._others(each.silo)])
            node = self.stack.own_line[each.nodes[seen]]
            true = self.adversary.context.features(node)
            errors.append((found - true).square().mean(1))
            guesses.append((self.adversary.guess(node) - true).square().mean(1))
            times.append(each.solver.times[seen])
        if not errors:
            return None
        error, guess, count = torch.cat(errors), torch.cat(guesses), torch.cat(times)
        exposed = float((error < EXPOSED * guess.mean()).double().mean())
        note = f"{note}, {100 * exposed:.0f} % exposed"
        told = float(error.mean()), float(guess.mean()), layer, float(count.mean()), len(error), sigma
        return Finding(FEATURES, kind.value, ERROR, *told, note=note, details={"exposed": exposed})


class PartialsAttack:
    """The attack on partial aggregates before the first layer, which listens while a run is replayed."""

    def __init__(self, adversary: Adversary, seed: int) -> None:
        self.adversary, self.seed = adversary, seed
        self.sums: SumAttack | None = None

    def listen(self, training: Training, journal: Journal) -> None:
        """Have the journal pass its sums on, if messages are linear in features, so that they can be solved."""
        site = training.stage.site
        layer = site.net.layers[0]
        if site.stack.halo and linear_messages(site.net) is not None and isinstance(layer, Layer):
            self.sums = SumAttack(self.adversary, training, layer.uses_degrees, self.seed)
            journal.on_sums = SumListener(site, self.sums.attacked, layer.uses_degrees)

    def findings(self, scene: Scene) -> Iterator[Finding]:
        """The finding of the attack on partials of all steps; one without a number where it could not be tried."""
        sigma = treatment(scene.training.wire.protect, Kind.PARTIALS)[1]
        found = None if self.sums is None else self.sums.finding(Kind.PARTIALS, 0, sigma, "all sums solved together")
        why = "messages are no linear map of features, or none was handed out"
        yield found or Finding(FEATURES, Kind.PARTIALS.value, NOT_TRIED, layer=0, note=why)


def features_from_sums_of_features(scene: Scene) -> Iterator[Finding]:
    """The attack on FedGCN's sums: those of the first hop are solved for single nodes, the second by regression."""
    if 0 not in scene.journal.aggregates:
        return
    sigma = treatment(scene.training.wire.protect, Kind.AGGREGATES)[1]
    attack = SumAttack(scene.adversary, scene.training, True, scene.request.seed)
    silo, at, rows = scene.journal.aggregates[0]
    for each in attack.attacked:
        _tell(attack, each, at[silo == each.silo], rows[silo == each.silo])
    found = attack.finding(Kind.AGGREGATES, None, sigma, "first hop, all sums solved together")
    if found is not None:
        yield found
    if 1 in scene.journal.aggregates:
        yield from _second_hop(scene, sigma)


def _tell(attack: SumAttack, each: Attacked, at: Tensor, rows: Tensor) -> None:
    """Give the solver of a silo the sums ``rows`` that it sent for its halo rows ``at``."""
    source, target = attack.stack.ends
    inside = torch.isin(target, at) & attack.stack.owned[source]
    order = torch.argsort(at)
    which = order[torch.searchsorted(at[order], target[inside])]
    known = torch.isin(source[inside], each.nodes)
    usable = torch.ones(len(at), dtype=torch.bool)
    usable[which[~known]] = False
    kept = usable[which]
    node, number = torch.searchsorted(each.nodes, source[inside][kept]), usable.cumsum(0) - 1
    if len(node):
        each.solver.add(node, number[which[kept]], rows[usable])


def _second_hop(scene: Scene, sigma: float) -> Iterator[Finding]:
    """Regression of a node's features on its whole sum, without the parts in it that the adversary added itself."""
    stack = scene.training.stage.site.stack.to(torch.device("cpu"))
    _, halo, parts = scene.journal.aggregates[0]
    _, at, sums = scene.journal.aggregates[1]
    own = stack.owned.nonzero().flatten()
    order = torch.argsort(stack.keys[own])
    home = own[order[torch.searchsorted(stack.keys[own][order], stack.keys[halo])]]
    inner = torch.zeros(stack.rows, sums.shape[1], dtype=torch.float64)
    inner[at] = sums
    inner.index_add_(0, home, -parts)
    rows = inner[:, :-1] / inner[:, -1:].clamp(min=_LEAST)
    counts = torch.zeros(stack.rows, dtype=torch.float64)
    counts[at] = 1.0
    yield from regressed(scene, rows, Totals(rows, counts), Kind.AGGREGATES, None, sigma, f"second hop, {FROM_OWN}")
